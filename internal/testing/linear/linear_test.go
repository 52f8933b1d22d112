package linear_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"e3/internal/testing/linear"
)

// A register that holds a number.
type write struct{ value int }
type read struct{}

var register = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		switch in := input.(type) {
		case write:
			return true, in.value
		default:
			return state == output, state
		}
	},
}

func one(any) string { return "the register" }

func TestSchedules(t *testing.T) {
	t.Setenv("E3_TEST_SEED", "7")
	t.Setenv("E3_TEST_SCHEDULES", "3")
	draw := func(every uint64) map[string]uint64 {
		var mu sync.Mutex
		drawn := map[string]uint64{}
		linear.Schedules(t, every, time.Minute, func(t *testing.T, _ context.Context, random *rand.Rand, _ *linear.History) {
			mu.Lock()
			defer mu.Unlock()
			name, _, _ := strings.Cut(t.Name()[strings.Index(t.Name(), "/"):], "#")
			drawn[name] = random.Uint64()
		})
		return drawn
	}
	all := draw(1)
	if again := draw(1); len(all) != 3 || !maps.Equal(all, again) || all["/seed=7"] == all["/seed=8"] {
		t.Errorf("two runs of three schedules drew %v and %v", all, again)
	}
	delete(all, "/seed=8")
	if other := draw(2); !maps.Equal(all, other) {
		t.Errorf("every other schedule drew %v, want %v", other, all)
	}
}

func TestHistory(t *testing.T) {
	for _, test := range []struct {
		name string
		open bool // the write has an unknown end
		want porcupine.CheckResult
	}{
		{"a write that ended was not read", false, porcupine.Illegal},
		{"a write that may never happen was not read", true, porcupine.Ok},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := linear.NewHistory()
			var after atomic.Bool
			h.Do(1, write{1}, func() (any, bool) { after.Store(true); return nil, test.open })
			if !after.Load() {
				t.Fatal("the operation was not done")
			}
			h.Do(2, read{}, func() (any, bool) { return 0, false })
			h.Do(2, read{}, func() (any, bool) { return 0, false })
			ops := h.Operations()
			if got := porcupine.CheckOperationsTimeout(register, ops, time.Second); got != test.want {
				t.Errorf("got %v, want %v: %v", got, test.want, ops)
			}
			if test.want == porcupine.Ok {
				linear.Check(t, ops, register, one)
			}
		})
	}
}
