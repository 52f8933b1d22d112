package tree_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/tree"
)

// counted counts what is put into a store.
type counted struct {
	*objectstoretest.Mem
	puts, bytes atomic.Int64
}

func newCounted() *counted { return &counted{Mem: new(objectstoretest.Mem)} }

func (c *counted) Put(ctx context.Context, r io.Reader) (objectstore.Info, error) {
	info, err := c.Mem.Put(ctx, r)
	c.puts.Add(1)
	c.bytes.Add(info.Size)
	return info, err
}

// A followed is a directory that is stored again and again.
type followed struct {
	dir    string
	store  *counted
	memory []byte
	clock  time.Time
	trusts func(objectstore.Hash) bool
}

// written is a time of its own for each change, long before the directory is looked at, so that no test depends on the
// clock of the file system.
func (f *followed) written(t testing.TB, path string) {
	t.Helper()
	f.clock = f.clock.Add(time.Second + time.Nanosecond)
	if err := os.Chtimes(path, f.clock, f.clock); err != nil {
		t.Fatal(err)
	}
}

func (f *followed) write(t testing.TB, rel, content string) {
	t.Helper()
	layout{rel: content}.write(t, f.dir)
	f.written(t, filepath.Join(f.dir, filepath.FromSlash(rel)))
}

// follow stores the directory once more and returns its name, the number of files read and the number of objects put.
func (f *followed) follow(t testing.TB) (h objectstore.Hash, read, puts int64) {
	t.Helper()
	before := f.store.puts.Load()
	past := tree.Past{Memory: f.memory, Seen: time.Now().Add(time.Hour).UnixNano(), Trusts: f.trusts}
	h, memory, stats, err := tree.Follow(context.Background(), f.store, f.dir, past, tree.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.memory = memory
	return h, stats.Read, f.store.puts.Load() - before
}

func newFollowed(dir string) *followed {
	return &followed{dir: dir, store: newCounted(), clock: time.Unix(1_600_000_000, 0)}
}

// TestFollow changes a directory at random. Each time it gets the name that Put gives it, and reads and makes only what
// differs.
func TestFollow(t *testing.T) {
	base := t.TempDir()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		f := newFollowed(filepath.Join(base, fmt.Sprint(runs)))
		layout{}.write(t, f.dir)
		names := rapid.SampledFrom([]string{"a", "b", "c/a", "c/\U0001F600", "c/\uFF5E", "c/d/a", "c/d/b", "e/a", "f"})
		changed := map[string]bool{}
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				rel := names.Draw(rt, "name")
				os.RemoveAll(filepath.Join(f.dir, rel))
				f.write(t, rel, rapid.SampledFrom([]string{"x", "y", "#!x", "longer"}).Draw(rt, "content"))
				changed[rel] = true
			},
			"link": func(rt *rapid.T) {
				rel := names.Draw(rt, "name")
				os.RemoveAll(filepath.Join(f.dir, rel))
				layout{rel: "->" + rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "target")}.write(t, f.dir)
				delete(changed, rel)
			},
			"remove": func(rt *rapid.T) {
				rel := names.Draw(rt, "name")
				os.RemoveAll(filepath.Join(f.dir, rel))
				delete(changed, rel)
			},
			"remove folder": func(*rapid.T) {
				os.RemoveAll(filepath.Join(f.dir, "c"))
				for rel := range changed {
					if filepath.Dir(rel) != "." && rel[0] == 'c' {
						delete(changed, rel)
					}
				}
			},
			"follow": func(rt *rapid.T) {
				got, read, _ := f.follow(t)
				want, _ := putTree(t, new(objectstoretest.Mem), f.dir, tree.PutOptions{})
				if got != want || read != int64(len(changed)) {
					rt.Fatalf("stored %s with %d files read, want %s and %d", got, read, want, len(changed))
				}
				memory := f.memory
				again, read, puts := f.follow(t)
				if again != want || read != 0 || puts != 0 || !bytes.Equal(f.memory, memory) {
					rt.Fatalf("unchanged: %s with %d files read and %d objects put, want %s and none; the same memory: %v", again, read, puts, want, bytes.Equal(f.memory, memory))
				}
				clear(changed)
			},
		})
	})
}

