package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"e3/dataflow"
	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/stamp"
	"e3/internal/insight/runview"
	"e3/internal/parallel"
	"e3/objectstore"
	dirtree "e3/objectstore/tree"
	"e3/refstore"
)

// proofs record the results of finished runs, so that the next run can skip its lookups.
type proofs struct{ states *States }

func proofKey(ws string) refstore.Key { return refstore.Key{Partition: "INDEX/proofs", Sort: ws} }

func durationsKey(ws string) refstore.Key {
	return refstore.Key{Partition: "INDEX/durations", Sort: ws}
}

// provenRun is a run whose answers are still valid.
type provenRun struct {
	record.Proof
	run     *record.Run
	version refstore.Version // of the run's record
	tasks   record.Node      // nil unless it was read
	foreign bool             // it is a run of another workspace
}

// outset is the state of the repository before the first lookup. A proof depends on it.
type outset struct {
	generation string      // of garbage collection (executions.Generation)
	quiet      bool        // no collection was under way
	folders    *folderLook // nil: not read
}

// storedProof is the record of a workspace's proof.
type storedProof struct {
	value   []byte // nil if there is none, or it is damaged
	version refstore.Version
}

func (w *proofs) stored(ctx context.Context, ws string) (s storedProof, err error) {
	rec, err := w.states.Derived.Get(ctx, proofKey(ws))
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) {
		return storedProof{version: rec.Version}, nil
	}
	return storedProof{value: rec.Value, version: rec.Version}, err
}

// proof returns the workspace's proven run, nil if none is reliable. In any doubt it returns nil: a proof is derived
// from the records, and can be derived again. Objects are checked only in folders that have changed since the last
// check.
func (w *proofs) proof(ctx context.Context, ws string, s storedProof, at outset) (*provenRun, error) {
	if s.value == nil {
		return nil, nil
	}
	demand, err := w.demand(ctx)
	if err != nil {
		return nil, err
	}
	p, err := decodeProof(demand, s.value)
	if err != nil {
		return nil, nil
	}
	return w.verified(ctx, ws, p, at)
}

// peek is proof for a reader, and changes nothing. It also returns what the proof depends on.
func (w *proofs) peek(ctx context.Context, ws string) (proof *provenRun, at outset, err error) {
	var s storedProof
	err = atOnce(
		w.states,
		func() (err error) { at.generation, at.quiet, err = w.states.generation.Peek(ctx); return err },
		func() (err error) { s, err = w.stored(ctx, ws); return err },
	)
	if err == nil {
		proof, err = w.proof(ctx, ws, s, at)
	}
	return proof, at, err
}

// verified returns the run that a proof refers to, nil if it is not reliable.
func (w *proofs) verified(ctx context.Context, ws string, p *record.Proof, at outset) (*provenRun, error) {
	if !at.quiet || p.Generation != at.generation {
		return nil, nil
	}
	rec, err := w.states.Records.Get(ctx, runview.Key(ws, p.RunID), runview.FieldProvenance)
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if runview.Imported(rec) {
		return nil, nil // another repository's results prove nothing here
	}
	run, err := record.DecodeRun(rec.Value)
	if err != nil || run.State == record.RunRunning {
		return nil, nil
	}
	proven := &provenRun{Proof: *p, run: run, version: rec.Version}
	there, err := w.stillThere(ctx, proven, at.folders)
	if err != nil || !there {
		return nil, err
	}
	return proven, nil
}

// answers yields the executions that answer.
func (p *provenRun) answers() iter.Seq[record.TaskExecution] {
	open := make(map[string]bool, len(p.Open))
	for _, task := range p.Open {
		open[task] = true
	}
	return func(yield func(record.TaskExecution) bool) {
		for e := range p.run.Tasks.All() {
			if !open[e.Task] && !yield(e) {
				return
			}
		}
	}
}

// maxOtherPackages is how many proofs of other packages are tried to find a similar one.
const maxOtherPackages = 2

