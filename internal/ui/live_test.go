package ui_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/testing/suite"
	"e3/internal/ui"
)

// message is what a page hears.
type message struct{ id, event, data string }

// listen opens the stream of events that a page names. Its messages are sent to the channel until stop is called.
func (b *bench) listen(path, last string) (heard <-chan message, stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", b.front.URL+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.AddCookie(b.cookie())
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.t.Fatal(err)
	}
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != 200 || kind != "text/event-stream" {
		b.t.Fatalf("%s: %d %s", path, answer.StatusCode, kind)
	}
	c := make(chan message, 100)
	var done sync.WaitGroup
	done.Go(func() {
		defer close(c)
		defer answer.Body.Close()
		var m message
		for in := bufio.NewScanner(answer.Body); in.Scan(); {
			name, value, _ := strings.Cut(in.Text(), ": ")
			switch name {
			case "id":
				m.id = value
			case "event":
				m.event = value
			case "data":
				m.data = value
			case "":
				if m.event != "" {
					c <- m
				}
				m = message{}
			}
		}
	})
	return c, func() { cancel(); done.Wait() }
}

// next waits for a message.
func (b *bench) next(heard <-chan message) message {
	b.t.Helper()
	select {
	case m, ok := <-heard:
		if !ok {
			b.t.Fatal("the stream has ended")
		}
		return m
	case <-time.After(suite.Stuck):
		b.t.Fatal("no message came")
	}
	return message{}
}

// upToDate waits for the message after which everything is known.
func (b *bench) upToDate(heard <-chan message) message {
	b.t.Helper()
	last, err := events.Last(b.t.Context(), b.records, "prod", runID)
	if err != nil || last == nil {
		b.t.Fatal(err)
	}
	for {
		m := b.next(heard)
		c, err := events.ParseCursor(m.id)
		if err != nil {
			b.t.Fatalf("the id of a message: %v", err)
		}
		if c.Run == runID && c.Seq == last.Seq {
			return m
		}
	}
}

// quiet fails if a message comes within a moment in which one would come.
func (b *bench) quiet(heard <-chan message) {
	b.t.Helper()
	select {
	case m := <-heard:
		b.t.Errorf("a message without news: %+v", m)
	case <-time.After(700 * time.Millisecond):
	}
}

func (b *bench) tell(e events.Event) {
	b.t.Helper()
	b.log.Emit(e)
	if err := b.log.Flush(); err != nil {
		b.t.Fatal(err)
	}
}

func TestPagesHearOfChanges(t *testing.T) {
	b := newBench(t)
	b.run(true, small()[:3]...)
	b.serve(ui.Options{})
	page := b.page("/run?w=prod")
	wantIn(t, page, `data-stream="/events?w=prod`, `s-running`)
	heard, stop := b.listen("/events?w=prod", "")
	first := b.upToDate(heard) // the page may be older than the stream
	b.quiet(heard)
	b.tell(events.Event{Type: events.TaskMarkedReady, Task: "late"})
	b.tell(events.Event{Type: events.TaskStarted, Task: "late", Execution: "01950000-0000-7000-8000-000000000000", Data: &events.Data{Attempt: 1}})
	second := b.upToDate(heard)
	if second.id == first.id {
		t.Error("the cursor stays where it was")
	}
	wantIn(t, b.page("/run?w=prod"), `id="t-late"`)
	stop()

	// A tab that slept: nothing is told twice, and nothing is lost.
	heard, stop = b.listen("/events?w=prod", second.id)
	b.quiet(heard)
	stop()
	b.tell(events.Event{Type: events.TaskCompleted, Task: "late", Execution: "01950000-0000-7000-8000-000000000000", Data: &events.Data{Duration: 5}})
	heard, stop = b.listen("/events?w=prod", second.id)
	third := b.upToDate(heard)
	stop()

	// A server that was killed, and another one with the same secret.
	b.stop()
	b.front.CloseClientConnections()
	b.serve(ui.Options{})
	heard, stop = b.listen("/events?w=prod", third.id)
	b.quiet(heard)
	stop()
	b.tell(events.Event{Type: events.TaskMarkedReady, Task: "later"})
	b.tell(events.Event{Type: events.TaskSkipped, Task: "later", Data: &events.Data{Because: "late"}})
	heard, stop = b.listen("/events?w=prod", third.id)
	b.upToDate(heard)
	stop()
	wantIn(t, b.page("/run?w=prod"), `id="t-later"`)
}

// A restarted server with the same secret serves the cookies of the one before; another secret does not.
func TestSecretsOutliveServers(t *testing.T) {
	b := newBench(t)
	b.run(false, small()...)
	secret := ui.NewSecret()
	b.serve(ui.Options{Secret: secret})
	client := b.client
	for _, tt := range []struct {
		o    ui.Options
		want int
	}{{ui.Options{Secret: secret}, 200}, {ui.Options{}, 401}} {
		b.serve(tt.o)
		r, err := http.NewRequestWithContext(t.Context(), "GET", b.front.URL+"/run?w=prod", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range client.Jar.Cookies(r.URL) {
			r.AddCookie(c)
		}
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != tt.want {
			t.Errorf("%d, want %d", answer.StatusCode, tt.want)
		}
	}
}

// The pages of the whole repository hear of what happens in any workspace.
func TestPagesOfAllWorkspacesHearOfChanges(t *testing.T) {
	b := newBench(t)
	b.run(true, small()[:3]...)
	b.serve(ui.Options{})
	for _, path := range []string{"/", "/queue", "/store"} {
		wantIn(t, b.page(path), `data-stream="/events?`)
	}
	if page := b.page("/store?again=1"); strings.Contains(page, "data-stream") {
		t.Error("a page that measures at each look follows events")
	}
	heard, stop := b.listen("/events", "")
	first := b.next(heard)
	b.quiet(heard)
	b.tell(events.Event{Type: events.TaskMarkedReady, Task: "late"})
	second := b.next(heard)
	if second.id == first.id {
		t.Error("the cursor stays where it was")
	}
	b.quiet(heard)
	stop()

	// A tab that slept is told nothing twice; one of another server looks once.
	heard, stop = b.listen("/events", second.id)
	b.quiet(heard)
	stop()
	b.stop()
	b.front.CloseClientConnections()
	b.serve(ui.Options{})
	heard, stop = b.listen("/events", second.id)
	b.next(heard)
	b.quiet(heard)
	stop()
}
