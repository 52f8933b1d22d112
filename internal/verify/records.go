package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"e3/executions"
	"e3/internal/block"
	"e3/internal/events"
	"e3/internal/queue"
	"e3/internal/record"
	"e3/internal/settings"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// records checks every record by itself: that it decodes, and that it says what its place says.
func (v *verifier) records(ctx context.Context) error {
	v.progress(Progress{Phase: Reading})
	if err := v.executions(ctx); err != nil {
		return fmt.Errorf("check executions: %w", err)
	}
	for _, t := range v.tables() {
		if err := v.table(ctx, t); err != nil {
			return fmt.Errorf("check records: %w", err)
		}
	}
	names, err := v.workspaceNames(ctx)
	if err != nil {
		return fmt.Errorf("check runs: %w", err)
	}
	for _, ws := range names {
		if err := v.runs(ctx, ws); err != nil {
			return fmt.Errorf("check runs of workspace %s: %w", ws, err)
		}
		if err := v.table(ctx, v.blocks(ws)); err != nil {
			return fmt.Errorf("check what waits for approval in workspace %s: %w", ws, err)
		}
		if err := v.events(ctx, ws); err != nil {
			return fmt.Errorf("check events of workspace %s: %w", ws, err)
		}
	}
	if err := v.queues(ctx); err != nil {
		return fmt.Errorf("check queues: %w", err)
	}
	return v.state(ctx)
}

// table is the records of a partition.
type table struct {
	partition string
	fields    []string
	where     func(sort string) string // in the repository
	count     *int64
	check     func(rec refstore.Record) error
	owner     func(sort string) string
	advice    string
	mend      func(ctx context.Context, rec refstore.Record) (remedy string, whole bool, err error) // nil: it cannot be repaired
}

func (v *verifier) tables() []table {
	file := func(dir, suffix string) func(string) string {
		return func(sort string) string { return dir + "/" + sort + suffix }
	}
	named := func(what string) func(string) string {
		return func(sort string) string { return what + " " + sort }
	}
	return []table{{
		partition: "PACKAGE", where: file("packages", ""), count: &v.report.Packages,
		owner: func(sort string) string { return "package " + atVersion(sort) },
		check: func(rec refstore.Record) error {
			_, err := objectstore.ParseHash(strings.TrimSuffix(string(rec.Value), "\n"))
			return err
		},
		advice: "register the package again, with e3 package build or import", mend: v.remove("removed"),
	}, {
		partition: "WORKSPACE", where: file("workspaces", ".beast2"), count: &v.report.Workspaces, owner: named("workspace"),
		check: func(rec refstore.Record) error {
			_, err := record.DecodeWorkspaceState(rec.Value)
			return err
		},
		advice: "deploy its package again",
		mend: func(ctx context.Context, rec refstore.Record) (string, bool, error) {
			_, err := v.Workspaces.Reset(ctx, rec.Key.Sort)
			return "the workspace is empty now: deploy its package again", true, err
		},
	}, {
		partition: "WORKSPACE", fields: []string{workspace.FieldDeployment}, // of one that machines share
		where: file("workspaces", ".beast2~/"+workspace.FieldDeployment), owner: named("workspace"),
		check: func(rec refstore.Record) (err error) {
			if data, ok := rec.Field(workspace.FieldDeployment); ok && len(rec.Value) > 0 {
				_, err = record.DecodeWorkspaceDeployment(data)
			}
			return err
		},
		advice: "deploy its package, or package file, again",
	}, {
		partition: "PIN", where: file("pins", ".rec"), owner: named("the pin of execution"),
		check: func(rec refstore.Record) error {
			pin, err := record.DecodePin(rec.Value)
			if err == nil {
				_, ok := executions.ParseKey(pin.Task + "/" + pin.Inputs)
				if !ok {
					err = fmt.Errorf("it names no key")
				}
			}
			return err
		},
		advice: "pin the execution again", mend: v.remove("removed: pin the execution again"),
	}, {
		partition: "TOMBSTONE", where: file("tombstones", ".rec"), owner: named("what was pruned of task"),
		check: func(rec refstore.Record) error {
			_, err := record.DecodeTombstones(rec.Value)
			return err
		},
		mend: v.remove("removed"),
	}, {
		partition: "CANCEL", where: file("cancels", ".rec"), owner: named("the request to cancel the run of workspace"),
		check: func(rec refstore.Record) error {
			_, err := record.DecodeCancellation(rec.Value)
			return err
		},
		advice: "cancel the run again", mend: v.remove("removed: cancel the run again"),
	}, {
		partition: "SETTINGS", where: file("settings", ".json"), owner: named("the settings of the"),
		check: func(rec refstore.Record) error {
			if rec.Key.Sort != "repository" {
				return nil // a newer e3's
			}
			_, err := settings.Decode(rec.Value)
			return err
		},
		advice: "mend the file by hand, or remove it and make the settings again; until then nothing is imported",
	}, {
		partition: "INDEX/links", where: file("index/links", ".rec"), owner: named("workspace"),
		check: func(rec refstore.Record) error {
			_, err := record.DecodeLink(rec.Value)
			return err
		},
		advice: "deploy the package file again",
	}, {
		partition: "INDEX/proofs", where: file("index/proofs", ".rec"), owner: named("workspace"),
		check: func(rec refstore.Record) error {
			_, err := record.DecodeProof(rec.Value)
			return err
		},
		advice: "the next start makes another", mend: v.remove("removed: the next start makes another"),
	}, {
		partition: "INDEX/durations", where: file("index/durations", ".rec"), owner: named("workspace"),
		check: func(rec refstore.Record) error {
			_, err := record.DecodeDurations(rec.Value)
			return err
		},
		advice: "the next start makes another", mend: v.remove("removed: the next start makes another"),
	}}
}

