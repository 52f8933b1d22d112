package gc

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"e3/executions"
	"e3/objectstore"
)

// modelled is an execution as the model of the rules sees it.
type modelled struct {
	id, at    int
	group     string
	good      bool
	protected bool
	blobs     []int // its objects; blob n has n+1 bytes
}

// TestRulesAgainstModel compares the executions that the rules remove with a literal model of the rules, for random
// executions.
func TestRulesAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) modelled {
			return modelled{
				at: rapid.IntRange(0, 20).Draw(rt, "at"), group: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "group"),
				good: rapid.Bool().Draw(rt, "good"), protected: rapid.IntRange(0, 3).Draw(rt, "protected") == 0,
				blobs: rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 0, 3, rapid.ID[int]).Draw(rt, "blobs"),
			}
		}), 0, 12).Draw(rt, "executions")
		order := rapid.Permutation(indices(len(all))).Draw(rt, "ids")
		for i := range all {
			all[i].id = order[i]
		}
		rules := Rules{
			OlderThan: time.Duration(rapid.IntRange(0, 20).Draw(rt, "older than")) * time.Millisecond,
			KeepLast:  int64(rapid.IntRange(0, 3).Draw(rt, "keep last")),
			MaxSize:   int64(rapid.IntRange(0, 25).Draw(rt, "max size")),
		}
		got, want := apply(all, rules), model(all, rules)
		if !slices.Equal(got, want) {
			rt.Fatalf("%+v takes out %v, want %v\nof %+v", rules, got, want, all)
		}
	})
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

const modelNow = 20 // ms

// apply applies the rules to a pool, and returns the ids to remove.
func apply(all []modelled, rules Rules) []int {
	p := &pool{}
	held := map[int]bool{}
	hold := func(m *modelled) (more int64) {
		for _, b := range m.blobs {
			if !held[b] {
				held[b] = true
				more += int64(b + 1)
			}
		}
		return more
	}
	for i := range all {
		c := candidate{group: p.group(all[i].group), at: int64(all[i].at), good: all[i].good}
		binary.BigEndian.PutUint64(c.id[:], uint64(all[i].id))
		if all[i].protected {
			c.shield = ByPin
			hold(&all[i])
		}
		p.list = append(p.list, c)
	}
	if rules.OlderThan > 0 {
		p.byAge(time.UnixMilli(modelNow), rules.OlderThan)
	}
	if rules.KeepLast > 0 {
		p.byNumber(rules.KeepLast)
	}
	if rules.MaxSize > 0 {
		if err := p.bySize(rules.MaxSize, func(i int32) (int64, error) { return hold(&all[i]), nil }); err != nil {
			panic(err)
		}
	}
	var goes []int
	for i := range p.list {
		if p.list[i].rule != stays {
			goes = append(goes, all[i].id)
		}
	}
	slices.Sort(goes)
	return goes
}

// model applies the rules literally.
func model(all []modelled, rules Rules) []int {
	gone := map[int]bool{}
	for i := range all {
		m := &all[i]
		if rules.OlderThan > 0 && time.Duration(modelNow-m.at)*time.Millisecond > rules.OlderThan {
			gone[m.id] = true
		}
		if rules.KeepLast > 0 {
			// Among executions of the same task: the number of later successes, and whether a kept one is later.
			var later int64
			oldestKept := -1
			var successes []int
			for j := range all {
				if all[j].group == m.group && all[j].good {
					successes = append(successes, all[j].id)
					if all[j].id > m.id {
						later++
					}
				}
			}
			slices.Sort(successes)
			if n := len(successes); n > 0 {
				oldestKept = successes[max(0, n-int(rules.KeepLast))]
			}
			if m.good && later >= rules.KeepLast || !m.good && m.id < oldestKept {
				gone[m.id] = true
			}
		}
		if m.protected {
			delete(gone, m.id)
		}
	}
	// Oldest first, until the rest fits.
	for rules.MaxSize > 0 {
		protected, cached := map[int]bool{}, map[int]bool{}
		oldest := -1
		for i := range all {
			m := &all[i]
			for _, b := range m.blobs {
				if m.protected {
					protected[b] = true
				} else if !gone[m.id] {
					cached[b] = true
				}
			}
			if !m.protected && !gone[m.id] && (oldest < 0 || m.at < all[oldest].at || m.at == all[oldest].at && m.id < all[oldest].id) {
				oldest = i
			}
		}
		var size int64
		for b := range cached {
			if !protected[b] {
				size += int64(b + 1)
			}
		}
		if size <= rules.MaxSize {
			break
		}
		gone[all[oldest].id] = true
	}
	var goes []int
	for id := range gone {
		goes = append(goes, id)
	}
	slices.Sort(goes)
	return goes
}

func TestRulesThatMakeNoSense(t *testing.T) {
	for _, r := range []Rules{{}, {OlderThan: -1}, {KeepLast: -1}, {MaxSize: -1, KeepLast: 1}} {
		if err := r.Validate(); err == nil {
			t.Errorf("%+v is taken", r)
		}
	}
}

func TestReasons(t *testing.T) {
	day := 24 * time.Hour
	r := Rules{OlderThan: 30 * day, KeepLast: 5, MaxSize: 1000}
	for by, want := range map[rule]string{tooOld: "older than 30d", tooMany: "not among the last 5", tooLarge: "beyond the size of 1000 bytes"} {
		if got := r.reason(by); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for d, want := range map[time.Duration]string{90 * time.Minute: "1h30m", 36 * time.Hour: "36h", 2 * time.Second: "2s", 10 * time.Minute: "10m"} {
		if got := days(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

// Places distinguish equal ids under different keys, and different ids under the same key.
func TestPlaces(t *testing.T) {
	seen := map[place]string{}
	for i := range 4 {
		for j := range 4 {
			for n := range 4 {
				var k = keyFor(byte(i), byte(j))
				id := uuid.UUID{byte(n)}
				p := placeOf(k, id)
				name := fmt.Sprint(i, j, n)
				if other, taken := seen[p]; taken {
					t.Errorf("%s and %s share a place", name, other)
				}
				seen[p] = name
			}
		}
	}
}

func keyFor(task, inputs byte) executions.Key {
	return executions.Key{Task: objectstore.Sum([]byte{task}), Inputs: objectstore.Sum([]byte{100 + inputs})}
}
