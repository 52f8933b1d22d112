package verify_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/gc"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/repo"
	"e3/internal/verify"
	"e3/objectstore"
	"e3/workspace"
)

// watched is an object store that calls a function before an object is checked.
type watched struct {
	*objectstore.Dir
	stat   func(objectstore.Hash)
	verify func(objectstore.Hash) error // an error in the place of the store's
}

func (w watched) Stat(ctx context.Context, h objectstore.Hash) (int64, error) {
	if w.stat != nil {
		w.stat(h)
	}
	return w.Dir.Stat(ctx, h)
}

func (w watched) Verify(ctx context.Context, h objectstore.Hash) error {
	if w.verify != nil {
		if err := w.verify(h); err != nil {
			return err
		}
	}
	return w.Dir.Verify(ctx, h)
}

// An object that is removed together with its references, during the check, is no fault.
func TestWhatGoesMeanwhile(t *testing.T) {
	s := newSite(t)
	for _, content := range []string{"old", "new"} {
		s.write("data.txt", content)
		s.deploy("w", `inputs: {file: {file: data.txt}}`, `tasks:`, `  t: {in: [file], out: o, run: make o `+content+`}`)
		s.start("w")
	}
	old := objectstore.Sum([]byte("old"))
	var gone *executions.Execution
	for e, err := range s.Executions.All(t.Context()) {
		s.must(err)
		if e.OutputHash == old.String() {
			gone = e
		}
	}
	stores := s.stores()
	var once sync.Once
	stores.Objects = watched{Dir: s.Objects.(*objectstore.Dir), stat: func(h objectstore.Hash) {
		if h != old {
			return
		}
		once.Do(func() { // a prune and a collection run meanwhile
			_, err := s.curator().Prune(t.Context(), gone.Key.Task, []executions.Victim{gone.Victim()}, "me", "")
			s.must(err)
			s.must(s.Objects.Delete(t.Context(), old))
		})
	}}
	r, err := verify.Verify(t.Context(), stores, verify.Options{})
	s.must(err)
	if len(r.Faults) > 0 || len(r.Notes) > 0 {
		t.Errorf("got\n%s%q, want no faults", list(r), r.Notes)
	}
	if _, err := s.Objects.Stat(t.Context(), old); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("the object is still there: %v", err)
	}
}

// An object that is put again during its check is no fault.
func TestWhatIsPutMeanwhile(t *testing.T) {
	s := furnished(t)
	output, err := objectstore.ParseHash(s.leaf("w", "one").Hash)
	s.must(err)
	s.tear(objectFile(output.String()), "torn")
	stores := s.stores()
	var once sync.Once
	stores.Objects = watched{Dir: s.Objects.(*objectstore.Dir), verify: func(h objectstore.Hash) (err error) {
		if h == output {
			once.Do(func() {
				err = s.Objects.Verify(t.Context(), h)
				_, put := s.Objects.PutBytes(t.Context(), []byte("one")) // the put detects the wrong size
				s.must(put)
			})
		}
		return err
	}}
	r, err := verify.Verify(t.Context(), stores, verify.Options{})
	s.must(err)
	if len(r.Faults) > 0 {
		t.Errorf("got\n%s, want no faults", list(r))
	}
}

// Lost parts of a rejected success, and parts that an import lacked, are no faults.
func TestWhatMayBeMissing(t *testing.T) {
	s := newSite(t)
	s.write("data.txt", "data")
	s.deploy("w", `inputs: {file: {file: data.txt, export: false}}`, `tasks:`, `  t: {in: [file], out: o, run: make o text}`)
	s.start("w")
	e := s.execution("t")
	_, err := s.curator().Reject(t.Context(), e.Key, e.ExecutionID, &record.Rejection{Rejected: true, At: time.Now()})
	s.must(err)
	_, err = s.Workspaces.Deployer.Unassign(t.Context(), "w", map[string]string{"t": e.OutputHash})
	s.must(err)
	s.remove(objectFile(e.OutputHash))
	s.remove(objectFile(s.leaf("w", "file").Hash))
	r := s.verify(verify.Options{})
	if len(r.Faults) > 0 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "input w.file") {
		t.Errorf("got\n%snotes %q, want no faults and a note on the input", list(r), r.Notes)
	}
}

// Missing or malformed nodes that only events name are no faults either, only notes.
func TestWhatEventsNameMayBeMissing(t *testing.T) {
	s := newSite(t)
	s.write("data.txt", "data")
	s.deploy("w", `inputs: {file: {file: data.txt}}`, `tasks:`, `  t: {in: [file], out: o, run: make o text}`)
	s.start("w")
	odd, err := s.Objects.PutBytes(t.Context(), []byte("no node"))
	s.must(err)
	log := events.Create(s.Records, "w", "018f3b4c-9a2d-7def-8abc-123456789012", time.Now)
	log.Emit(events.Event{Type: events.RunStarted, Data: &events.Data{Inputs: odd.String()}})
	log.Emit(events.Event{Type: events.RunCompleted, Data: &events.Data{Outputs: strings.Repeat("0", 64)}})
	s.must(log.Close())
	if r := s.verify(verify.Options{}); len(r.Faults) > 0 || len(r.Notes) != 2 {
		t.Errorf("got\n%snotes %q, want no faults and a note on each snapshot", list(r), r.Notes)
	}
}

