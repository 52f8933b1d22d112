package executions_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/executions"
	"e3/objectstore"
)

func hashes(t *testing.T, texts ...string) []objectstore.Hash {
	t.Helper()
	list := make([]objectstore.Hash, len(texts))
	for i, text := range texts {
		h, err := objectstore.ParseHash(text)
		if err != nil {
			t.Fatal(err)
		}
		list[i] = h
	}
	return list
}

func TestInputsHash(t *testing.T) {
	for _, test := range []struct {
		name   string
		inputs []string
		want   string
	}{
		{"none", nil, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		// The reference chose these folders for these inputs.
		{"one", []string{"c511eaed6e30129c1e938e26763a987da39139509f34fba7928a7ac9a52fab04"},
			"ff8d67fa989ee8f9a90eedd929e55ca6b619017c7e5c28023ea2881ff0f7029e"},
		{"two", []string{"c511eaed6e30129c1e938e26763a987da39139509f34fba7928a7ac9a52fab04", "bd26fd5b278efeaff61346806b06d8512ea704a5d89a4bd7577b19e4b18b7dee"},
			"92547650b80e5c830edb840fc305d32964d21709138cdfc8b197f9bf7d7f9314"},
		{"two others", []string{"bd26fd5b278efeaff61346806b06d8512ea704a5d89a4bd7577b19e4b18b7dee", "866da61000b42242ee171b6c2e6e42475b69ef99854c223545bb4e21a02456f8"},
			"50abbeb95bcbb0a7155bb37f892ea8803610572fa2e71b229e187801279dd279"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := executions.InputsHash(hashes(t, test.inputs...)).String(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// For any number of inputs, the hash is of the hex hashes in order, joined by a zero byte.
func TestInputsHashDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inputs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) objectstore.Hash {
			return objectstore.Sum(rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "content"))
		}), 0, 20).Draw(t, "inputs")
		texts := make([]string, len(inputs))
		for i, h := range inputs {
			texts[i] = h.String()
		}
		want := objectstore.Sum([]byte(strings.Join(texts, "\x00")))
		if got := executions.InputsHash(inputs); got != want {
			t.Fatalf("%d inputs: got %s, want %s", len(inputs), got, want)
		}
	})
}

func TestParseKey(t *testing.T) {
	k := executions.NewKey(objectstore.Sum([]byte("task")), []objectstore.Hash{objectstore.Sum([]byte("input"))})
	if got, ok := executions.ParseKey(k.String()); !ok || got != k {
		t.Errorf("ParseKey(%s) is %v, %v", k, got, ok)
	}
	hash := k.Task.String()
	for _, s := range []string{"", "/", hash, hash + "/", "/" + hash, hash + "/" + hash + "/", hash + "/" + hash[1:], strings.ToUpper(k.String()), hash + "\\" + hash} {
		if got, ok := executions.ParseKey(s); ok {
			t.Errorf("ParseKey(%q) is %v", s, got)
		}
	}
}

func TestParseID(t *testing.T) {
	const id = "01a1fa79-f9af-7978-9210-86d7c19ce1c5"
	at, err := executions.ParseID(id)
	if want := time.UnixMilli(0x01a1fa79f9af).UTC(); err != nil || !at.Equal(want) {
		t.Errorf("got %v, %v, want %v", at, err, want)
	}
	for _, test := range []struct{ name, id string }{
		{"empty", ""},
		{"version 4", "01a1fa79-f9af-4978-9210-86d7c19ce1c5"},
		{"wrong variant", "01a1fa79-f9af-7978-1210-86d7c19ce1c5"},
		{"upper case", strings.ToUpper(id)},
		{"no hyphens", strings.ReplaceAll(id, "-", "")},
		{"braces", "{" + id + "}"},
		{"URN", "urn:uuid:" + id},
		{"cut short", id[:35]},
		{"more", id + "0"},
		{"not hex", "01a1fa79-f9af-7978-9210-86d7c19ce1cg"},
		{"temporary file", ".tmp-1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if at, err := executions.ParseID(test.id); err == nil {
				t.Errorf("%q is taken, made at %v", test.id, at)
			}
		})
	}
}

// Ids increase in the order in which they are made, on any goroutine of the process.
func TestNewIDIncreases(t *testing.T) {
	const workers, each = 8, 2000
	var mu sync.Mutex
	var last string
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var mine string
			for i := range each {
				// Half of the ids are made under the lock, where their order is known.
				if i%2 == 0 {
					mu.Lock()
				}
				id, err := executions.NewID()
				if err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					if id <= last {
						t.Errorf("%s was made after %s", id, last)
					}
					last = id
				} else {
					mu.Lock()
				}
				if seen[id] {
					t.Errorf("%s was made twice", id)
				}
				seen[id] = true
				mu.Unlock()
				if id <= mine {
					t.Errorf("%s was made after %s", id, mine)
				}
				mine = id
			}
		})
	}
	wg.Wait()
}

func TestNewIDTellsTheTime(t *testing.T) {
	before := time.Now().Truncate(time.Millisecond)
	at, err := executions.ParseID(newID(t))
	if err != nil {
		t.Fatal(err)
	}
	if at.Before(before) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("an id made at %v says %v", before, at)
	}
}
