package events_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/internal/events"
	"e3/refstore/mem"
)

// A history is a sequence of actions in a workspace: runs one after the other, events of the journal, and imports.
type history struct {
	tb    interface{ Fatal(...any) }
	s     *mem.Store
	ws    string      // "": ws
	log   *events.Log // of the run at work
	runs  int
	known int64    // the stream of the journal in which the last run was recorded
	wrote []string // the events that readers must see, once each
}

func (h *history) must(err error) {
	if err != nil {
		h.tb.Fatal(err)
	}
}

func (h *history) run() string {
	h.runs++
	return fmt.Sprintf("0194fdc2-fa2f-7cc0-81d3-%012d", h.runs)
}

func (h *history) emit(log *events.Log, run string, typ events.Type) {
	e := log.Emit(events.Event{Type: typ, Task: "t"})
	h.must(log.Flush())
	h.wrote = append(h.wrote, fmt.Sprint(run, " ", e.Seq))
}

// step performs one of the possible next actions.
func (h *history) step(kind int, first bool) {
	switch {
	case kind == 0 && h.log != nil: // the run ends
		h.emit(h.log, h.run0(), events.RunCompleted)
		h.must(h.log.Close())
		h.log = nil
	case kind <= 1 && h.log == nil: // another run begins; at first, the journal has lost its line
		run := h.run()
		if !first {
			place, err := events.RecordRun(context.Background(), asked{h.s}, h.of(), run, fixed, h.known)
			h.must(err)
			h.known = place.Stream
		}
		h.log = events.Create(h.s, h.of(), run, fixed)
		h.emit(h.log, run, events.RunStarted)
	case kind == 2 && !first:
		list, err := events.AppendJournal(context.Background(), h.s, h.of(), fixed, events.Event{Type: "approved", Task: "t"})
		h.must(err)
		h.wrote = append(h.wrote, fmt.Sprint("journal ", list[0].Seq))
	case kind == 3 && !first:
		id := fmt.Sprintf("0094fdc2-fa2f-7cc0-81d3-%012d", len(h.wrote)) // before all others
		log := events.Create(h.s, h.of(), id, fixed)
		h.emit(log, id, events.RunStarted)
		h.emit(log, id, events.RunCompleted)
		h.must(log.Close())
		_, err := events.AppendJournal(context.Background(), h.s, h.of(), fixed, events.Event{Type: events.RunRecorded, Data: &events.Data{Run: id, Reason: events.ReasonImported}})
		h.must(err)
	case h.log != nil:
		h.emit(h.log, h.run0(), events.TaskStarted)
	}
}

func (h *history) of() string { return cmp.Or(h.ws, ws) }

func (h *history) run0() string { return fmt.Sprintf("0194fdc2-fa2f-7cc0-81d3-%012d", h.runs) }

func nameOf(e *events.Event) string {
	if e.Run == "" {
		return fmt.Sprint("journal ", e.Seq)
	}
	return fmt.Sprint(e.Run, " ", e.Seq)
}

// A reader that stops anywhere, and continues from the cursor of the last event that it received, sees each event once,
// whatever is recorded meanwhile.
func TestCursor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{tb: t, s: mem.New()}
		for range rapid.IntRange(0, 8).Draw(t, "before the journal") {
			h.step(rapid.IntRange(0, 5).Draw(t, "kind"), true)
		}
		if h.log != nil { // runs that the journal has lost do not overlap with others
			h.step(0, true)
		}
		var seen []string
		at := events.Cursor{}
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			for range rapid.IntRange(0, 4).Draw(t, "steps") {
				h.step(rapid.IntRange(0, 5).Draw(t, "kind"), false)
			}
			most := rapid.IntRange(0, 6).Draw(t, "reads")
			for e, err := range events.ReadRecorded(context.Background(), h.s, events.Filter{Workspace: ws}, events.RecordedOptions{After: at}) {
				if err != nil {
					t.Fatal(err)
				}
				if most--; most < 0 {
					break
				}
				seen = append(seen, nameOf(&e))
				if at, err = events.ParseCursor(e.Cursor); err != nil {
					t.Fatal(err)
				}
			}
		}
		for e, err := range events.ReadRecorded(context.Background(), h.s, events.Filter{Workspace: ws}, events.RecordedOptions{After: at}) {
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, nameOf(&e))
		}
		// An import beside a run at work is repeated to a reader that stopped within it.
		seen = slices.DeleteFunc(seen, func(s string) bool { return strings.HasPrefix(s, "0094") })
		want := slices.DeleteFunc(slices.Clone(h.wrote), func(s string) bool { return strings.HasPrefix(s, "0094") })
		slices.Sort(seen)
		slices.Sort(want)
		if !slices.Equal(seen, want) {
			t.Fatalf("seen are\n%q\nwant\n%q", seen, want)
		}
	})
}

