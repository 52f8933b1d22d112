package lease_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"e3/refstore"
)

// TestModel compares the answers that several processes get with a model that knows each holder. Calls fail before and
// after they take effect, and processes are disconnected, killed and closed.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			m := &model{t: t, w: newWorld(t), held: make(map[string][]modelHold)}
			for range 3 {
				m.start(rt)
			}
			defer func() {
				for _, p := range m.processes {
					p.Close()
				}
			}()
			rt.Repeat(rapid.StateMachineActions(m))
		})
	})
}

type model struct {
	t         *testing.T
	w         *world
	processes []*modelProcess
	held      map[string][]modelHold // in the order of taking
	count     int
	owed      bool // a taker has ended before it handled the holds that it took over, so the next one gets their texts
}

type modelProcess struct {
	*machine
	cut    bool
	wasCut bool
	failed bool // one of its calls has failed, so the model does not know what it holds
}

type modelHold struct {
	by     *modelProcess
	lock   refstore.Lock
	text   string
	shared bool
}

func (m *model) start(*rapid.T) {
	m.count++
	m.processes = append(m.processes, &modelProcess{machine: m.w.on(fmt.Sprint("host", m.count%2))})
}

func (m *model) process(t *rapid.T) *modelProcess {
	return m.processes[rapid.IntRange(0, len(m.processes)-1).Draw(t, "process")]
}

// Check finds no lost session that could have reached the store.
func (m *model) Check(t *rapid.T) {
	for i, p := range m.processes {
		if p.lost() && !p.wasCut {
			t.Fatalf("process %d is lost, though it was never cut off", i)
		}
	}
}

// Take takes a lock or claim.
func (m *model) Take(t *rapid.T) {
	p := m.process(t)
	what := rapid.SampledFrom([]string{"claim 1", "claim 2", "lock 1", "lock 2"}).Draw(t, "what")
	if p.cut {
		t.Skip("its calls would hang")
	}
	m.count++
	h := modelHold{by: p, text: fmt.Sprint("hold ", m.count), shared: what[0] == 'l' && rapid.Bool().Draw(t, "shared")}
	fault := rapid.SampledFrom([]string{"", "", "", "before", "after"}).Draw(t, "fault")
	fail := func(op string, key refstore.Key) error {
		if op == "put" && key.Partition != "LEASE/sessions" {
			return errFault
		}
		return nil
	}
	switch fault {
	case "before":
		p.wire.fail(fail, nil)
	case "after":
		p.wire.fail(nil, fail)
	}
	lock, err := p.take(m.t.Context(), what, h.shared, h.text)
	p.wire.fail(nil, nil)
	var locked *refstore.LockedError
	refused := errors.Is(err, refstore.ErrClaimed) || errors.As(err, &locked)
	switch {
	case errors.Is(err, refstore.ErrLost):
		if !p.lost() {
			t.Fatalf("%s: %v, but Lost is open", what, err)
		}
		return
	case fault != "" && errors.Is(err, errFault):
		p.failed = true
		return
	case err != nil && !refused:
		t.Fatalf("%s: %v", what, err)
	}
	if p.lost() {
		t.Fatalf("%s: a process that is lost got %v", what, err)
	}
	for _, other := range m.held[what] {
		if h.shared && other.shared {
			continue
		}
		living := !m.w.dead[other.by.pid] && !other.by.cut && other.by.Held() == nil
		if living && !refused {
			t.Fatalf("%s was given to %q, and %q has it", what, h.text, other.text)
		}
		if locked != nil && living && other.by == p && locked.Pending != 0 {
			t.Fatalf("%s is held by this process, and reported as undecided for %v", what, locked.Pending)
		}
	}
	if refused {
		unknown := slices.ContainsFunc(m.processes, func(p *modelProcess) bool { return p.failed })
		if len(m.held[what]) == 0 && !unknown {
			t.Fatalf("%s is free, and was refused: %v", what, err)
		}
		return
	}
	if len(m.held[what]) == 0 && lock.Previous() != nil && !m.owed && !slices.ContainsFunc(m.processes, func(p *modelProcess) bool { return p.failed }) {
		t.Fatalf("%s was free, and was taken over from %q", what, lock.Previous())
	}
	h.lock = lock
	m.held[what] = slices.DeleteFunc(m.held[what], func(other modelHold) bool { return !h.shared || !other.shared })
	m.held[what] = append(m.held[what], h)
}