// nearest returns a proven run of another workspace, for a workspace that has no proof: preferably of the same package
// and inputs, then of the same package, then the latest of a package of that name. Its answers equal those of lookups,
// since the generation covers the whole repository. It is nil if a lookup costs no request, because then the search
// does not pay.
func (w *proofs) nearest(ctx context.Context, ws string, at outset, s *State, inputs string) (*provenRun, error) {
	if !w.presumes() || !at.quiet {
		return nil, nil
	}
	demand, err := w.demand(ctx)
	if err != nil {
		return nil, err
	}
	type candidate struct {
		ws    string
		proof *record.Proof
	}
	var list []candidate
	for rec, err := range (refstore.Unreadable{Store: w.states.Derived}).List(ctx, refstore.Query{Partition: proofKey("").Partition}) {
		if err != nil {
			return nil, err
		}
		if p, err := decodeProof(demand, rec.Value); err == nil && p.Generation == at.generation && rec.Key.Sort != ws {
			list = append(list, candidate{rec.Key.Sort, p})
		}
	}
	rank := func(c candidate) int {
		switch {
		case c.proof.Package != s.PackageHash:
			return 2
		case c.proof.Inputs != inputs:
			return 1
		}
		return 0
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.proof.RunID, a.proof.RunID))
	})
	otherPackages := 0
	for _, c := range list {
		if rank(c) == 2 {
			if otherPackages++; otherPackages > maxOtherPackages {
				break
			}
		}
		p, err := w.verified(ctx, c.ws, c.proof, at)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		if name, _, _ := cutLast(p.run.PackageRef, "@"); name == s.PackageName {
			p.foreign = true
			return p, nil
		}
	}
	return nil, nil
}

// A folderLook is a snapshot of the modification times of the folders in which the answers of a proof lie: the folder
// of the executions and, unless the store presumes objects, the folders of the objects.
type folderLook struct {
	at         int64   // when the look began, ns
	executions int64   // of the folder that has a folder for each task; 0: file times show no changes of this store
	objects    []int64 // of the 256 folders of objects
}

// listTimer is a store in which a partition of records is a folder, so that its time shows a removal by hand.
type listTimer interface {
	// ListTime returns the modification time of a partition's folder in nanoseconds; 0: there is none.
	ListTime(partition string) (int64, error)
}

// times are the folder times as a proof remembers them.
func (l *folderLook) times() []int64 {
	return append(l.objects[:len(l.objects):len(l.objects)], l.executions)
}

func (w *proofs) lookAtFolders() (*folderLook, error) {
	look := &folderLook{at: w.states.Now().UnixNano()}
	objects, err := w.states.Objects.ShardTimes()
	look.objects = objects[:]
	if list, ok := w.states.Records.(listTimer); ok && err == nil {
		look.executions, err = list.ListTime(executions.TasksPartition)
	}
	return look, err
}

// stillThere checks that every execution and every output of the proof exists, and updates the proof's memory of their
// folders. Executions are checked by the folders of their tasks: the time of the parent folder shows that a task's
// folder was removed.
//
// If the object store presumes presence, outputs need no check: records name them, and only a change of generation
// removes records. Folder times have no meaning there. So such a proof is equally good on every machine: the rest of
// it concerns records that all machines share.
func (w *proofs) stillThere(ctx context.Context, p *provenRun, look *folderLook) (bool, error) {
	if look == nil {
		var err error
		if look, err = w.lookAtFolders(); err != nil {
			return false, err
		}
	}
	times := look.times()
	doubt := func(i int) bool {
		return len(p.Shards) != len(times) || times[i] != p.Shards[i] || !stamp.Settled(p.CheckedAt, times[i], 0)
	}
	var doubtful [256]bool
	objects := false
	for i := range look.objects {
		doubtful[i] = !w.presumes() && doubt(i)
		objects = objects || doubtful[i]
	}
	_, listed := w.states.Records.(listTimer)
	records := listed && doubt(len(look.objects))
	if !objects && !records {
		return true, nil
	}
	if records {
		if there, err := w.tasksThere(ctx, p); err != nil || !there {
			return false, err
		}
	}
	if objects {
		if there, err := w.outputsThere(ctx, p, &doubtful); err != nil || !there {
			return false, err
		}
	}
	p.Shards, p.CheckedAt = times, look.at
	return true, nil
}

// tasksThere checks that each task that the proven run has settled still has the folder of its executions.
func (w *proofs) tasksThere(ctx context.Context, p *provenRun) (bool, error) {
	tasks, err := w.settled(ctx, p, func(string) bool { return true })
	if err != nil {
		return false, ignoreLost(err)
	}
	for h, err := range w.states.executions().Tasks(ctx) {
		if err != nil {
			return false, err
		}
		delete(tasks, h)
	}
	return len(tasks) == 0, nil
}

