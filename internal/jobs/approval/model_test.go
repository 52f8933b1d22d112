package approval_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/internal/jobs/approval"
	"e3/refstore"
	"e3/refstore/mem"
)

// mortal is the store and the journal of a process that dies after a number of requests. The last request may take
// effect without an answer.
type mortal struct {
	refstore.Store
	journal   *lines
	remaining int  // requests before its death; less than 0: it lives
	done      bool // the last request takes effect
}

var errDied = errors.New("the process is dead")

// step counts a request. It tells whether the request takes effect, and whether it is answered.
func (m *mortal) step() (takes, heard bool) {
	if m.remaining < 0 {
		return true, true
	}
	if m.remaining == 0 {
		return false, false
	}
	m.remaining--
	return m.remaining > 0 || m.done, m.remaining > 0
}

func (m *mortal) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	if _, heard := m.step(); !heard {
		return refstore.Record{}, errDied
	}
	return m.Store.Get(ctx, key, fields...)
}

func (m *mortal) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	if _, heard := m.step(); !heard {
		return func(yield func(refstore.Record, error) bool) { yield(refstore.Record{}, errDied) }
	}
	return m.Store.List(ctx, q)
}

func (m *mortal) Put(ctx context.Context, rec refstore.Record) (version refstore.Version, err error) {
	takes, heard := m.step()
	if takes {
		version, err = m.Store.Put(ctx, rec)
	}
	if !heard {
		return "", errDied
	}
	return version, err
}

func (m *mortal) Delete(ctx context.Context, key refstore.Key, version refstore.Version) (err error) {
	takes, heard := m.step()
	if takes {
		err = m.Store.Delete(ctx, key, version)
	}
	if !heard {
		return errDied
	}
	return err
}

func (m *mortal) Next(ctx context.Context, ws string) (int64, error) {
	if _, heard := m.step(); !heard {
		return 0, errDied
	}
	return m.journal.Next(ctx, ws)
}

func (m *mortal) Tell(ctx context.Context, b *approval.Block, from int64) (err error) {
	takes, heard := m.step()
	if takes {
		err = m.journal.Tell(ctx, b, from)
	}
	if !heard {
		return errDied
	}
	return err
}

// world is the model's knowledge: the records, and the history of each content.
type world struct {
	t       *rapid.T
	store   *mem.Store
	journal *lines
	living  *approval.Blocks
	now     func() time.Time
	runs    int
	ran     map[string][]string // executions by task and content; the suspended ones end in "s"
}

var modelTasks, modelContents = []string{"a", "a/b"}, []string{content("a"), content("b")}

// process is a process that may die after some requests.
func (w *world) process(mayDie bool) (*approval.Blocks, *mortal) {
	m := &mortal{Store: w.store, journal: w.journal, remaining: -1}
	if mayDie && rapid.IntRange(0, 2).Draw(w.t, "dies") == 0 {
		m.remaining, m.done = rapid.IntRange(1, 8).Draw(w.t, "after"), rapid.Bool().Draw(w.t, "unheard")
	}
	return approval.New(m, approval.Options{Journal: m, Now: w.now}), m
}

// records returns the stored blocks, by task and key.
func (w *world) records() map[string]approval.Block {
	found := map[string]approval.Block{}
	for b, err := range w.living.List(context.Background(), "prod", "") {
		if err != nil {
			w.t.Fatal(err)
		}
		found[b.Task+" "+b.Key] = b
	}
	return found
}

func (w *world) question(fresh bool) approval.Question {
	w.runs++
	q := approval.Question{
		Workspace: "prod", Run: fmt.Sprintf("0197f3c1-0000-7000-8000-%012d", w.runs), Task: rapid.SampledFrom(modelTasks).Draw(w.t, "task"),
		Key: rapid.SampledFrom(modelContents).Draw(w.t, "content"), Review: true, Fresh: fresh,
	}
	if ran := w.ran[q.Task+" "+q.Key]; len(ran) > 0 {
		if q.Latest = ran[len(ran)-1]; !fresh && strings.HasSuffix(q.Latest, "s") {
			q.Suspended = q.Latest
		}
	}
	return q
}