// TestFollowMakesOneChain counts what one changed file costs in a directory of 40 with 25 files each.
func TestFollowMakesOneChain(t *testing.T) {
	f := newFollowed(t.TempDir())
	for i := range 1000 {
		f.write(t, fmt.Sprintf("top/%d/%d", i%40, i), fmt.Sprint("file ", i))
	}
	first, read, puts := f.follow(t)
	if read != 1000 || puts != 1042 {
		t.Errorf("first: %d files read and %d objects put, want 1000 and 1042", read, puts)
	}
	f.write(t, "top/7/47", "changed")
	f.store.bytes.Store(0)
	second, read, puts := f.follow(t)
	if second == first || read != 1 || puts != 4 || f.store.bytes.Load() > 20_000 {
		t.Errorf("one changed: %d files read, %d objects of %d bytes put, want 1, 4 and at most 20000; another tree: %v", read, puts, f.store.bytes.Load(), second != first)
	}
}

// TestFollowAllocates bounds what an unchanged file costs: the entry of a listing, its name, and that again for the system.
func TestFollowAllocates(t *testing.T) {
	f := newFollowed(t.TempDir())
	const files = 2000
	for i := range files {
		f.write(t, fmt.Sprintf("%d/%d", i%20, i), "file")
	}
	f.follow(t)
	if got := testing.AllocsPerRun(3, func() { f.follow(t) }) / files; got > 4 {
		t.Errorf("%.1f allocations for each unchanged file, want at most 4", got)
	}
}

// TestFollowYoung: a file that was read when its times could still stay the same after a change is read again.
func TestFollowYoung(t *testing.T) {
	f := newFollowed(t.TempDir())
	f.write(t, "a", "x")
	info, err := os.Stat(filepath.Join(f.dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		// The time of the status is the present one, and the file is seen just then.
		past := tree.Past{Memory: f.memory, Seen: time.Now().Add(-time.Second).UnixNano()}
		_, memory, stats, err := tree.Follow(t.Context(), f.store, f.dir, past, tree.PutOptions{})
		if err != nil || stats.Read != 1 {
			t.Fatalf("look %d at a file of %v: %d files read, %v; want 1", i, info.ModTime(), stats.Read, err)
		}
		f.memory = memory
	}
}

// TestFollowLost: objects of directories are made again if the store has lost them, and files if they are not trusted.
func TestFollowLost(t *testing.T) {
	f := newFollowed(t.TempDir())
	example.write(t, f.dir)
	want, files, _ := f.follow(t)
	f.store = newCounted()
	got, read, puts := f.follow(t)
	if got != want || read != 0 || puts == 0 {
		t.Errorf("in another store: %s, %d files read, %d objects put; want %s, none, and the directories", got, read, puts, want)
	}
	f.trusts = func(objectstore.Hash) bool { return false }
	if got, read, _ = f.follow(t); got != want || read != files {
		t.Errorf("not trusted: %s with %d files read, want %s and %d", got, read, want, files)
	}
}

// TestFollowDamagedMemory: no memory, whatever its bytes, makes a directory fail.
func TestFollowDamagedMemory(t *testing.T) {
	f := newFollowed(t.TempDir())
	example.write(t, f.dir)
	f.follow(t)
	memory := f.memory
	rapid.Check(t, func(rt *rapid.T) {
		f.memory = bytes.Clone(memory[:rapid.IntRange(0, len(memory)).Draw(rt, "length")])
		for range rapid.IntRange(0, 3).Draw(rt, "faults") {
			if len(f.memory) > 0 {
				f.memory[rapid.IntRange(0, len(f.memory)-1).Draw(rt, "at")] = rapid.Byte().Draw(rt, "byte")
			}
		}
		f.follow(t)
		if _, read, _ := f.follow(t); read != 0 {
			rt.Fatalf("after a damaged memory: %d files read by the second look, want none", read)
		}
	})
}