// onRecord checks that each execution of a proven run is on record whose task is wanted. It costs a look at each key of its tasks, so a start
// does not do it. Where records lie in no folder, only a change of generation removes them.
func (w *proofs) onRecord(ctx context.Context, p *provenRun, wants func(task string) bool) (bool, error) {
	if _, ok := w.states.Records.(listTimer); !ok {
		return true, nil
	}
	tasks, err := w.settled(ctx, p, wants)
	if err != nil {
		return false, ignoreLost(err)
	}
	x := w.states.executions()
	hashes := slices.Collect(maps.Keys(tasks))
	var gone atomic.Bool
	err = parallel.AtMost(ctx, w.states.Lookups, len(hashes), func(ctx context.Context, i int) error {
		missing, err := x.Missing(ctx, hashes[i], tasks[hashes[i]])
		if len(missing) > 0 {
			gone.Store(true)
		}
		return err
	})
	return !gone.Load(), err
}

// settled are the executions that a proven run has for the tasks that are wanted, by task object. Executions whose task the package does
// not know are under the zero hash.
func (w *proofs) settled(ctx context.Context, p *provenRun, wants func(task string) bool) (map[objectstore.Hash][]string, error) {
	pkg, err := w.states.Packages.Load(ctx, p.Package)
	if err != nil {
		return nil, err
	}
	hashes := make(map[string]objectstore.Hash, len(pkg.Tasks))
	for i := range pkg.Tasks {
		h, _ := objectstore.ParseHash(pkg.Tasks[i].Task) // the hashes of a decoded package are valid
		hashes[pkg.Tasks[i].Name] = h
	}
	tasks := make(map[objectstore.Hash][]string)
	for e := range p.answers() {
		if !wants(e.Task) {
			continue
		}
		tasks[hashes[e.Task]] = append(tasks[hashes[e.Task]], e.ExecutionID)
	}
	return tasks, nil
}

// outputsThere checks that the outputs in doubtful folders exist.
func (w *proofs) outputsThere(ctx context.Context, p *provenRun, doubtful *[256]bool) (bool, error) {
	var err error
	if p.tasks, err = w.states.readNode(ctx, p.Tasks); err != nil {
		return false, ignoreLost(err)
	}
	if p.Partial { // the workspace has the outputs of earlier runs for the other tasks
		var answered record.Node
		for e := range p.answers() {
			leaf, _ := p.tasks.Get(e.Task)
			answered = append(answered, record.NodeEntry{Name: e.Task, Leaf: leaf})
		}
		answered.Sort()
		p.tasks = answered
	}
	var outputs []objectstore.Hash
	for i := range p.tasks {
		h, err := objectstore.ParseHash(p.tasks[i].Hash)
		if err != nil {
			return false, nil // a task without an output: the proof is void
		}
		if doubtful[h[0]] {
			outputs = append(outputs, h)
		}
	}
	missing, err := w.states.Objects.Missing(ctx, outputs)
	if err != nil || len(missing) > 0 {
		return false, err
	}
	return w.partsThere(ctx, p.tasks, doubtful)
}

// partsThere checks that the contents of output directories exist, as far as their folders have changed.
func (w *proofs) partsThere(ctx context.Context, outputs record.Node, doubtful *[256]bool) (bool, error) {
	look := func(ctx context.Context, h objectstore.Hash) (bool, error) {
		if !doubtful[h[0]] {
			return false, nil
		}
		_, err := w.states.Objects.Stat(ctx, h)
		return objectstore.IsLost(err)
	}
	var gone atomic.Bool
	err := parallel.AtMost(ctx, w.states.Lookups, len(outputs), func(ctx context.Context, i int) error {
		h, err := objectstore.ParseHash(outputs[i].Hash)
		if err != nil || outputs[i].Kind != record.LeafDir || gone.Load() {
			return err
		}
		lost, err := dirtree.FindLost(ctx, w.states.Objects, h, true, look)
		var malformed *dirtree.Error
		if len(lost) > 0 || errors.As(err, &malformed) {
			gone.Store(true)
			return nil
		}
		return err
	})
	return !gone.Load(), err
}

// presumes tells whether every named object can be presumed to exist: only collections remove objects, and never named
// ones. Stores in which a check is a request do so.
func (w *proofs) presumes() bool { return presumes(w.states.Objects) }

func presumes(objects Objects) bool {
	p, ok := objects.(interface{ Presumes() bool })
	return ok && p.Presumes()
}

