package main

import (
	"sync"

	"e3/internal/events"
)

// inOrder has events, which several goroutines may bring at the same time, arrive one by one
// in the order of their numbers.
func inOrder(take func(events.Event)) func(events.Event) {
	var mu sync.Mutex
	next := int64(1)
	early := map[int64]events.Event{}
	return func(e events.Event) {
		mu.Lock()
		defer mu.Unlock()
		early[e.Seq] = e
		for {
			e, ok := early[next]
			if !ok {
				return
			}
			delete(early, next)
			next++
			take(e)
		}
	}
}