func atVersion(sort string) string { return strings.Replace(sort, "/", "@", 1) }

// table checks the records of a partition.
func (v *verifier) table(ctx context.Context, t table) error {
	for rec, err := range v.Records.List(ctx, refstore.Query{Partition: t.partition, Fields: t.fields}) {
		if err != nil {
			return err
		}
		if t.count != nil {
			*t.count++
		}
		if t.check(rec) == nil {
			continue
		}
		rec, bad, err := v.again(ctx, rec.Key, t.fields, t.check)
		if err != nil {
			return err
		}
		if bad == nil {
			continue
		}
		f := Fault{Kind: BadRecord, Where: t.where(rec.Key.Sort), Problem: bad.Error(), For: []string{t.owner(rec.Key.Sort)}, Advice: t.advice}
		if t.mend != nil {
			f.mend = func(ctx context.Context) (string, bool, error) { return t.mend(ctx, rec) }
		}
		v.fault(f)
	}
	return nil
}

// again looks once more at a record that was found to be bad, nil: it is not, or it is gone.
func (v *verifier) again(ctx context.Context, key refstore.Key, fields []string, check func(refstore.Record) error) (refstore.Record, error, error) {
	rec, err := v.Records.Get(ctx, key, fields...)
	if errors.Is(err, refstore.ErrNotFound) {
		return rec, nil, nil
	}
	if err != nil {
		return rec, nil, err
	}
	return rec, check(rec), nil
}

// remove takes a record out as it was found.
func (v *verifier) remove(remedy string) func(context.Context, refstore.Record) (string, bool, error) {
	return func(ctx context.Context, rec refstore.Record) (string, bool, error) {
		err := v.Records.Delete(ctx, rec.Key, rec.Version)
		if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrConflict) {
			err = nil // somebody else has mended it
		}
		return remedy, err == nil, err
	}
}

// workspaceNames are those of workspaces, and of runs whose workspace is not there.
func (v *verifier) workspaceNames(ctx context.Context) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	for _, partition := range []string{"WORKSPACE", "RUNS"} {
		for rec, err := range v.Records.List(ctx, refstore.Query{Partition: partition, KeysOnly: true}) {
			if err != nil {
				return nil, err
			}
			if !seen[rec.Key.Sort] {
				seen[rec.Key.Sort] = true
				names = append(names, rec.Key.Sort)
			}
		}
	}
	return names, nil
}

// blocks are those of the tasks of a workspace that wait, or waited, for somebody to approve.
func (v *verifier) blocks(ws string) table {
	return table{
		partition: "BLOCK/" + ws,
		where:     func(sort string) string { return "blocks/" + ws + "/" + strings.ReplaceAll(sort, "/", "%2F") + ".rec" },
		owner:     func(sort string) string { return "what waits for approval in workspace " + ws + ", " + sort },
		check: func(rec refstore.Record) error {
			_, err := block.Decode(rec)
			return err
		},
		advice: "a run that waits for it has to be cancelled and started again", mend: v.remove("removed: a run that waits for it has to be cancelled and started again"),
	}
}