// ignoreLost returns err, or nil if err says that an object is lost.
func ignoreLost(err error) error {
	if isLost(err) {
		return nil
	}
	return err
}

// saveProof replaces the version of the proof that was read last.
func (w *proofs) saveProof(ctx context.Context, ws string, p *record.Proof, last *refstore.Version) error {
	value, err := w.encodeProof(ctx, p)
	if err != nil || value == nil {
		return err
	}
	if err := w.states.overwrite(ctx, w.states.Derived, proofKey(ws), value, last); err != nil {
		return fmt.Errorf("save proof of run %s: %w", p.RunID, err)
	}
	return nil
}

// demand returns the signatures that answers need; nil: they need none.
func (w *proofs) demand(ctx context.Context) (*executions.Demand, error) {
	if w.states.Demands == nil {
		return nil, nil
	}
	return w.states.Demands(ctx)
}

// errUnsigned says that a proof does not count because no trusted key has signed it under the present demand.
var errUnsigned = errors.New("the proof is not signed")

// decodeProof reads a proof. Where answers must be signed, a proof vouches that they are. So there it counts only
// with the signature of a trusted key under the same demand.
func decodeProof(demand *executions.Demand, value []byte) (*record.Proof, error) {
	p, err := record.DecodeProof(value)
	if err == nil && demand != nil && !demand.Admits(p) {
		return nil, errUnsigned
	}
	return p, err
}

// encodeProof signs a proof where that is demanded, and encodes it. A renewed proof has the same answers, so it keeps
// its signature. It returns nil if this process cannot sign.
func (w *proofs) encodeProof(ctx context.Context, p *record.Proof) ([]byte, error) {
	demand, err := w.demand(ctx)
	if err != nil || demand == nil || p.Signature != nil {
		return p.Encode(), err
	}
	if w.states.Signer == nil {
		return nil, nil
	}
	key, err := w.states.Signer()
	if err != nil || !demand.Trusts(key) {
		return nil, err
	}
	demand.Sign(key, p)
	return p.Encode(), nil
}

// baseline turns a proof into the baseline that the dataflow compares with.
func (w *proofs) baseline(ctx context.Context, p *provenRun, hash string, pkg *record.Package) (*dataflow.Baseline, error) {
	b := &dataflow.Baseline{RunID: p.RunID, Package: pkg, Outputs: p.tasks, Tasks: p.run.Tasks, Open: p.Open, Foreign: p.foreign}
	var err error
	if p.Package != hash {
		if b.Package, err = w.states.Packages.Load(ctx, p.Package); err != nil {
			return nil, ignoreLost(err)
		}
	}
	if b.Inputs, err = w.states.readNode(ctx, p.Inputs); err != nil {
		return nil, ignoreLost(err)
	}
	if b.Outputs == nil {
		if b.Outputs, err = w.states.readNode(ctx, p.Tasks); err != nil {
			return nil, ignoreLost(err)
		}
	}
	return b, nil
}

// durations returns how long tasks took when they last ran, and the version of the record; nil: not known. Durations
// are only a hint, and may be empty.
func (w *proofs) durations(ctx context.Context, ws string) (record.Durations, *refstore.Version) {
	rec, err := w.states.Derived.Get(ctx, durationsKey(ws))
	if errors.Is(err, refstore.ErrNotFound) {
		return record.Durations{}, new(refstore.Absent)
	}
	if err != nil {
		return record.Durations{}, nil
	}
	d, err := record.DecodeDurations(rec.Value)
	if err != nil {
		return record.Durations{}, &rec.Version
	}
	return d, &rec.Version
}

func (w *proofs) saveDurations(ctx context.Context, ws string, g *dataflow.Graph, out *dataflow.Outcome, d record.Durations, last *refstore.Version) error {
	changed := false
	for i := range out.Tasks {
		if t := &out.Tasks[i]; t.State == dataflow.Succeeded {
			d[g.Name(int32(i))] = max(t.Duration, time.Millisecond) // the record's unit; 0 means unknown
			changed = true
		}
	}
	if !changed {
		return nil
	}
	names := make([]string, 0, g.Len())
	for i := range g.Len() {
		if name := g.Name(int32(i)); d[name] > 0 {
			names = append(names, name)
		}
	}
	if err := w.states.overwrite(ctx, w.states.Derived, durationsKey(ws), d.Encode(names), last); err != nil {
		return fmt.Errorf("save durations: %w", err)
	}
	return nil
}
