package queue_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"e3/internal/jobs/queue"
	"e3/internal/testing/suite"
)

// BenchmarkThroughput is b.N empty jobs, through a folder, by two workers; a run waits for them. With 10,000 of them it
// measures a long queue: -benchtime 10000x.
func BenchmarkThroughput(b *testing.B) {
	dir := b.TempDir()
	w := worldOn(b, openFolder(b, dir))
	w.moves, w.aliases = true, true
	front := w.on("front")
	began := suite.ProcessorTime(b)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	inbox := front.Inbox(ctx, queue.DefaultQueue, run)
	b.ResetTimer()
	for i := range b.N {
		inbox.Expect(front.enqueue(b, job(i)).ID)
	}
	enqueued := suite.ProcessorTime(b)
	done := make(chan error, 2)
	claims := make([]int, 2)
	for n := range 2 {
		worker := w.onStore("back", openFolder(b, dir), queue.Options{})
		go func() {
			done <- func() error {
				wake, err := worker.Watch(ctx, queue.DefaultQueue)
				if err != nil {
					return err
				}
				for {
					l, err := worker.Claim(ctx, worker.want())
					if err != nil {
						return err
					}
					if l == nil {
						if _, ok := <-wake; !ok {
							return nil
						}
						continue
					}
					claims[n]++
					if err := l.Finish(ctx, success(l)); err != nil {
						return err
					}
				}
			}()
		}()
	}
	for ended := 0; ended < b.N; {
		jobs, err := inbox.Next(ctx)
		if err != nil {
			b.Fatal(err)
		}
		for _, j := range jobs {
			if j.Status.Terminal() {
				ended++
			}
		}
	}
	b.StopTimer()
	used := suite.ProcessorTime(b) - began
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "cpu-µs/job")
	b.ReportMetric(float64((enqueued-began).Microseconds())/float64(b.N), "cpu-µs/enqueue")
	cancel()
	for range 2 {
		if err := <-done; err != nil && ctx.Err() == nil {
			b.Error(err)
		}
	}
	if testing.Verbose() {
		b.Log(fmt.Sprint("claims: ", claims))
	}
}

// BenchmarkLatency is the time from enqueuing a job in a folder until a waiting worker has claimed it, with
// notification.
func BenchmarkLatency(b *testing.B) {
	dir := b.TempDir()
	w := worldOn(b, openFolder(b, dir))
	w.moves, w.aliases = true, true
	front, worker := w.on("front"), w.onStore("back", openFolder(b, dir), queue.Options{})
	front.enqueue(b, job(-1)) // so that the folders exist
	worker.finish(b, worker.claim(b))
	wake, err := worker.Watch(b.Context(), queue.DefaultQueue)
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		front.enqueue(b, job(i))
		for {
			<-wake
			l, err := worker.Claim(b.Context(), worker.want())
			if err != nil {
				b.Fatal(err)
			}
			if l != nil {
				took = append(took, time.Since(began))
				worker.finish(b, l)
				break
			}
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "median-µs")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
}
