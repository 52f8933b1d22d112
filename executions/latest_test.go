package executions_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"e3/executions"
	"e3/internal/format/record"
)

// idAt is an id made at a time.
func idAt(t *testing.T, at time.Time) string {
	t.Helper()
	id := uuid.MustParse(newID(t))
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(id[:6], ms[2:])
	return id.String()
}

// A forced execution is the latest of its key even if the clock of an earlier one was ahead. Otherwise the earlier one
// would still answer.
func TestForcedIsTheLatest(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour, 20 * time.Hour, 100 * 365 * 24 * time.Hour} {
		l := newLab(t)
		req := l.request(script("echo new >out"))
		old := idAt(t, time.Now().Add(ahead))
		began := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
		l.record(t, keyOf(req), &record.Status{
			State: record.Success, ExecutionID: old, OutputHash: l.put(t, "old\n").String(), StartedAt: began, CompletedAt: began,
		})
		req.Force = true
		before := time.Now().Truncate(time.Millisecond)
		last := old
		for range 3 {
			res := l.do(t, req)
			if res.ExecutionID <= last {
				t.Fatalf("%v ahead: the id %s is not greater than %s", ahead, res.ExecutionID, last)
			}
			last = res.ExecutionID
		}
		a, err := l.Lookup(t.Context(), keyOf(req))
		if err != nil || a.Hit == nil || a.Hit.ExecutionID != last {
			t.Fatalf("%v ahead: the answer is %+v, %v, want %s", ahead, a.Hit, err, last)
		}
		if at := a.Hit.Status.StartedAt; at.Before(before) || at.After(time.Now()) {
			t.Errorf("%v ahead: its record says that it began at %v", ahead, at)
		}
	}
}

// The same holds for an execution that was not forced, beside executions that are no answer.
func TestNewIsTheLatest(t *testing.T) {
	l := newLab(t)
	req := l.request(script("echo new >out"))
	old := idAt(t, time.Now().Add(time.Hour))
	l.record(t, keyOf(req), &record.Status{
		State: record.Failed, ExecutionID: old, ExitCode: 1, StartedAt: time.Now(), CompletedAt: time.Now(),
	})
	if res := l.do(t, req); res.ExecutionID <= old {
		t.Errorf("the id %s is not greater than %s", res.ExecutionID, old)
	}
}

// Every id but the last has a greater one, and no two callers get the same.
func TestIDsAfter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var raw uuid.UUID
		copy(raw[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(rt, "id"))
		raw[6], raw[8] = raw[6]&0x0f|0x70, raw[8]&0x3f|0x80
		if rapid.Bool().Draw(rt, "counter is full") {
			raw[6], raw[7] = 0x7f, 0xff
		}
		after := raw.String()
		one, err := executions.NewIDAfter(after)
		if err != nil {
			if raw[0] == 0xff {
				return // there may be none
			}
			rt.Fatal(err)
		}
		other, err := executions.NewIDAfter(after)
		if err != nil {
			rt.Fatal(err)
		}
		for _, id := range []string{one, other} {
			if _, err := executions.ParseID(id); err != nil || id <= after {
				rt.Fatalf("%s after %s: %v", id, after, err)
			}
		}
		if one == other {
			rt.Fatalf("%s twice", one)
		}
	})
	if id, err := executions.NewIDAfter("ffffffff-ffff-7fff-bfff-ffffffffffff"); err == nil {
		t.Errorf("after the last id comes %s", id)
	}
}
