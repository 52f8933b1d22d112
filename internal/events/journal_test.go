package events_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/internal/events"
	"e3/refstore"
	"e3/refstore/fs"
	"e3/refstore/mem"
)

// journal returns the events of the journal after a number, and the reported damage.
func journal(tb interface{ Fatal(...any) }, s refstore.Streams, after int64) (list []events.Event, damage []error) {
	for e, err := range events.ReadJournal(context.Background(), s, ws, after) {
		var bad *events.JournalError
		switch {
		case errors.As(err, &bad):
			damage = append(damage, err)
		case err != nil:
			tb.Fatal(err)
		default:
			list = append(list, e)
		}
	}
	return list, damage
}

func journalStreams(tb interface{ Fatal(...any) }, s refstore.Streams) (keys []refstore.Key) {
	for key, err := range s.ListStreams(context.Background(), refstore.Query{Partition: events.JournalPartition(ws)}) {
		if err != nil {
			tb.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

func TestJournal(t *testing.T) {
	s := mem.New()
	if list, _ := journal(t, s, 0); list != nil {
		t.Fatalf("a journal that does not exist has %v", list)
	}
	got, err := events.AppendJournal(t.Context(), s, ws, fixed,
		events.Event{Type: "a", Run: "none", Data: &events.Data{Run: runID}}, events.Event{Type: "b", Time: epoch.Add(-time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.AppendJournal(t.Context(), s, ws, fixed, events.Event{Type: "c", Time: epoch.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	list, damage := journal(t, s, 0)
	if damage != nil || len(list) != 3 || got[0].Seq != 1 || got[1].Seq != 2 || got[1].Workspace != ws {
		t.Fatalf("appended %+v; read %+v, %v", got, list, damage)
	}
	for i, want := range []time.Time{epoch, epoch.Add(-time.Hour), epoch.Add(time.Hour)} {
		if e := list[i]; e.Seq != int64(i+1) || !e.Time.Equal(want) || e.Run != "" {
			t.Errorf("event %d is %+v, want the time %v", i+1, e, want)
		}
	}
	if list, _ := journal(t, s, 2); len(list) != 1 || list[0].Type != "c" {
		t.Errorf("after 2 comes %+v", list)
	}
	if runs, err := events.Runs(t.Context(), s, ""); err != nil || len(runs) != 0 {
		t.Errorf("the runs include the journal: %v, %v", runs, err)
	}
	if names, err := events.Journals(t.Context(), s); err != nil || len(names) != 1 || names[0] != ws {
		t.Errorf("journals of %v, %v", names, err)
	}
}

// Many writers, also in a folder, number their events without gaps, across several streams, and each writer learns its
// numbers.
func TestJournalWriters(t *testing.T) {
	folder, err := fs.Open(t.TempDir(), fs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]refstore.Streams{"mem": mem.New(), "folder": folder} {
		t.Run(name, func(t *testing.T) {
			const writers, each = 8, 20
			said := make([]string, writers*each*2+1)
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := range each {
						first := events.Event{Type: "x", Task: fmt.Sprint(w, i), Data: &events.Data{Message: strings.Repeat("m", 4<<10)}}
						got, err := events.AppendJournal(t.Context(), s, ws, time.Now, first, events.Event{Type: "y", Task: first.Task})
						if err != nil {
							t.Error(err)
							return
						}
						for _, e := range got {
							said[e.Seq] = e.Task
						}
					}
				})
			}
			wg.Wait()
			list, damage := journal(t, s, 0)
			if damage != nil || len(list) != 2*writers*each {
				t.Fatalf("%d events, %v", len(list), damage)
			}
			for i, e := range list {
				if e.Seq != int64(i+1) || e.Task != said[e.Seq] {
					t.Fatalf("event %d is %+v; its writer knows of %q", i+1, e, said[e.Seq])
				}
			}
			keys := journalStreams(t, s)
			if len(keys) < 3 {
				t.Errorf("all are in %v", keys)
			}
			for after := int64(0); after <= int64(len(list)); after += 39 {
				if rest, damage := journal(t, s, after); damage != nil || len(rest) != len(list)-int(after) {
					t.Fatalf("after %d come %d, %v", after, len(rest), damage)
				}
			}
		})
	}
}

// A process that dies while it appends leaves a line torn at any byte: later events are numbered without a gap, and
// none is taken for damage.
func TestJournalTorn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mem.New()
		var want []string
		for i := range rapid.IntRange(1, 12).Draw(t, "appends") {
			list := []events.Event{{Type: "x", Task: fmt.Sprint(i, "a")}, {Type: "x", Task: fmt.Sprint(i, "b")}}
			if rapid.Bool().Draw(t, "large") {
				list[0].Data = &events.Data{Message: strings.Repeat("m", 60<<10)}
			}
			writer := &tearing{Store: s}
			if rapid.Bool().Draw(t, "dies") {
				writer.keep = rapid.Float64Range(0, 1).Draw(t, "keeps")
				writer.tears = true
			}
			if _, err := events.AppendJournal(context.Background(), writer, ws, fixed, list...); err != nil && !errors.Is(err, errDied) {
				t.Fatal(err)
			} else if err == nil {
				want = append(want, list[0].Task, list[1].Task)
			}
		}
		if _, err := events.AppendJournal(context.Background(), s, ws, fixed, events.Event{Type: "x", Task: "last"}); err != nil {
			t.Fatal(err)
		}
		got, damage := journal(t, s, 0)
		if damage != nil {
			t.Fatalf("reported as damage: %v", damage)
		}
		n := 0
		for i, e := range got {
			if e.Seq != int64(i+1) {
				t.Fatalf("event %d is %+v", i+1, e)
			}
			if n < len(want) && e.Task == want[n] {
				n++
			}
		}
		if n != len(want) || got[len(got)-1].Task != "last" {
			t.Fatalf("got %+v, want among them %q", got, want)
		}
	})
}

// tearing is a store whose process dies in an append.
type tearing struct {
	*mem.Store
	tears bool
	keep  float64
}

var errDied = errors.New("killed")

func (s *tearing) Append(ctx context.Context, key refstore.Key, offset int64, data []byte) error {
	if !s.tears {
		return s.Store.Append(ctx, key, offset, data)
	}
	if err := s.Store.Append(ctx, key, offset, data[:int(s.keep*float64(len(data)))]); err != nil {
		return err
	}
	return errDied
}

// A damaged stream takes no events: they go to the next one. Its readable lines are read, and the damage is reported
// once.
func TestJournalDamaged(t *testing.T) {
	for name, harm := range map[string]func(data []byte) []byte{
		"in the middle": func(data []byte) []byte { data[len(data)/2] ^= 1; return data },
		"the last line": func(data []byte) []byte { data[len(data)-20] ^= 1; return data },
		"a line is out": func(data []byte) []byte {
			lines := strings.SplitAfter(string(data), "\n")
			return []byte(lines[0] + strings.Join(lines[2:], ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := mem.New()
			for i := range 5 {
				if _, err := events.AppendJournal(t.Context(), s, ws, fixed, events.Event{Type: "x", Task: fmt.Sprint(i + 1)}); err != nil {
					t.Fatal(err)
				}
			}
			key := journalStreams(t, s)[0]
			data := bytesOf(t, s, key)
			if err := errors.Join(s.Remove(t.Context(), key), s.Append(t.Context(), key, 0, harm(data))); err != nil {
				t.Fatal(err)
			}
			got, err := events.AppendJournal(t.Context(), s, ws, fixed, events.Event{Type: "x", Task: "6"})
			if err != nil || got[0].Seq != 6 {
				t.Fatalf("appended %+v, %v", got, err)
			}
			list, damage := journal(t, s, 0)
			if len(damage) != 1 || len(list) != 5 {
				t.Errorf("got %+v, and damage %v", list, damage)
			}
			for _, e := range list {
				if fmt.Sprint(e.Seq) != e.Task {
					t.Errorf("event %d is %+v", e.Seq, e)
				}
			}
			if lost, err := events.MendJournal(t.Context(), s, ws, fixed); err != nil || lost != 1 {
				t.Fatalf("mended: %d are lost, %v", lost, err)
			}
			list, damage = journal(t, s, 0)
			if damage != nil || len(list) != 7 || list[6].Type != events.JournalMended {
				t.Errorf("mended: %+v, %v", list, damage)
			}
		})
	}
}

func bytesOf(t *testing.T, s refstore.Streams, key refstore.Key) []byte {
	t.Helper()
	info, err := s.Size(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, info.Size)
	r, err := s.Open(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := r.Read(data); n != len(data) {
		t.Fatal(n, err)
	}
	return data
}

// Retention removes streams whose events are all old, but never the latest; readers continue with the rest.
func TestJournalRetention(t *testing.T) {
	s := mem.New()
	at := epoch
	for i := range 20 {
		at = epoch.Add(time.Duration(i) * time.Hour)
		_, err := events.AppendJournal(t.Context(), s, ws, func() time.Time { return at }, events.Event{Type: "x", Data: &events.Data{Message: strings.Repeat("m", 60<<10)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := events.CleanJournal(t.Context(), s, ws, epoch.Add(10*time.Hour)); err != nil {
		t.Fatal(err)
	}
	list, damage := journal(t, s, 0)
	if damage != nil || len(list) == 20 || list[0].Seq > 11 || list[len(list)-1].Seq != 20 {
		t.Errorf("left are %d from %d on; %v", len(list), list[0].Seq, damage)
	}
	if err := events.CleanJournal(t.Context(), s, ws, at.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	got, err := events.AppendJournal(t.Context(), s, ws, fixed, events.Event{Type: "x"})
	if err != nil || got[0].Seq != 21 {
		t.Errorf("numbers go on with %+v, %v", got, err)
	}
}

// A follower of a workspace reads each further part of its journal.
func TestFollowJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		ctx, cancel := context.WithCancel(t.Context())
		var got []int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for e, err := range events.ReadRecorded(ctx, s, events.Filter{Workspace: ws}, events.RecordedOptions{After: events.Cursor{Journal: 1}, Follow: true}) {
				if err != nil {
					t.Error(err)
				}
				got = append(got, e.Seq)
			}
		}()
		for range 6 {
			synctest.Wait()
			if _, err := events.AppendJournal(ctx, s, ws, fixed, events.Event{Type: "x", Data: &events.Data{Message: strings.Repeat("m", 60<<10)}}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		cancel()
		<-done
		if fmt.Sprint(got) != "[2 3 4 5 6]" {
			t.Errorf("got %v", got)
		}
	})
}

// asked is a store where each look is a request.
type asked struct{ *mem.Store }

func (s asked) Tail(ctx context.Context, key refstore.Key, n int64) ([]byte, refstore.StreamInfo, error) {
	return refstore.Tail(ctx, s.Store, key, n)
}

// listed counts the lists of streams.
type listed struct {
	asked
	n int
}

func (s *listed) ListStreams(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Key, error] {
	s.n++
	return s.asked.ListStreams(ctx, q)
}

// A run that knows which stream had the run before recorded looks for no other. If that one is not the latest any more, it is found out.
func TestKnownStream(t *testing.T) {
	mend := func(t *testing.T, s *mem.Store, first int64) {
		key := journalStreams(t, s)[0]
		if err := s.Append(t.Context(), key, size(t, s, key), []byte("damage\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := events.MendJournal(t.Context(), s, ws, fixed); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		happens func(t *testing.T, s *mem.Store, first int64)
		lists   int
	}{
		"nothing": {func(*testing.T, *mem.Store, int64) {}, 0},
		"others":  {func(t *testing.T, s *mem.Store, _ int64) { fill(t, s, 3) }, 0},
		"large":   {func(t *testing.T, s *mem.Store, _ int64) { fill(t, s, 300<<10/1000) }, 1},
		"mended":  {mend, 1},
		"removed": {func(t *testing.T, s *mem.Store, _ int64) {
			fill(t, s, 300<<10/1000)
			if err := events.CleanJournal(t.Context(), s, ws, epoch.Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}, 1},
		"not sealed after it was mended": {func(t *testing.T, s *mem.Store, first int64) {
			mend(t, s, first)
			key := journalStreams(t, s)[0]
			whole := content(t, s, key)
			if err := errors.Join(s.Remove(t.Context(), key), s.Append(t.Context(), key, 0, whole)); err != nil {
				t.Fatal(err)
			}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &listed{asked: asked{mem.New()}}
			place, err := events.RecordRun(t.Context(), s, ws, runID, fixed, 0)
			if err != nil || place != (events.Place{Seq: 1, Stream: 1}) {
				t.Fatalf("recorded at %+v, %v", place, err)
			}
			c.happens(t, s.Store, place.Stream)
			last, err := events.JournalEnd(t.Context(), s.Store, ws)
			if err != nil {
				t.Fatal(err)
			}
			s.n = 0
			next, err := events.RecordRun(t.Context(), s, ws, runID, fixed, place.Stream)
			if err != nil || next.Seq != last+1 || s.n != c.lists {
				t.Errorf("recorded at %+v after event %d, with %d lists, %v; want %d", next, last, s.n, err, c.lists)
			}
			if list, damage := journal(t, s, last); len(list) != 1 || damage != nil {
				t.Errorf("the journal goes on with %+v, %v", list, damage)
			}
		})
	}
}

// fill appends so many events of a kilobyte.
func fill(t *testing.T, s *mem.Store, n int) {
	t.Helper()
	for range n {
		if _, err := events.AppendJournal(t.Context(), s, ws, fixed, events.Event{Type: "a", Data: &events.Data{Message: strings.Repeat("m", 1000)}}); err != nil {
			t.Fatal(err)
		}
	}
}

func size(t *testing.T, s *mem.Store, key refstore.Key) int64 {
	t.Helper()
	info, err := s.Size(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size
}

func content(t *testing.T, s *mem.Store, key refstore.Key) []byte {
	t.Helper()
	data, _, err := refstore.Tail(t.Context(), s, key, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
