package queue_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/jobs/queue"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
	"e3/refstore/dynamo"
)

// TestThroughput has one queue finish jobs as quickly as this machine can, behind a server that refuses more than AWS's
// 1,000 write and 3,000 read units a second for a partition key. In shards none is refused, and by the counted units the
// hottest key bounds the queue at 2,000 jobs a second or more. Without shards, as in older repositories, it is at some 150.
func TestThroughput(t *testing.T) {
	suite.Thorough(t)
	for name, tt := range map[string]struct {
		spread bool
		least  float64
	}{"in shards": {true, 2000}, "without": {false, 100}} {
		t.Run(name, func(t *testing.T) {
			const jobs, workers, each = 600, 2, 8
			meter := testserver.NewMeter(t, testserver.Minidyn(t))
			o := dynamo.Options{
				Config: testserver.Config(), Endpoint: meter.URL(), Table: testserver.Name(), Repository: "repository", Blobs: &blobs{data: map[string][]byte{}}, Spread: tt.spread,
			}
			if _, err := dynamo.CreateTable(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			store, err := dynamo.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			w := worldOn(t, store)
			w.batches, w.hurried, w.spread = true, true, tt.spread
			w.ttl = time.Hour
			polls := queue.Options{Polled: true}
			front := w.onStore("front", store, polls)
			meter.Limit(testserver.Units{Reads: 3000, Writes: 1000})
			meter.Used()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var beside sync.WaitGroup
			for range workers {
				p := w.onStore("back", store, polls)
				for range each {
					beside.Go(func() { p.work(t, ctx, 0) })
				}
			}
			began := time.Now()
			in := front.Inbox(ctx, queue.DefaultQueue, run)
			room := make(chan struct{}, 1000) // jobs that are out
			beside.Go(func() {
				var puts sync.WaitGroup
				for n := range jobs {
					room <- struct{}{}
					puts.Go(func() {
						j, err := front.EnqueueFirst(ctx, job(n))
						if err != nil {
							t.Error(err)
							cancel()
						}
						in.Expect(j.ID)
					})
				}
				puts.Wait()
			})
			for done := 0; done < jobs; {
				told, err := in.Next(ctx)
				if err != nil {
					t.Fatal(err)
				}
				for i := range told {
					if told[i].Status.Terminal() {
						done++
						<-room
					}
				}
			}
			took := time.Since(began)
			cancel()
			beside.Wait()
			w.flush()
			used, throttled := meter.Used()
			hottest, units := "", 0.0
			for pk, u := range used {
				if tt.spread && strings.HasSuffix(pk, "/ready") {
					continue // the marks there are put by time, three a second at most
				}
				if strings.HasPrefix(pk, queue.Kind+"/") && u.Writes > units {
					hottest, units = pk, u.Writes
				}
			}
			bound := 1000 / (units / jobs)
			t.Logf("%.0f jobs a second, %d requests refused; %s takes %.2f write units of each job: %.0f jobs a second at most", jobs/took.Seconds(), throttled, hottest, units/jobs, bound)
			if bound < tt.least {
				t.Errorf("the hottest key allows %.0f jobs a second, want %.0f", bound, tt.least)
			}
			if tt.spread && throttled > 0 {
				t.Errorf("%d requests were refused, as a partition key took no more", throttled)
			}
		})
	}
}
