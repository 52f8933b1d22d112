package objectstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/internal/testing/suite"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore/fs"
)

// openSession opens the store in base as another process would.
func openSession(base string) (*fs.Store, *objectstore.Dir, error) {
	records, err := fs.Open(base, fs.Options{NoNotify: true})
	if err != nil {
		return nil, nil, err
	}
	d, err := objectstore.OpenDir(filepath.Join(base, "objects"), objectstore.Options{Session: records.Session})
	return records, d, err
}

// collect removes every object that no live session can rely on, and returns their number.
func collect(ctx context.Context, base string) (int, error) {
	records, d, err := openSession(base)
	if err != nil {
		return 0, err
	}
	defer records.Close()
	cutoff, err := records.SessionBegan(ctx)
	if err != nil {
		return 0, err
	}
	live, err := records.LiveSessions(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range live {
		if s.Began.Before(cutoff) {
			cutoff = s.Began
		}
	}
	n := 0
	if cutoff.UnixNano()%2 == 0 { // use both methods at random
		for e, err := range d.Walk(ctx) {
			if err != nil {
				return n, err
			}
			removed, err := d.DeleteBefore(ctx, e.Hash, cutoff)
			if err != nil {
				return n, err
			}
			if removed {
				n++
			}
		}
		return n, nil
	}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(2)
	for i := range objectstore.Shards {
		g.Go(func() error {
			return d.SweepShard(ctx, byte(i), cutoff, func(objectstore.Hash) bool { return false }, func(objectstore.Entry) {
				mu.Lock()
				defer mu.Unlock()
				n++
			})
		})
	}
	return n, g.Wait()
}

// poolSize is the number of different objects that sessions use. It is small, so that sessions share objects.
const poolSize = 400

// poolObject is one of the objects: some are trees of others, one is large.
func poolObject(i int) ([]byte, error) {
	if i == 0 {
		return bytes.Repeat([]byte("large "), 400_000), nil
	}
	if i%4 != 3 {
		return fmt.Appendf(nil, "object %d", i), nil
	}
	var t tree.Entries
	for k := i - 3; k < i; k++ {
		b, err := poolObject(k)
		if err != nil {
			return nil, err
		}
		t = append(t, tree.Entry{Name: fmt.Sprint(k), Kind: tree.KindFile, Hash: objectstore.Sum(b), Size: int64(len(b))})
	}
	t.Sort()
	return tree.Encode(t)
}

// sessions runs sessions one after the other. Each puts and refreshes objects, which must then exist until its end.
func sessions(ctx context.Context, base string, seed uint64, n int) error {
	r := rand.New(rand.NewPCG(seed, 1))
	for range n {
		if err := session(ctx, base, r); err != nil {
			return err
		}
	}
	return nil
}

func session(ctx context.Context, base string, r *rand.Rand) (err error) {
	records, d, err := openSession(base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	var promised objectstore.HashSet
	for range 60 {
		i := r.IntN(poolSize)
		b, err := poolObject(i)
		if err != nil {
			return err
		}
		h := objectstore.Sum(b)
		ok := true
		switch r.IntN(6) {
		case 0:
			_, err = d.PutBytes(ctx, b)
		case 1:
			_, err = d.Put(ctx, bytes.NewReader(b))
		case 2:
			var dir string
			if dir, _, err = records.Session(); err == nil {
				path := filepath.Join(dir, "work")
				if err = os.WriteFile(path, b, 0o600); err == nil {
					_, err = d.Adopt(ctx, suite.Paths{}, path)
					os.Remove(path)
				}
			}
		case 3:
			if i%4 == 3 {
				if ok, err = tree.Refresh(ctx, d, h, objectstore.Hash{}); ok {
					for k := i - 3; k < i; k++ {
						b, _ := poolObject(k)
						promised.Add(objectstore.Sum(b))
					}
				}
				break
			}
			fallthrough
		default:
			ok, err = d.Refresh(ctx, h)
		}
		if err != nil {
			return err
		}
		if ok {
			promised.Add(h)
		}
	}
	for h := range promised.All() {
		if err := d.Verify(ctx, h); err != nil {
			return fmt.Errorf("lost: %w", err)
		}
	}
	return nil
}

// TestCollectorsBesideSessions runs collectors in a tight loop beside sessions, in several processes.
func TestCollectorsBesideSessions(t *testing.T) {
	base := t.TempDir()
	collector := runChild(t, "collect for ever", base)
	var children []*exec.Cmd
	for range 2 {
		children = append(children, runChild(t, "sessions", base))
	}
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			if err := sessions(t.Context(), base, uint64(i), 40); err != nil {
				t.Error(err)
			}
		})
	}
	done := make(chan struct{})
	removed := make(chan int)
	go func() {
		total := 0
		for {
			n, err := collect(t.Context(), base)
			if err != nil {
				t.Error(err)
			}
			total += n
			select {
			case <-done:
				removed <- total
				return
			default:
			}
		}
	}()
	wg.Wait()
	for _, c := range children {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	if n := <-removed; n == 0 {
		t.Error("nothing was removed while there were sessions: the test has shown nothing")
	} else {
		t.Logf("%d objects were removed beside the sessions", n)
	}
	if err := collector.Process.Kill(); err != nil {
		t.Error(err)
	}
	if collector.Wait(); collector.ProcessState.ExitCode() >= 0 {
		t.Errorf("the other collector has ended: %v", collector.ProcessState)
	}
	// Wait for the end of the clock tick in which the last session ended.
	for deadline := time.Now().Add(suite.Stuck); ; {
		if _, err := collect(t.Context(), base); err != nil {
			t.Fatal(err)
		}
		d, err := objectstore.OpenDir(filepath.Join(base, "objects"), objectstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		left := checkAll(t, d)
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d objects are left when no session is", left)
		}
	}
}
