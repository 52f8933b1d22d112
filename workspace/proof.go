package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// proofs are what finished runs have found out, so that the next one need not look again.
type proofs struct{ states *States }

func proofKey(ws string) refstore.Key { return refstore.Key{Partition: "INDEX/proofs", Sort: ws} }

func durationsKey(ws string) refstore.Key {
	return refstore.Key{Partition: "INDEX/durations", Sort: ws}
}

// provenRun is a completed run whose answers stand now.
type provenRun struct {
	record.Proof
	signed  *record.Signature // nil where none is needed
	run     *record.Run
	version refstore.Version // of the run's record
	tasks   record.Node      // nil unless it had to be read
	foreign bool             // it is a run of another workspace
}

// outset is what was seen of the repository before the first lookup, on which a proof rests.
type outset struct {
	generation string      // of garbage collection (executions.Generation)
	quiet      bool        // no collection was under way
	folders    *folderLook // nil: not looked at
}

// proof returns the workspace's proven run, nil if there is none that can be relied on.
// Whatever is odd about it means that there is none: it is derived from the records and
// will be again. Objects in folders that changed since they were last looked at are looked
// at, all others are known to be there.
func (w *proofs) proof(ctx context.Context, ws string, at outset) (*provenRun, error) {
	rec, err := w.states.Derived.Get(ctx, proofKey(ws))
	if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrDamaged) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	demand, err := w.demand(ctx)
	if err != nil {
		return nil, err
	}
	p, signed, err := decodeProof(demand, rec.Value)
	if err != nil {
		return nil, nil
	}
	proven, err := w.standing(ctx, ws, p, at)
	if proven != nil {
		proven.signed = signed
	}
	return proven, err
}

// standing returns the run that a proof is of, nil if it cannot be relied on.
func (w *proofs) standing(ctx context.Context, ws string, p *record.Proof, at outset) (*provenRun, error) {
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
		return nil, nil // what another repository says proves nothing here
	}
	run, err := record.DecodeRun(rec.Value)
	if err != nil || run.State != record.RunCompleted {
		return nil, nil
	}
	proven := &provenRun{Proof: *p, run: run, version: rec.Version}
	there, err := w.stillThere(ctx, proven, at.folders)
	if err != nil || !there {
		return nil, err
	}
	return proven, nil
}

// ofOthers is how many proofs of other packages are looked at for one that is near.
const ofOthers = 2

