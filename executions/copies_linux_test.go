//go:build amd64 || arm64

package executions_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// TestCopiedAgain: what commands in the open room had copied although an earlier one had it is counted, and nothing else:
// not the first copy, not what a closed room shows in its place, not a checkout that is used again, not what is small.
func TestCopiedAgain(t *testing.T) {
	const size = 2 << 20
	l := newLab(t)
	file := func(name string, n int) objectstore.Hash { return l.put(t, name+strings.Repeat("x", n-len(name))) }
	folder := func(name string, files int) objectstore.Hash {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range files {
			n := 1
			if i == 0 {
				n = size
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(name, i)), []byte(strings.Repeat("y", n)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		h, _, err := tree.Put(t.Context(), l.objects, dir, tree.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	number := 0
	run := func(h objectstore.Hash, kind record.Kind, closed bool) {
		number++
		task := reader("true", fmt.Sprint(number))
		task.Inputs[0].Kind, task.Room.Closed = kind, closed
		l.run(t, task, h)
	}
	run(file("first", size), record.KindFile, false)
	if l.objects.Shares() {
		t.Skip("needs a file system that shares no blocks: set TMPDIR to a folder on tmpfs or ext4")
	}
	for _, c := range []struct {
		what   string
		of     objectstore.Hash
		kind   record.Kind
		closed bool
		again  int64 // by three commands
	}{
		{"a large file", file("a", size), record.KindFile, false, 2 * size},
		{"a small file", file("b", 1000), record.KindFile, false, 0},
		{"a large file in closed rooms", file("c", size), record.KindFile, true, 0},
		{"a folder with a large file", folder("d", 1), record.KindDir, false, 2 * size},
		{"a folder of many files, one after another", folder("e", 300), record.KindDir, false, 0},
	} {
		before := l.CopiedAgain()
		for range 3 {
			run(c.of, c.kind, c.closed)
		}
		if got := l.CopiedAgain() - before; got != c.again {
			t.Errorf("%s: %d bytes were copied again, want %d", c.what, got, c.again)
		}
	}
	if !l.RoomsShare(t.Context()) {
		t.Error("closed rooms have layers here, and it says that they have none")
	}
	run(file("last", size), record.KindFile, true) // a room can be made after that
}