// asked checks the effect of a question on the records.
func (w *world) asked(q approval.Question, before, after map[string]approval.Block) {
	at := q.Task + " " + q.Key
	for name := range maps.Keys(before) {
		was, is := before[name], after[name]
		switch {
		case was.Task != q.Task:
			if is != was {
				w.t.Fatalf("the question about %s has changed %+v to %+v", q.Task, was, is)
			}
		case name != at:
			if is.ID != was.ID && is.ID != "" || is.ID == "" && (was.Status == approval.Approved || was.Status == approval.Rejected) ||
				is.ID != "" && is.Status != was.Status && (was.Status != approval.Pending || is.Status != approval.Closed) {
				w.t.Fatalf("the question about %s has changed a block on other inputs from %+v to %+v", q.Task, was, is)
			}
		case is.ID == was.ID:
			closed := q.Fresh && is.Status == approval.Closed
			if is.Status != was.Status && !closed || is.Key != was.Key {
				w.t.Fatalf("the question has changed %+v to %+v", was, is)
			}
		case is.Status != approval.Pending:
			w.t.Fatalf("the question has made %+v", is)
		case q.Fresh || was.Status == approval.Closed:
		case was.Status == approval.Approved && !was.Acted.IsZero() && q.Suspended != "" && is.Step == was.Resume() && is.Execution == q.Suspended:
		default:
			w.t.Fatalf("it was asked twice: %+v, then %+v; latest is %s", was, is, q.Latest)
		}
	}
}

// agrees checks that the journal has the history of each block, step by step and once.
func (w *world) agrees(calm bool) {
	latest := map[string]approval.Status{}
	for i, line := range w.journal.list {
		if slices.Contains(w.journal.list[:i], line) {
			w.t.Fatalf("the journal says twice %q", line)
		}
		words := strings.Split(line, " ")
		id, is := words[1], approval.Status(words[2])
		was, ok := latest[id]
		if !ok {
			was = approval.Pending
		}
		decided := was == approval.Approved || was == approval.Rejected
		if is == was || is == approval.Pending && !decided || was == approval.Closed || decided && is != approval.Pending && is != approval.Closed {
			w.t.Fatalf("the journal says %q after %q", line, was)
		}
		latest[id] = is
	}
	for _, b := range w.records() {
		was, ok := latest[b.ID]
		if !ok {
			was = approval.Pending
		}
		if (calm || !b.Acted.IsZero()) && was != b.Status {
			w.t.Fatalf("the journal ends with %q for %+v", was, b)
		}
	}
}