// nearest returns a proven run of another workspace for one that has no proof: of the very package and inputs if there is one, else
// of the package, else the latest of a package of that name. Its answers are those of lookups, as the generation is one for the whole
// repository. Only where a lookup is a request is that worth a look; elsewhere it is nil.
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
		if p, _, err := decodeProof(demand, rec.Value); err == nil && p.Generation == at.generation && rec.Key.Sort != ws {
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
	others := 0
	for _, c := range list {
		if rank(c) == 2 {
			if others++; others > ofOthers {
				break
			}
		}
		p, err := w.standing(ctx, c.ws, c.proof, at)
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

// A folderLook is what the object folders were like at a moment.
type folderLook struct {
	at    int64 // when the look began, ns
	times [256]int64
}

func lookAtFolders(objects Objects, now time.Time) (*folderLook, error) {
	times, err := objects.ShardTimes()
	return &folderLook{at: now.UnixNano(), times: times}, err
}

// stillThere checks that every output that the proof relies on exists, and renews its
// memory of the object folders. Where the object store presumes, its outputs are named by records, which only a change of the
// generation takes out: nothing is looked at, and the folders' times, which mean nothing there, stay as they are. So a proof
// is as good on another machine as on the one that made it: all else in it is of the records that they share.
func (w *proofs) stillThere(ctx context.Context, p *provenRun, look *folderLook) (bool, error) {
	if w.presumes() {
		return true, nil
	}
	if look == nil {
		var err error
		if look, err = lookAtFolders(w.states.Objects, w.states.Now()); err != nil {
			return false, err
		}
	}
	var doubtful [256]bool
	doubt := false
	for i, t := range look.times {
		if len(p.Shards) != len(look.times) || t != p.Shards[i] || !stamp.Settled(p.CheckedAt, t, 0) {
			doubtful[i], doubt = true, true
		}
	}
	if !doubt {
		return true, nil
	}
	var err error
	if p.tasks, err = w.states.readNode(ctx, p.Tasks); err != nil {
		return false, ignoreLost(err)
	}
	var outputs []objectstore.Hash
	for i := range p.tasks {
		h, err := objectstore.ParseHash(p.tasks[i].Hash)
		if err != nil {
			return false, nil // a task without an output: nothing is proven
		}
		if doubtful[h[0]] {
			outputs = append(outputs, h)
		}
	}
	missing, err := w.states.Objects.Missing(ctx, outputs)
	if err != nil || len(missing) > 0 {
		return false, err
	}
	if whole, err := w.partsThere(ctx, p.tasks, &doubtful); err != nil || !whole {
		return false, err
	}
	p.Shards, p.CheckedAt = look.times[:], look.at
	return true, nil
}

// partsThere checks that what lies in directories among outputs exists, as far as it is doubtful.
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

// presumes tells whether what a record names is there without looking: only collections remove objects, and never what is
// named. It is so where a look is a request.
func (w *proofs) presumes() bool { return presumes(w.states.Objects) }

func presumes(objects Objects) bool {
	p, ok := objects.(interface{ Presumes() bool })
	return ok && p.Presumes()
}

// ignoreLost is err unless that says that an object is lost.
func ignoreLost(err error) error {
	if lost(err) {
		return nil
	}
	return err
}

// prove saves the proof of a run that has completed. The folders' times are those from
// before its first lookup: what was removed while it ran shows as a change.
func (w *proofs) prove(ctx context.Context, ws string, p *record.Proof) error {
	generation, quiet, err := w.states.generation.Read(ctx)
	if err != nil {
		return err
	}
	if !quiet || generation != p.Generation {
		return nil
	}
	return w.saveProof(ctx, ws, p, nil)
}

func (w *proofs) saveProof(ctx context.Context, ws string, p *record.Proof, signed *record.Signature) error {
	value, err := w.encodeProof(ctx, p, signed)
	if err != nil || value == nil {
		return err
	}
	if err := w.states.overwrite(ctx, w.states.Derived, proofKey(ws), value); err != nil {
		return fmt.Errorf("save proof of run %s: %w", p.RunID, err)
	}
	return nil
}

// demand says which signatures answers need; nil: none.
func (w *proofs) demand(ctx context.Context) (*executions.Demand, error) {
	if w.states.Demands == nil {
		return nil, nil
	}
	return w.states.Demands(ctx)
}

// errUnsigned says that a proof does not count because no trusted key has signed it under the present demand.
var errUnsigned = errors.New("the proof is not signed")

// decodeProof reads a proof, and its signature where one is needed: the proof says that its answers are signed, so it counts only
// with the signature of a trusted key, made under the same demand.
func decodeProof(demand *executions.Demand, value []byte) (*record.Proof, *record.Signature, error) {
	if demand == nil {
		p, err := record.DecodeProof(value)
		return p, nil, err
	}
	signed, err := record.DecodeSignedProof(value)
	if err != nil {
		return nil, nil, err
	}
	if !demand.Admits(signed) {
		return nil, nil, errUnsigned
	}
	return &signed.Proof, &signed.Signature, nil
}

// encodeProof is the inverse of decodeProof. signed is the signature of the proof that p renews, nil if it renews none. It returns nil if this
// process can make no proof that counts.
func (w *proofs) encodeProof(ctx context.Context, p *record.Proof, signed *record.Signature) ([]byte, error) {
	demand, err := w.demand(ctx)
	if err != nil || demand == nil {
		return p.Encode(), err
	}
	if signed != nil { // its answers are the same
		return (&record.SignedProof{Signature: *signed, Proof: *p}).Encode(), nil
	}
	if w.states.Signer == nil {
		return nil, nil
	}
	key, err := w.states.Signer()
	if err != nil || !demand.Trusts(key) {
		return nil, err
	}
	return (&record.SignedProof{Signature: demand.Sign(key, p), Proof: *p}).Encode(), nil
}

// baseline turns a proof into what the dataflow compares with.
func (w *proofs) baseline(ctx context.Context, p *provenRun, hash string, pkg *record.Package) (*dataflow.Baseline, error) {
	b := &dataflow.Baseline{RunID: p.RunID, Package: pkg, Outputs: p.tasks, Tasks: p.run.Tasks, Foreign: p.foreign}
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

// durations returns how long tasks took when they last ran. It is advice: none is as good.
func (w *proofs) durations(ctx context.Context, ws string) record.Durations {
	rec, err := w.states.Derived.Get(ctx, durationsKey(ws))
	if err != nil {
		return record.Durations{}
	}
	d, err := record.DecodeDurations(rec.Value)
	if err != nil {
		return record.Durations{}
	}
	return d
}

func (w *proofs) saveDurations(ctx context.Context, ws string, g *dataflow.Graph, out *dataflow.Outcome, d record.Durations) error {
	changed := false
	for i := range out.Tasks {
		if t := &out.Tasks[i]; t.State == dataflow.Succeeded {
			d[g.Name(int32(i))] = max(t.Duration, time.Millisecond) // which the record counts in; 0 is none
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
	if err := w.states.overwrite(ctx, w.states.Derived, durationsKey(ws), d.Encode(names)); err != nil {
		return fmt.Errorf("save durations: %w", err)
	}
	return nil
}