// An imported run with an older id is not skipped. It comes in the order of recording, also in a query.
func TestCursorOfImport(t *testing.T) {
	h := &history{tb: t, s: mem.New()}
	for _, kind := range []int{1, 0, 3, 2, 1, 4, 3, 0} {
		h.step(kind, false)
	}
	for name, list := range map[string]func() []string{
		"reader": func() (list []string) {
			for e, err := range events.ReadRecorded(t.Context(), h.s, events.Filter{Workspace: ws}, events.RecordedOptions{}) {
				h.must(err)
				list = append(list, nameOf(&e))
			}
			return list
		},
		"query": func() (list []string) {
			for e, err := range events.Query(t.Context(), h.s, events.Filter{Workspace: ws, Cursors: true}) {
				h.must(err)
				at, err := events.ParseCursor(e.Cursor)
				h.must(err)
				for next, err := range events.ReadRecorded(t.Context(), h.s, events.Filter{Workspace: ws}, events.RecordedOptions{After: at}) {
					h.must(err)
					if nameOf(&next) == nameOf(&e) {
						t.Errorf("%s comes again after its cursor %s", nameOf(&e), e.Cursor)
					}
				}
				list = append(list, nameOf(&e))
			}
			return list
		},
	} {
		got := list()
		if slices.Sort(got); len(got) != len(h.wrote) {
			t.Errorf("%s: got %q, want %q", name, got, h.wrote)
		}
	}
}

func TestFollowCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &history{tb: t, s: mem.New()}
		ctx, cancel := context.WithCancel(t.Context())
		var seen []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			for e, err := range events.ReadRecorded(ctx, h.s, events.Filter{Workspace: ws}, events.RecordedOptions{Latest: true, Follow: true}) {
				if err != nil {
					t.Error(err)
				}
				seen = append(seen, nameOf(&e))
			}
		}()
		for _, kind := range []int{1, 4, 2, 0, 2, 1, 4, 3, 4, 0, 1} {
			h.step(kind, false)
			synctest.Wait()
		}
		cancel()
		<-done
		if !slices.Equal(seen, h.wrote) {
			t.Errorf("seen are\n%q\nwant\n%q", seen, h.wrote)
		}
	})
}

// A follower of all workspaces sees what each reader of one sees: what exists, what is recorded later, and workspaces that
// begin meanwhile, with the cursors of each.
func TestFollowRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		all := map[string]*history{"": {tb: t, s: s}, "-b": {tb: t, s: s, ws: ws + "-b"}, "-late": {tb: t, s: s, ws: ws + "-late"}}
		for _, kind := range []int{1, 4, 2, 0} {
			all[""].step(kind, false)
			all["-b"].step(kind, false)
		}
		ctx, cancel := context.WithCancel(t.Context())
		seen, at := map[string][]string{}, map[string]events.Cursor{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for e, err := range events.ReadRecorded(ctx, s, events.Filter{Since: fixed()}, events.RecordedOptions{Follow: true}) {
				if err != nil {
					t.Error(err)
					continue
				}
				seen[e.Workspace] = append(seen[e.Workspace], nameOf(&e))
				if at[e.Workspace], err = events.ParseCursor(e.Cursor); err != nil {
					t.Error(err)
				}
			}
		}()
		synctest.Wait()
		for _, kind := range []int{1, 4, 2, 0, 2, 1, 4} {
			for _, h := range all {
				h.step(kind, false)
			}
			time.Sleep(time.Second) // by the bubble's clock: workspaces are looked for
			synctest.Wait()
		}
		cancel()
		<-done
		for name, h := range all {
			got := seen[ws+name]
			slices.Sort(got) // what was recorded beside a run before the follower began comes before or behind that run
			slices.Sort(h.wrote)
			if !slices.Equal(got, h.wrote) {
				t.Errorf("of %s are seen\n%q\nwant\n%q", ws+name, got, h.wrote)
			}
			for e, err := range events.ReadRecorded(t.Context(), s, events.Filter{Workspace: ws + name}, events.RecordedOptions{After: at[ws+name]}) {
				t.Errorf("behind the last cursor of %s comes %s, %v", ws+name, nameOf(&e), err)
			}
		}
	})
}

func TestParseCursor(t *testing.T) {
	for _, c := range []events.Cursor{{}, {Journal: 7}, {Journal: 7, Run: runID, Seq: 3}, {Run: runID}} {
		if got, err := events.ParseCursor(c.String()); err != nil || got != c {
			t.Errorf("%s is read as %+v, %v", c, got, err)
		}
	}
	for _, text := range []string{"", "c1", "c1.", "c1.x", "c1.-1", "c1.01", "c1.1.2", "c1.1.2.", "c1.1.x.r", "c1.1.-1.r", "c1.1.1.a b", "c2.1", "1.1", "c1.1.+2.r"} {
		if _, err := events.ParseCursor(text); !errors.Is(err, events.ErrCursor) {
			t.Errorf("%q: got %v, want ErrCursor", text, err)
		}
	}
}