// Whichever process dies: no task is asked about twice on the same inputs, no decision is lost, none counts for other
// inputs, and each is in the journal, once, before a run acts on it.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, store: mem.New(), journal: &lines{}, ran: map[string][]string{}, now: clock()}
		w.living, _ = w.process(false)
		ctx := context.Background()
		died := func(err error) bool { return errors.Is(err, errDied) }
		decide := func(name string, change func(*approval.Blocks, *approval.Block) (approval.Block, bool, error), allowed func(was, is approval.Block) bool) {
			before := w.records()
			if len(before) == 0 {
				t.Skip("nothing is on record")
			}
			at := rapid.SampledFrom(slices.Sorted(maps.Keys(before))).Draw(t, "block")
			was := before[at]
			b, _ := w.process(true)
			got, changed, err := change(b, &was)
			after := w.records()
			var late *approval.ResolvedError
			if err != nil && !died(err) && !errors.As(err, &late) {
				t.Fatalf("%s %+v: %v", name, was, err)
			}
			if is := after[at]; is.ID != was.ID || is.Status != was.Status && !allowed(was, is) {
				t.Fatalf("%s: %+v became %+v", name, was, is)
			} else if err == nil && (got.Status != is.Status || changed != (is.Status != was.Status)) {
				t.Fatalf("%s: it is %+v, and was said to be %+v, %v", name, is, got, changed)
			}
			if delete(after, at); len(after) != len(before)-1 {
				t.Fatalf("%s: there are %d other blocks, there were %d", name, len(after), len(before)-1)
			}
			w.agrees(false)
		}
		actions := map[string]func(*rapid.T){
			"ask": func(*rapid.T) {
				q := w.question(rapid.IntRange(0, 5).Draw(t, "fresh") == 0)
				before := w.records()
				b, _ := w.process(true)
				got, err := b.Ask(ctx, q)
				if err != nil && !died(err) {
					t.Fatal(err)
				}
				w.asked(q, before, w.records())
				if err == nil {
					is := w.records()[q.Task+" "+q.Key]
					if got != is || got.Key != q.Key || got.Run != q.Run || got.Status != approval.Pending && got.Acted.IsZero() {
						t.Fatalf("asked, it is %+v, and was said to be %+v", is, got)
					}
				}
				w.agrees(false)
				if err == nil && got.Status == approval.Approved { // the task runs
					id := fmt.Sprintf("e%06d%s", w.runs, rapid.SampledFrom([]string{"", "s"}).Draw(t, "suspends"))
					w.ran[q.Task+" "+q.Key] = append(w.ran[q.Task+" "+q.Key], id)
				}
			},
			"settle": func(*rapid.T) {
				w.runs++
				task, before := rapid.SampledFrom(modelTasks).Draw(t, "settled"), w.records()
				b, _ := w.process(true)
				err := b.Settle(ctx, "prod", fmt.Sprintf("0197f3c1-0000-7000-8000-%012d", w.runs), func(name string) bool { return name == task })
				if err != nil && !died(err) {
					t.Fatal(err)
				}
				after := w.records()
				for at, was := range before {
					void := was.Task == task && (was.Status == approval.Pending || was.Status == approval.Closed)
					switch is := after[at]; {
					case is.ID == was.ID && is.Status == was.Status && (!void || err != nil):
					case !void || err == nil && is.ID != "" || is.ID != "" && is.Status != approval.Closed:
						t.Fatalf("settled, %+v became %+v", was, is)
					}
				}
				w.agrees(false)
			},
			"approve or reject": func(*rapid.T) {
				r := approval.Resolution{Approve: rapid.Bool().Draw(t, "yes"), By: "ann"}
				decide("decide", func(b *approval.Blocks, was *approval.Block) (approval.Block, bool, error) {
					return b.Resolve(ctx, was, r)
				},
					func(was, is approval.Block) bool {
						return was.Status == approval.Pending && is.Status == map[bool]approval.Status{true: approval.Approved, false: approval.Rejected}[r.Approve]
					})
			},
			"withdraw": func(*rapid.T) {
				r := approval.Resolution{Approve: rapid.Bool().Draw(t, "yes"), By: "bob"}
				decide("withdraw", func(b *approval.Blocks, was *approval.Block) (approval.Block, bool, error) {
					return b.Withdraw(ctx, was, r)
				},
					func(was, is approval.Block) bool {
						acted := was.Status == approval.Approved && !was.Acted.IsZero()
						return is.Status == approval.Pending && (was.Status == approval.Approved) == r.Approve && was.Status != approval.Closed && !acted
					})
			},
		}
		t.Repeat(actions)
		for _, task := range modelTasks { // a live process records all changes that the dead ones have not
			for _, key := range modelContents {
				if b, ok := w.records()[task+" "+key]; ok {
					w.runs++
					q := approval.Question{Workspace: "prod", Run: fmt.Sprintf("0197f3c1-0000-7000-8000-%012d", w.runs), Task: task, Key: key, Review: true}
					if _, err := w.living.Ask(ctx, q); err != nil {
						t.Fatalf("%+v: %v", b, err)
					}
				}
			}
		}
		for _, b := range w.records() {
			if b.Status == approval.Approved || b.Status == approval.Rejected {
				w.agrees(false)
			}
		}
	})
}
