package executions_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/tree"
)

// A command does not start on a damaged or missing input, and nothing is recorded. The error names the object, so that
// it can be made again.
func TestNoCommandReadsDamage(t *testing.T) {
	seed, count := objectstoretest.DamageSeed(), objectstoretest.DamageCount(60)
	t.Logf("seed %d, %d damages", seed, count)
	r := rand.New(rand.NewPCG(seed, 1))
	l := newLab(t)
	for i := range count {
		content := make([]byte, []int{1, 100, 5000, 600 << 10, 2 << 20}[r.IntN(5)])
		for j := range content {
			content[j] = byte(r.Uint32())
		}
		content = append(fmt.Appendf(nil, "%d: ", i), content...) // unique, so that there is no answer yet
		kind, top, victims := l.damageable(t, r, content)
		task := script("printf done > out")
		task.Inputs = []record.Input{{Name: "in", Path: "in", Kind: kind}}
		req := l.request(task, top)
		started := false
		req.Started = func(string, time.Time) { started = true }
		victim := victims[r.IntN(len(victims))]
		right, what := l.spoil(t, r, victim)

		_, err := l.Do(t.Context(), req)
		var corrupt *objectstore.CorruptError
		if !(errors.As(err, &corrupt) && corrupt.Want == victim) && !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("seed %d, damage %d: %v %s, %s: got %v, want *CorruptError or ErrNotFound of it", seed, i, kind, victim, what, err)
		}
		if started || len(l.all(t, keyOf(req))) > 0 {
			t.Errorf("seed %d, damage %d: %v, %s: a command has started, or something is on record", seed, i, kind, what)
		}
		l.restore(t, victim, right)
		if res := l.do(t, req); res.State != record.Success {
			t.Fatalf("seed %d, damage %d: on the right bytes it ended in %+v", seed, i, res)
		}
	}
}

// damageable stores content as an input of a random kind, and returns its objects.
func (l *lab) damageable(t *testing.T, r *rand.Rand, content []byte) (record.Kind, objectstore.Hash, []objectstore.Hash) {
	t.Helper()
	switch r.IntN(4) {
	case 0:
		data, err := value.Encode(string(bytes.ToValidUTF8(bytes.ReplaceAll(content[:min(len(content), 1000)], []byte{0}, []byte{1}), nil)))
		if err != nil {
			t.Fatal(err)
		}
		h := l.put(t, string(data))
		return record.KindValue, h, []objectstore.Hash{h}
	case 1:
		file := l.put(t, string(content))
		store := func(e tree.Entry) objectstore.Hash {
			data, err := tree.Encode(tree.Entries{e})
			if err != nil {
				t.Fatal(err)
			}
			return l.put(t, string(data))
		}
		sub := store(tree.Entry{Name: "f", Kind: tree.KindFile, Hash: file, Size: int64(len(content))})
		top := store(tree.Entry{Name: "sub", Kind: tree.KindDir, Hash: sub})
		return record.KindDir, top, []objectstore.Hash{file, sub, top}
	case 2:
		h := l.put(t, string(content))
		return record.KindExecutable, h, []objectstore.Hash{h}
	}
	h := l.put(t, string(content))
	return record.KindFile, h, []objectstore.Hash{h}
}

func (l *lab) objectFile(h objectstore.Hash) string {
	text := h.String()
	return filepath.Join(l.objects.Path(), text[:2], text[2:])
}

// spoil damages the file of an object and returns its former bytes.
func (l *lab) spoil(t *testing.T, r *rand.Rand, h objectstore.Hash) ([]byte, string) {
	t.Helper()
	right, err := os.ReadFile(l.objectFile(h))
	if err != nil {
		t.Fatal(err)
	}
	what, bad := objectstoretest.Spoil(r, right)
	l.restore(t, h, bad)
	return right, what
}

// restore writes an object's file, or removes it.
func (l *lab) restore(t *testing.T, h objectstore.Hash, b []byte) {
	t.Helper()
	if err := os.RemoveAll(l.objectFile(h)); err != nil {
		t.Fatal(err)
	}
	if b == nil {
		return
	}
	if err := os.WriteFile(l.objectFile(h), b, 0o444); err != nil {
		t.Fatal(err)
	}
}