// queues checks what is queued for workers.
func (v *verifier) queues(ctx context.Context) error {
	partitions, err := queue.New(v.Records, nil, queue.Options{Now: v.Now}).Partitions(ctx)
	if err != nil {
		return err
	}
	for _, partition := range partitions {
		dir := strings.ToLower(queue.Kind) + strings.TrimPrefix(partition, queue.Kind)
		err := v.table(ctx, table{
			partition: partition, check: queue.Check,
			where:  func(sort string) string { return dir + "/" + sort + ".rec" },
			owner:  func(sort string) string { return "queue " + strings.Split(dir, "/")[1] + ", " + sort },
			advice: "remove it: a run that waits for it queues it again", mend: v.remove("removed: a run that waits for it queues it again"),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const fieldProvenance = "provenance.beast2"

// runs checks the run records of a workspace.
func (v *verifier) runs(ctx context.Context, ws string) error {
	return v.table(ctx, table{
		partition: "DATAFLOW/" + ws, fields: []string{fieldProvenance}, count: &v.report.Runs,
		where: func(sort string) string { return "dataflows/" + ws + "/" + sort + ".beast2" },
		owner: func(sort string) string { return "run " + sort + " of workspace " + ws },
		check: func(rec refstore.Record) error {
			run, err := record.DecodeRun(rec.Value)
			if err == nil && run.RunID != rec.Key.Sort {
				err = fmt.Errorf("it names run %q", run.RunID)
			}
			if data, ok := rec.Field(fieldProvenance); ok && err == nil {
				_, err = record.DecodeProvenance(data)
			}
			return err
		},
		advice: "the next start makes another", mend: v.remove("removed: the next start makes another"),
	})
}

// state notes what of a workspace leads nowhere by itself: a start mends it.
func (v *verifier) state(ctx context.Context) error {
	for rec, err := range v.Records.List(ctx, refstore.Query{Partition: "WORKSPACE"}) {
		if err != nil {
			return err
		}
		s, err := record.DecodeWorkspaceState(rec.Value)
		if err != nil || s == nil || s.CurrentRunID == "" {
			continue
		}
		if _, err := v.Records.Get(ctx, refstore.Key{Partition: "DATAFLOW/" + rec.Key.Sort, Sort: s.CurrentRunID}); !errors.Is(err, refstore.ErrNotFound) {
			if err != nil {
				return err
			}
			continue
		}
		now, err := v.Records.Get(ctx, rec.Key)
		if err == nil && now.Version == rec.Version { // or else a run has just taken its place
			v.note("workspace %s names run %s as its latest, whose record is gone; the next start makes another", rec.Key.Sort, s.CurrentRunID)
		}
	}
	for pin, err := range v.Curator.Pins(ctx) {
		if errors.Is(err, executions.ErrMalformed) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := v.Curator.Get(ctx, pin.Key, pin.ExecutionID); errors.Is(err, executions.ErrNotFound) {
			v.note("the pin of execution %s keeps nothing: there is no such execution", pin.ExecutionID)
		}
	}
	return nil
}

// events checks that the events of a workspace's runs can be read, without gaps. A last line that is torn is none.
func (v *verifier) events(ctx context.Context, ws string) error {
	for key, err := range v.Records.ListStreams(ctx, refstore.Query{Partition: "EVENTS/" + ws}) {
		if err != nil {
			return err
		}
		bad := v.readEvents(ctx, ws, key.Sort)
		if bad != nil { // a writer that died may have left a line that another has cut off meanwhile
			bad = v.readEvents(ctx, ws, key.Sort)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if bad == nil {
			continue
		}
		v.fault(Fault{
			Kind: BadEvents, Where: "events/" + ws + "/" + key.Sort + ".ndjson", Problem: bad.Error(),
			For: []string{"run " + key.Sort + " of workspace " + ws},
			mend: func(ctx context.Context) (string, bool, error) {
				err := v.Workspaces.CutEvents(ctx, ws, key.Sort)
				return "cut off there; what comes before can be read again", err == nil, err
			},
		})
	}
	return nil
}

func (v *verifier) readEvents(ctx context.Context, ws, run string) error {
	for _, err := range events.Read(ctx, v.Records, ws, run) {
		if err != nil {
			return err
		}
	}
	return nil
}