// Release releases a hold. If it was taken over meanwhile, it stays.
func (m *model) Release(t *rapid.T) {
	what := rapid.SampledFrom([]string{"claim 1", "claim 2", "lock 1", "lock 2"}).Draw(t, "what")
	if len(m.held[what]) == 0 {
		t.Skip("nothing is held")
	}
	h := m.held[what][rapid.IntRange(0, len(m.held[what])-1).Draw(t, "hold")]
	if h.by.cut {
		t.Skip("its calls would hang")
	}
	if h.by.lost() || m.w.dead[h.by.pid] {
		t.Skip("it is over")
	}
	if rapid.Bool().Draw(t, "answer lost") {
		h.by.wire.fail(nil, func(op string, _ refstore.Key) error {
			if op == "delete" {
				return errFault
			}
			return nil
		})
	}
	err := h.lock.Unlock()
	h.by.wire.fail(nil, nil)
	if err != nil {
		t.Fatalf("release of %s: %v", what, err)
	}
	m.held[what] = slices.DeleteFunc(m.held[what], func(other modelHold) bool { return other.text == h.text })
}

// Look reads the holder of a lock.
func (m *model) Look(t *rapid.T) {
	p := m.process(t)
	if p.cut {
		t.Skip("its calls would hang")
	}
	what := rapid.SampledFrom([]string{"lock 1", "lock 2"}).Draw(t, "what")
	text, held, err := p.Holder(m.t.Context(), what)
	if err != nil {
		t.Fatalf("holder of %s: %v", what, err)
	}
	for _, h := range m.held[what] {
		if !m.w.dead[h.by.pid] && !h.by.cut && h.by.Held() == nil && !held {
			t.Fatalf("%s is held by %q, and is said to be free", what, h.text)
		}
	}
	known := slices.ContainsFunc(m.held[what], func(h modelHold) bool { return h.text == string(text) })
	if held && !known && !slices.ContainsFunc(m.processes, func(p *modelProcess) bool { return p.failed }) {
		t.Fatalf("%s is said to be held by %q, want one of %d", what, text, len(m.held[what]))
	}
}

// Wait lets time pass.
func (m *model) Wait(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, ttl / 3, ttl, 2 * ttl}).Draw(t, "time"))
}

// Cut disconnects a process, or reconnects it.
func (m *model) Cut(t *rapid.T) {
	p := m.process(t)
	if p.cut {
		p.wire.mend()
	} else {
		p.wire.cut()
		p.wasCut = true
	}
	p.cut = !p.cut
}

// Replace ends a process, orderly or not, and starts another.
func (m *model) Replace(t *rapid.T) {
	i := rapid.IntRange(0, len(m.processes)-1).Draw(t, "process")
	p := m.processes[i]
	closed := !p.cut && !p.lost() && rapid.Bool().Draw(t, "in good order")
	if closed {
		if err := p.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		for what, holds := range m.held {
			for _, h := range holds {
				m.owed = m.owed || h.by == p && h.lock.Previous() != nil
			}
			m.held[what] = slices.DeleteFunc(m.held[what], func(h modelHold) bool { return h.by == p })
		}
	} else {
		if !p.cut {
			m.w.kill(p.machine)
		}
		m.w.mu.Lock()
		m.w.dead[p.pid] = true
		m.w.mu.Unlock()
	}
	m.start(t)
	m.processes[i] = m.processes[len(m.processes)-1]
	m.processes = m.processes[:len(m.processes)-1]
}
