package gc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"e3/executions"
	"e3/gc"
	"e3/internal/events"
	"e3/internal/repo"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
	"e3/internal/verify"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// A team is a repository that several machines share, whose servers are behind proxies.
type team struct {
	*testing.T
	location         string
	records, objects *testserver.Proxy
}

// gcLease is long enough for a busy machine to renew, most of the time, and short enough to wait for.
const gcLease = 15 * time.Second

// newTeam makes the repository; the test runs beside others, as it waits most of the time. Objects may be collected
// once they are older than settle, the time within which late requests arrive.
func newTeam(t *testing.T, lease, settle time.Duration) *team {
	t.Parallel()
	m := &team{T: t, records: testserver.NewProxy(t, testserver.Minidyn(t)), objects: testserver.NewProxy(t, testserver.GoFakeS3(t))}
	m.location = "dynamodb://e3-gc/team?settle=" + settle.String() + "&lease=" + lease.String() +
		"&endpoint=" + url.QueryEscape(m.records.URL()) + "&s3-endpoint=" + url.QueryEscape(m.objects.URL())
	_, err := repo.Init(t.Context(), m.location+"&bucket="+testserver.Name(), repo.InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// visit begins a process on a machine, whose cache and project are in dir.
func (m *team) visit(dir string) (*house, error) {
	r, err := repo.Open(context.WithoutCancel(m.Context()), m.location, repo.Options{Version: "test", Getenv: func(name string) string {
		switch name {
		case repo.CacheDirVariable:
			return filepath.Join(dir, "cache")
		case repo.StateDirVariable:
			return filepath.Join(dir, "state")
		}
		return os.Getenv(name)
	}})
	if err != nil {
		return nil, err
	}
	return &house{tester: m.T, root: m.location, dir: dir, Repo: r}, nil
}

// on calls f with a process on a machine.
func (m *team) on(dir string, f func(h *house)) {
	m.Helper()
	h, err := m.visit(dir)
	if err != nil {
		m.Fatal(err)
	}
	f(h)
	if err := h.Close(); err != nil && !lost(h) {
		m.Error(err)
	}
}

// leave closes a process. Two outcomes are no fault on a busy machine: its lease was lost, or the end of its session took
// longer than Close gives all its requests together, a third of a lease. Others find such a session dead later.
func leave(h *house) error {
	began := time.Now()
	err := h.Close()
	if lost(h) || errors.Is(err, context.DeadlineExceeded) && time.Since(began) >= gcLease/3 {
		return nil
	}
	return err
}

// lost reports whether a visit lost its lease, which happens on a busy machine.
func lost(h *house) bool {
	select {
	case <-h.Records.(refstore.Leased).Lost():
		return true
	default:
		return false
	}
}

// sound fails if a needed object is missing, by the view of a process with an empty cache.
func (m *team) sound() {
	m.Helper()
	m.on(m.TempDir(), func(h *house) {
		h.check()
		report, err := verify.Verify(m.Context(), verify.Stores{
			Records: h.Records, Objects: h.Objects, Curator: executions.NewCurator(h.Executions, h.Records, time.Now), Workspaces: h.Workspaces, Now: time.Now,
			Jobs: h.Queue(),
		}, verify.Options{})
		h.must(err)
		for i := range report.Faults {
			f := &report.Faults[i]
			m.Errorf("%s at %s: %s, for %q", f.Kind, f.Where, f.Problem, f.For)
		}
	})
}

// clean collects until only needed objects are left. This takes a moment, since recently stored objects, and those of
// recently pruned executions, are spared.
func (m *team) clean() {
	m.Helper()
	for deadline := time.Now().Add(suite.Stuck); ; {
		left := 0
		m.on(m.TempDir(), func(h *house) {
			if _, err := gc.Collect(m.Context(), h.stores(), gc.Options{}); err != nil {
				var unsettled *refstore.UnsettledError
				var busy *gc.BusyError // the lock of a process that lost its lease, until that is over
				if !errors.As(err, &unsettled) && !errors.As(err, &busy) && !lost(h) {
					m.Fatal(err)
				}
			}
			left = len(h.objects()) - len(h.model())
		})
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			m.Errorf("%d objects are left that nothing needs", left)
			return
		}
		<-time.After(200 * time.Millisecond)
	}
}

// member is a process that performs various operations on a machine.
type member struct {
	*house
	team   *team
	dir    string
	random *rand.Rand
}

// expected reports whether an error can be the effect of concurrent processes.
func expected(err error) bool {
	var busy *workspace.BusyError
	return err == nil || errors.As(err, &busy) || errors.Is(err, workspace.ErrNotFound) || errors.Is(err, workspace.ErrExists) || errors.Is(err, workspace.ErrNotDeployed) ||
		errors.Is(err, executions.ErrNotFound) && !errors.Is(err, objectstore.ErrNotFound)
}

// act performs a random operation. Other members have stored the same objects before, which may be collected at this
// moment.
func (b *member) act(ctx context.Context) error {
	ws := []string{"a", "b"}[b.random.IntN(2)]
	word := strconv.Itoa(b.random.IntN(3))
	curator := executions.NewCurator(b.Executions, b.Records, time.Now)
	switch b.random.IntN(12) {
	case 0, 1, 2:
		leaf, err := b.Workspaces.Datasets.PutStream(ctx, strings.NewReader("stream "+word))
		if err == nil {
			err = b.Workspaces.Datasets.Set(ctx, ws, "file", leaf)
		}
		return err
	case 3:
		leaf, err := b.Workspaces.Datasets.PutValue(ctx, []any{word})
		if err == nil {
			err = b.Workspaces.Datasets.Set(ctx, ws, "n", leaf)
		}
		return err
	case 4:
		_, err := b.Workspaces.Datasets.Unset(ctx, ws, "file")
		return err
	case 5, 6, 7:
		if b.executor == nil {
			b.executor = executions.NewExecutor(b.Executions, b.Objects, b.Records, commands{}, executions.Options{
				Worker: "me@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: b.Scratch, Now: time.Now,
			})
		}
		_, err := b.Workspaces.Runner.Start(ctx, ws, workspace.StartOptions{Concurrency: 2, Process: &events.Process{PID: 1}, Executor: b.executor})
		return err
	case 8:
		if err := b.file(word); err != nil {
			return err
		}
		if err := b.Workspaces.Create(ctx, ws); err != nil && !errors.Is(err, workspace.ErrExists) {
			return err
		}
		_, err := b.Workspaces.Deployer.DeployFile(ctx, ws, filepath.Join(b.dir, "e3.yaml"))
		return err
	case 9: // packages move from the register to workspaces
		if err := b.file(word); err != nil {
			return err
		}
		built, err := b.Workspaces.Deployer.Build(ctx, filepath.Join(b.dir, "e3.yaml"), nil)
		if err != nil {
			return err
		}
		ref := workspace.PackageRef{Name: "p", Version: word, Hash: built.Hash}
		if err := b.Workspaces.Packages.Add(ctx, ref); err != nil && !errors.Is(err, workspace.ErrExists) {
			return err
		}
		if err = b.Workspaces.Deployer.Deploy(ctx, ws, ref); err != nil {
			return err
		}
		_, err = b.Workspaces.Packages.Remove(ctx, "p", word)
		return err
	case 10:
		if b.random.IntN(3) == 0 {
			return b.Workspaces.Cleaner.Remove(ctx, ws)
		}
		_, err := gc.Prune(ctx, gc.PruneStores{Records: b.Records, Objects: b.Objects, Workspaces: b.Workspaces, Curator: curator, Jobs: b.Queue()},
			gc.PruneOptions{Rules: gc.Rules{KeepLast: 1}, By: "me@here", Now: time.Now()})
		return err
	default:
		for e, err := range b.Executions.All(ctx) {
			if err != nil {
				return err
			}
			if b.random.IntN(4) == 0 { // another process may have had a hit
				_, err := curator.Prune(ctx, e.Key.Task, []executions.Victim{e.Victim()}, "me@here", "test")
				return err
			}
		}
		return nil
	}
}

// file writes the package file and the files that it names.
func (b *member) file(word string) error {
	var errs []error
	for name, text := range map[string]string{
		"data.txt": "data " + word, "images/a": "a " + word, "images/deep/b": "b",
		"e3.yaml": "e3: 1\nname: p\n" + inputs + `
tasks:
  one: {in: [file, n], out: d/, run: make d/ ` + word + `}
  two: {in: [images, one], out: o, run: make o two}
`,
	} {
		path := filepath.Join(b.dir, name)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// TestSharedModel lets members of a team perform random operations, each on its own machine, while garbage is collected
// all the time, over a good connection and a bad one. Every object that something names exists at all times; unnamed
// objects are gone in the end. On a good connection they continue until something was collected meanwhile.
func TestSharedModel(t *testing.T) {
	for _, bad := range []bool{false, true} {
		t.Run(fmt.Sprintf("bad line %v", bad), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			m := newTeam(t, gcLease, time.Second)
			rounds, acts := 3, 12
			if testing.Short() {
				rounds = 1
			}
			dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
			var collected, leases atomic.Int64
			for round := 0; round < rounds || !bad && collected.Load() == 0 && round < 20*rounds; round++ {
				if bad {
					weather := testserver.Weather(rand.New(rand.NewPCG(seed, uint64(round))), 0.05, 50*time.Millisecond)
					m.records.Faults(seed, weather...)
					m.objects.Faults(seed+1, append(weather, testserver.Rule{Op: "DeleteObjects", Probability: 0.3, Fault: testserver.DropAfter})...)
				}
				done := make(chan struct{})
				var members, collector sync.WaitGroup
				for i, dir := range dirs {
					members.Go(func() {
						b := &member{team: m, dir: dir, random: rand.New(rand.NewPCG(seed+uint64(i), uint64(round)))}
						for act := range acts {
							if b.house == nil {
								h, err := m.visit(dir)
								if err != nil {
									t.Errorf("machine %d: %v", i, err)
									return
								}
								b.house = h
							}
							err := b.act(t.Context())
							switch {
							case errors.Is(err, objectstore.ErrNotFound):
								t.Errorf("machine %d, round %d, act %d: %v", i, round, act, err)
							case lost(b.house):
								leases.Add(1)
							case !bad && !expected(err):
								t.Errorf("machine %d, round %d, act %d: %v", i, round, act, err)
							}
							if err != nil && bad || lost(b.house) || b.random.IntN(3) == 0 {
								if err := leave(b.house); err != nil && !bad {
									t.Error(err)
								}
								b.house = nil
							}
						}
						if b.house != nil {
							if err := leave(b.house); err != nil && !bad {
								t.Error(err)
							}
						}
					})
				}
				collector.Go(func() {
					dir := t.TempDir()
					for {
						select {
						case <-done:
							return
						default:
						}
						h, err := m.visit(dir)
						if err != nil {
							t.Error(err)
							return
						}
						report, err := gc.Collect(t.Context(), h.stores(), gc.Options{})
						var unsettled *refstore.UnsettledError
						switch {
						case err == nil:
							collected.Add(report.Collected.Objects)
							if report.Missing > 0 || len(report.Warnings) > 0 {
								t.Errorf("collect: %d objects missing, warnings %v", report.Missing, report.Warnings)
							}
						case !bad && !lost(h) && !errors.As(err, &unsettled):
							t.Errorf("collect: %v", err)
						default:
							t.Logf("collect: %v", err)
						}
						if err := h.Close(); err != nil && !bad && !lost(h) {
							t.Error(err)
						}
					}
				})
				members.Wait()
				close(done)
				collector.Wait()
				m.records.Faults(0)
				m.objects.Faults(0)
				m.sound()
			}
			m.clean()
			m.sound()
			t.Logf("%d objects were collected meanwhile, %d leases lost", collected.Load(), leases.Load())
			if collected.Load() == 0 && !bad { // on a bad connection a collection may fail
				t.Error("nothing was collected while others were at work")
			}
		})
	}
}

// TestSharedCutOff: a collection that is interrupted at any request is completed by the next one, and no object is
// lost.
func TestSharedCutOff(t *testing.T) {
	suite.Thorough(t)
	m := newTeam(t, gcLease, time.Second)
	dir := t.TempDir()
	m.on(dir, func(h *house) {
		h.project("x")
		h.deploy("w", inputs, "tasks:", "  one: {in: [n, images], out: d/, run: make d/ one}")
		h.start("w")
		for i := range 300 {
			h.put(fmt.Sprint("garbage ", i))
		}
	})
	<-time.After(2500 * time.Millisecond)             // until the objects are no longer young; times are in whole seconds
	for _, at := range []int{0, 1, 2, 40, 150, 250} { // calls of Progress
		m.on(dir, func(h *house) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			calls := 0
			_, err := gc.Collect(ctx, h.stores(), gc.Options{Progress: func(gc.Progress) {
				if calls == at {
					cancel()
				}
				calls++
			}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("cut off at %d: got %v, want %v", at, err, context.Canceled)
			}
		})
		m.sound()
	}
	m.clean()
	m.sound()
}

// TestSharedYoung: an object that was just stored is young, for a dry run too; a cached copy is no evidence when
// garbage is collected.
func TestSharedYoung(t *testing.T) {
	m := newTeam(t, gcLease, time.Minute)
	dir := t.TempDir()
	m.on(dir, func(h *house) { h.put("garbage") })
	m.on(dir, func(h *house) {
		for _, dry := range []bool{true, false} {
			report, err := gc.Collect(t.Context(), h.stores(), gc.Options{DryRun: dry})
			h.must(err)
			if report.Young != (gc.Amount{Objects: 1, Bytes: 7}) || report.Collected.Objects > 0 || report.Grace != time.Minute {
				t.Errorf("dry %v: got %+v, want one young object", dry, report)
			}
		}
	})
	m.on(t.TempDir(), func(h *house) { h.must(h.Objects.Delete(t.Context(), objectstore.Sum([]byte("garbage")))) })
	m.on(dir, func(h *house) {
		if h.has(objectstore.Sum([]byte("garbage"))) {
			t.Error("what was removed is there for a machine with a copy")
		}
		if got := h.put("garbage"); got != objectstore.Sum([]byte("garbage")) || !h.has(got) {
			t.Error("what was removed cannot be stored again")
		}
	})
}

// TestSharedRequests bounds the requests of a collection: lists of objects, but no request for each object.
func TestSharedRequests(t *testing.T) {
	suite.Thorough(t)
	m := newTeam(t, time.Minute, time.Second)
	const n, size = 3000, 10
	m.on(t.TempDir(), func(h *house) {
		var all [n][]byte
		for i := range all {
			all[i] = bytes.Repeat([]byte{byte(i), byte(i >> 8)}, size/2)
		}
		var g sync.WaitGroup
		for part := range 16 {
			g.Go(func() {
				for i := part; i < n; i += 16 {
					if _, err := h.Objects.PutBytes(t.Context(), all[i]); err != nil {
						t.Error(err)
					}
				}
			})
		}
		g.Wait()
	})
	<-time.After(2500 * time.Millisecond) // times are in whole seconds
	m.on(t.TempDir(), func(h *house) {
		m.records.Reset()
		m.objects.Reset()
		began := time.Now()
		report, err := gc.Collect(t.Context(), h.stores(), gc.Options{})
		h.must(err)
		took := time.Since(began)
		if report.Collected != (gc.Amount{Objects: n, Bytes: n * size}) {
			t.Errorf("got %+v, want %d objects of %d bytes collected", report, n, size)
		}
		records, objects := m.records.Calls(), m.objects.Calls()
		t.Logf("%d objects in %v; records: %v, objects: %v", n, took.Round(time.Millisecond), records, objects)
		lists := objectstore.Shards + 8 // blobs and uploads
		// GetObject reads the owner of the objects; HeadObject asks for the server's time
		for op, most := range map[string]int{"ListObjects": lists, "DeleteObjects": objectstore.Shards, "HeadObject": 2, "GetObject": 1} {
			if objects[op] > most {
				t.Errorf("%d requests %s, want at most %d", objects[op], op, most)
			}
		}
		sum := 0
		for _, n := range records {
			sum += n
		}
		if most := 3*objectstore.Shards + 2*objectstore.Shards; sum > most { // per shard: a list of what to remove, and claims
			t.Errorf("%d requests about records, want at most %d", sum, most)
		}
	})
}

// TestSharedTombstones: the objects of an execution that was pruned while a process was live are kept for that process,
// whatever the machines' clocks show.
func TestSharedTombstones(t *testing.T) {
	for _, off := range []time.Duration{0, -3 * time.Hour, 3 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			m := newTeam(t, gcLease, time.Second)
			dir, out := t.TempDir(), objectstore.Sum([]byte("one"))
			m.on(dir, func(h *house) {
				h.project("x")
				h.deploy("w", inputs, "tasks:", "  one: {in: [n], out: o, run: make o one}")
				h.start("w")
				h.must(h.Workspaces.Cleaner.Remove(t.Context(), "w"))
				h.forgetEvents("w")
			})
			<-time.After(2500 * time.Millisecond) // nothing is young any more
			worker, err := m.visit(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			_, err = worker.Records.SessionBegan(t.Context())
			worker.must(err) // from here on it may have a hit
			m.on(dir, func(h *house) {
				curator := executions.NewCurator(h.Executions, h.Records, func() time.Time { return time.Now().Add(off) })
				for e, err := range h.Executions.All(t.Context()) {
					h.must(err)
					n, err := curator.Prune(t.Context(), e.Key.Task, []executions.Victim{e.Victim()}, "me@there", "test")
					if n != 1 || err != nil {
						t.Fatalf("pruned %d, %v", n, err)
					}
				}
				_, err := gc.Collect(t.Context(), h.stores(), gc.Options{})
				h.must(err)
				if !h.has(out) {
					t.Error("what a live process may have found is gone")
				}
			})
			worker.must(worker.Close())
			m.clean()
			m.on(dir, func(h *house) {
				if h.has(out) {
					t.Error("what no live process can have found is left")
				}
			})
		})
	}
}

// TestSharedLateDelete: a deletion that takes effect after its sender has given up is harmless. A put of that name
// waits until the deletion can no longer arrive, and then checks whether the object exists.
func TestSharedLateDelete(t *testing.T) {
	suite.Thorough(t)
	m := newTeam(t, gcLease, time.Second)
	text := "wanted again"
	m.on(t.TempDir(), func(h *house) { h.put(text) })
	<-time.After(2500 * time.Millisecond)
	collector, err := m.visit(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	writer, err := m.visit(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	_, err = writer.Records.SessionBegan(t.Context())
	writer.must(err)
	hung := make(chan struct{})
	m.objects.Faults(1, testserver.Rule{Op: "DeleteObjects", Times: 1, Fault: testserver.Hang})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // cancelled as soon as it waits for the answer
		for m.objects.Struck()[testserver.Hang] == 0 {
			<-time.After(time.Millisecond)
		}
		close(hung)
		cancel()
	}()
	ended := make(chan error, 1)
	go func() {
		_, err := gc.Collect(ctx, collector.stores(), gc.Options{})
		ended <- errors.Join(err, collector.Close())
	}()
	<-hung
	stored := make(chan error, 1)
	go func() {
		_, err := writer.Objects.PutBytes(t.Context(), []byte(text))
		stored <- err
	}()
	if err := <-ended; err == nil {
		t.Error("a collection whose deletion has no answer ended well")
	} else {
		t.Log(err)
	}
	select {
	case err := <-stored:
		t.Fatalf("the writer did not wait: %v", err)
	default:
	}
	m.objects.Release() // it takes effect now
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
	if !writer.has(objectstore.Sum([]byte(text))) {
		t.Error("what was stored is gone")
	}
	writer.must(writer.Close())
	m.clean()
}
