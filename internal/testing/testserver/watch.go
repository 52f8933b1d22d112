package testserver

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// A Call is a request that came through a proxy.
type Call struct {
	Operation string // as in [Proxy.Calls]
	// Subject is what it was about: the partition key of an item, of the first where there are several, or the key of an object
	// or the prefix of a list. "" where there is none.
	Subject string
	Units   float64 // of capacity that the server said it consumed
	// Began and Ended are when the request came, and when its answer had gone.
	Began, Ended time.Time
}

// Watch has every request told to watch once it has been answered. It is called by several goroutines at a time; nil ends it.
func (p *Proxy) Watch(watch func(Call)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = watch
}

// callKey is the key of a request's Call in its context.
type callKey struct{}

// watched gives a request a Call that can be completed; tell passes it to the watcher.
func (p *Proxy) watched(r *http.Request, op string) (_ *http.Request, tell func()) {
	p.mu.Lock()
	watch := p.watch
	p.mu.Unlock()
	if watch == nil {
		return r, func() {}
	}
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if key == "" {
		key = r.URL.Query().Get("prefix")
	}
	c := &Call{Operation: op, Subject: key, Began: time.Now()}
	return r.WithContext(context.WithValue(r.Context(), callKey{}, c)), func() {
		c.Ended = time.Now()
		watch(*c)
	}
}

// callOf returns the Call of a request, one that is dropped without a watcher.
func callOf(r *http.Request) *Call {
	if c, ok := r.Context().Value(callKey{}).(*Call); ok {
		return c
	}
	return new(Call)
}

// partitionOf returns the value of PK in a DynamoDB request, however it is given; "" if it has none.
func partitionOf(fields map[string]json.RawMessage) string {
	type item struct{ PK struct{ S string } }
	for _, name := range []string{"Key", "Item"} {
		var one item
		if json.Unmarshal(fields[name], &one) == nil && one.PK.S != "" {
			return one.PK.S
		}
	}
	var batch map[string][]struct {
		PutRequest    struct{ Item item }
		DeleteRequest struct{ Key item }
	}
	if json.Unmarshal(fields["RequestItems"], &batch) == nil {
		for _, requests := range batch {
			if len(requests) > 0 {
				return cmp.Or(requests[0].PutRequest.Item.PK.S, requests[0].DeleteRequest.Key.PK.S)
			}
		}
	}
	var condition string
	var values map[string]struct{ S string }
	if json.Unmarshal(fields["KeyConditionExpression"], &condition) == nil && json.Unmarshal(fields["ExpressionAttributeValues"], &values) == nil {
		_, name, _ := strings.Cut(condition, "PK = ")
		name, _, _ = strings.Cut(name, " ")
		return values[name].S
	}
	return ""
}