func TestSamples(t *testing.T) {
	s := furnished(t)
	var h objectstore.Hash
	for i := range 100 {
		var err error
		h, err = s.Objects.PutBytes(t.Context(), []byte(fmt.Sprint("object ", i)))
		s.must(err)
	}
	s.tear(objectFile(h.String()), "torn")
	whole := s.verify(verify.Options{})
	for _, of := range []int{1, 2, 7, 300} {
		var objects, bytes int64
		found := 0
		for part := range of {
			r := s.verify(verify.Options{Sample: verify.Sample{Part: part + 1, Of: of}})
			objects, bytes, found = objects+r.Objects, bytes+r.Bytes, found+len(r.Faults)
		}
		if objects != whole.Objects || bytes != whole.Bytes || found != 1 {
			t.Errorf("%d parts: got %d objects, %d bytes, %d faults; want %d, %d, 1", of, objects, bytes, found, whole.Objects, whole.Bytes)
		}
	}
	for _, bad := range []verify.Sample{{Part: 0, Of: 7}, {Part: 8, Of: 7}, {Part: -1, Of: 0}} {
		if _, err := verify.Verify(t.Context(), s.stores(), verify.Options{Sample: bad}); err == nil {
			t.Errorf("the sample %d/%d is taken", bad.Part, bad.Of)
		}
	}
}

// Checks beside starts, prunes and collections have nothing to report.
func TestBesideEverything(t *testing.T) {
	s := newSite(t)
	s.must(s.Workspaces.Create(t.Context(), "keep"))
	rounds := 8
	g, ctx := errgroup.WithContext(t.Context())
	open := func(do func(r *repo.Repo) error) error {
		r, err := repo.Open(context.Background(), s.root, repo.Options{Version: "test"})
		if err != nil {
			return err
		}
		return errors.Join(do(r), r.Close())
	}
	busy := func(err error) error { // two concurrent collections
		var other *gc.BusyError
		if errors.As(err, &other) {
			return nil
		}
		return err
	}
	for w := range 2 {
		ws := fmt.Sprint("w", w)
		g.Go(func() error {
			for i := range rounds {
				err := open(func(r *repo.Repo) error {
					dir := fmt.Sprintf("%s/data.txt", ws)
					s.write(dir, fmt.Sprint(ws, i%3))
					s.write(ws+"/e3.yaml", "e3: 1\nname: p\ninputs: {file: {file: data.txt}}\ntasks:\n"+
						fmt.Sprintf("  a: {in: [file], out: d/, run: make d/ %s-%d}\n  b: {in: [a], out: o, run: make o %d}\n", ws, i, i))
					if err := r.Workspaces.Create(ctx, ws); err != nil && !errors.Is(err, workspace.ErrExists) {
						return err
					}
					if _, err := r.Workspaces.Deployer.DeployFile(ctx, ws, s.dir+"/"+ws+"/e3.yaml"); err != nil {
						return err
					}
					x := executions.NewExecutor(r.Executions, r.Objects, r.Records, commands{}, executions.Options{
						Worker: "me@here", Version: "test", Path: "/bin", Scratch: r.Scratch, Now: time.Now,
						Getenv: func(string) (string, bool) { return "", false },
					})
					_, err := r.Workspaces.Runner.Start(ctx, ws, workspace.StartOptions{
						Concurrency: 2, Durability: workspace.None, Process: &events.Process{PID: 1}, Executor: x,
					})
					return err
				})
				if err != nil {
					return fmt.Errorf("start: %w", err)
				}
			}
			return nil
		})
	}
	stop := make(chan struct{})
	var others errgroup.Group
	loop := func(do func(r *repo.Repo) error) {
		others.Go(func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if err := open(do); err != nil {
					return err
				}
			}
		})
	}
	loop(func(r *repo.Repo) error {
		curator := executions.NewCurator(r.Executions, r.Records, time.Now)
		_, err := gc.Prune(t.Context(), gc.PruneStores{Records: r.Records, Objects: r.Objects, Workspaces: r.Workspaces, Curator: curator, Jobs: r.Queue()},
			gc.PruneOptions{Rules: gc.Rules{KeepLast: 1}, By: "me", Now: time.Now()})
		if err != nil {
			err = fmt.Errorf("prune: %w", err)
		}
		return err
	})
	loop(func(r *repo.Repo) error {
		_, err := gc.Collect(t.Context(), gc.Stores{Records: r.Records, Objects: r.Objects, Executions: r.Executions, Jobs: r.Queue(), Now: time.Now, Holder: r.Workspaces.Holder}, gc.Options{})
		if err = busy(err); err != nil {
			err = fmt.Errorf("collect: %w", err)
		}
		return err
	})
	checks := 0
	loop(func(r *repo.Repo) error {
		checks++
		report, err := verify.Verify(t.Context(), verify.Stores{
			Records: r.Records, Objects: r.Objects, Curator: executions.NewCurator(r.Executions, r.Records, time.Now), Workspaces: r.Workspaces, Now: time.Now,
			Jobs: r.Queue(),
		}, verify.Options{})
		if err == nil && len(report.Faults) > 0 {
			err = fmt.Errorf("false alarm:\n%s", list(report))
		}
		return err
	})
	err := g.Wait()
	close(stop)
	if err := errors.Join(err, others.Wait()); err != nil {
		t.Fatal(err)
	}
	if checks == 0 {
		t.Error("nothing was checked")
	}
	if r := s.verify(verify.Options{}); len(r.Faults) > 0 {
		t.Errorf("at the end: got\n%s, want no faults", list(r))
	}
}
