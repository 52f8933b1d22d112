package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
	"e3/internal/jobs/queue"
	"e3/internal/pkgref"
	"e3/internal/settings"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// records checks every record by itself: that it decodes, and matches its place. It begins the walk of references.
func (v *verifier) records(ctx context.Context) error {
	v.begin(ctx)
	v.progress(Progress{Phase: Reading})
	if err := v.past(v.promises.expect(ctx)); err != nil {
		return fmt.Errorf("check runs: %w", err)
	}
	if err := v.past(v.executions(ctx)); err != nil {
		return fmt.Errorf("check executions: %w", err)
	}
	if err := v.past(v.lists.executions(ctx)); err != nil {
		return fmt.Errorf("check the lists of executions: %w", err)
	}
	for _, t := range v.tables() {
		if err := v.past(v.table(ctx, t)); err != nil {
			return fmt.Errorf("check records: %w", err)
		}
	}
	if err := v.lostWorkspaces(ctx); err != nil {
		return fmt.Errorf("check workspaces: %w", err)
	}
	names, err := v.workspaceNames(ctx)
	if err := v.past(err); err != nil {
		return fmt.Errorf("check runs: %w", err)
	}
	for _, ws := range names {
		if err := v.past(v.runs(ctx, ws)); err != nil {
			return fmt.Errorf("check runs of workspace %s: %w", ws, err)
		}
		if err := v.past(v.table(ctx, v.blocks(ws))); err != nil {
			return fmt.Errorf("check what waits for approval in workspace %s: %w", ws, err)
		}
		if err := v.past(v.eventLogs.events(ctx, ws)); err != nil {
			return fmt.Errorf("check events of workspace %s: %w", ws, err)
		}
	}
	if err := v.past(v.promises.unmet(ctx)); err != nil {
		return fmt.Errorf("check executions: %w", err)
	}
	if err := v.past(v.eventLogs.listedEvents(ctx, names)); err != nil {
		return fmt.Errorf("check the list of events: %w", err)
	}
	if err := v.past(v.queues(ctx)); err != nil {
		return fmt.Errorf("check queues: %w", err)
	}
	return v.state(ctx)
}

// format checks the copies of the repository's description. At least one copy is intact, since the repository could
// be opened.
func (v *verifier) format(ctx context.Context) error {
	if v.Format == nil {
		return nil
	}
	faults, err := v.Format(ctx)
	for _, bad := range faults {
		if bad.Missing {
			if err := v.copyFormat(ctx, bad); err != nil {
				return err
			}
			continue
		}
		v.fault(Fault{
			Kind: BadRecord, Where: bad.Where, Problem: bad.Err.Error(), For: []string{"the repository"},
			Advice: "with --repair it is written again after its copy",
			mend: func(ctx context.Context) (string, bool, error) {
				err := bad.Mend(ctx)
				return "written again after its copy", err == nil, err
			},
		})
	}
	return err
}

func (v *verifier) copyFormat(ctx context.Context, f FormatFault) error {
	if !v.Repair {
		v.note("%s, a copy, is not there; with --repair it is made", f.Where)
		return nil
	}
	v.note("%s, a copy, was not there and is made", f.Where)
	return f.Mend(ctx)
}

// table is the records of a partition.
type table struct {
	partition string
	fields    []string
	where     func(sort string) string // in the repository
	count     *int64
	check     func(rec refstore.Record) error
	beside    bool // the check is about a field: an empty or damaged value is no fault here
	owner     func(sort string) string
	advice    string
	// mend repairs a bad record; nil: it cannot be repaired. lost is mend for a record that is gone; nil: mend does it.
	mend, lost func(ctx context.Context, rec refstore.Record) (remedy string, whole bool, err error)
}

// decodes checks that the value of a record can be read.
func decodes[T any](decode func([]byte) (T, error)) func(refstore.Record) error {
	return func(rec refstore.Record) error {
		_, err := decode(rec.Value)
		return err
	}
}

func (v *verifier) tables() []table {
	file := func(dir, suffix string) func(string) string {
		return func(sort string) string { return dir + "/" + sort + suffix }
	}
	named := func(what string) func(string) string {
		return func(sort string) string { return what + " " + sort }
	}
	restore := func(ctx context.Context, rec refstore.Record) (string, bool, error) {
		remedy, err := v.Workspaces.Repairer.Restore(ctx, rec.Key.Sort)
		return remedy, err == nil, err
	}
	return []table{{
		partition: "PACKAGE", where: file("packages", ""), count: &v.report.Packages,
		owner: func(sort string) string { return "package " + pkgref.OfKey(sort) },
		check: func(rec refstore.Record) error {
			_, err := objectstore.ParseHash(strings.TrimSuffix(string(rec.Value), "\n"))
			return err
		},
		advice: "register the package again, with e3 package build or import", mend: v.remove("removed"),
	}, {
		partition: "WORKSPACE", where: file("workspaces", ".beast2"), count: &v.report.Workspaces, owner: named("workspace"),
		check:  decodes(record.DecodeWorkspaceState),
		advice: "with --repair it is as its latest run left it, as far as that is known",
		mend:   restore,
	}, {
		partition: "WORKSPACE", fields: []string{workspace.FieldDeployment}, // of a shared workspace
		where: file("workspaces", ".beast2~/"+workspace.FieldDeployment), owner: named("workspace"),
		beside: true, check: func(rec refstore.Record) (err error) {
			if data, ok := rec.Field(workspace.FieldDeployment); ok && len(data) > 0 {
				_, err = record.DecodeWorkspaceDeployment(data)
			}
			return err
		},
		advice: "deploy its package, or package file, again", mend: restore,
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
		check: decodes(record.DecodeTombstones),
		mend:  v.remove("removed"),
	}, {
		partition: "CANCEL", where: file("cancels", ".rec"), owner: named("the request to cancel the run of workspace"),
		check:  decodes(record.DecodeCancellation),
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
		advice: "mend it by hand: look over settings/repository.json and take off the line after the JSON; or remove it, verify with --repair, and make the settings again; until then nothing is imported",
		lost:   v.remove("all settings are lost: make them again, the keys that exports must be signed with to begin with"),
	}, {
		partition: "INDEX/links", where: file("index/links", ".rec"), owner: named("workspace"),
		check:  decodes(record.DecodeLink),
		advice: "deploy the package file again", mend: v.remove("removed: the workspace follows no package file any more; deploy it again to follow it"),
	}, {
		partition: "INDEX/proofs", where: file("index/proofs", ".rec"), owner: named("workspace"),
		check:  decodes(record.DecodeProof),
		advice: "the next start makes another", mend: v.remove("removed: the next start makes another"),
	}, {
		partition: "INDEX/durations", where: file("index/durations", ".rec"), owner: named("workspace"),
		check:  decodes(record.DecodeDurations),
		advice: "the next start makes another", mend: v.remove("removed: the next start makes another"),
	}}
}

// table checks the records of a partition.
func (v *verifier) table(ctx context.Context, t table) error {
	for rec, err := range v.Records.List(ctx, refstore.Query{Partition: t.partition, Fields: t.fields}) {
		if err != nil && !errors.Is(err, refstore.ErrDamaged) {
			return err
		}
		if t.count != nil {
			*t.count++
		}
		if err == nil && t.check(rec) == nil || t.beside && len(rec.Value) == 0 {
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
		mend := t.mend
		if rec.Version == refstore.Absent && t.lost != nil {
			mend = t.lost
		}
		if mend != nil {
			f.mend = func(ctx context.Context) (string, bool, error) { return mend(ctx, rec) }
		}
		v.fault(f)
	}
	return nil
}

// again checks a bad record once more; nil if the record is fine now or gone.
func (v *verifier) again(ctx context.Context, key refstore.Key, fields []string, check func(refstore.Record) error) (refstore.Record, error, error) {
	rec, err := v.Records.Get(ctx, key, fields...)
	if errors.Is(err, refstore.ErrNotFound) {
		return rec, nil, nil
	}
	if errors.Is(err, refstore.ErrDamaged) {
		return rec, err, nil
	}
	if err != nil {
		return rec, nil, err
	}
	return rec, check(rec), nil
}

// lostWorkspaces finds workspaces that were removed by hand, by the records derived from them. e3 removes derived
// records before the workspace itself, so no crash leaves them alone.
func (v *verifier) lostWorkspaces(ctx context.Context) error {
	lost := map[string]string{} // what is left of a workspace, by its name
	for partition, what := range map[string]string{"INDEX/links": "the link to its package file", "INDEX/proofs": "the proof of its results"} {
		for rec, err := range v.Records.List(ctx, refstore.Query{Partition: partition, KeysOnly: true}) {
			if err != nil {
				return err
			}
			_, err := v.Records.Get(ctx, refstore.Key{Partition: "WORKSPACE", Sort: rec.Key.Sort})
			if err == nil || errors.Is(err, refstore.ErrDamaged) {
				continue
			}
			if !errors.Is(err, refstore.ErrNotFound) {
				return err
			}
			left, err := v.Records.Get(ctx, rec.Key)
			if err != nil {
				continue // removed with the workspace
			}
			if link, err := record.DecodeLink(left.Value); partition == "INDEX/links" && err == nil && link.File == "" {
				continue // an import, which may have been cut off, writes this record before the workspace
			}
			lost[rec.Key.Sort] = what
		}
	}
	for ws, what := range lost {
		v.fault(Fault{
			Kind: BadRecord, Where: "workspaces/" + ws + ".beast2", Problem: "it is gone, and " + what + " is there", For: []string{"workspace " + ws},
			Advice: "with --repair it is as its latest run left it, as far as that is known",
			mend: func(ctx context.Context) (string, bool, error) {
				remedy, err := v.Workspaces.Repairer.Restore(ctx, ws)
				return remedy, err == nil, err
			},
		})
	}
	return nil
}

// remove removes a record in the version found.
func (v *verifier) remove(remedy string) func(context.Context, refstore.Record) (string, bool, error) {
	return func(ctx context.Context, rec refstore.Record) (string, bool, error) {
		err := v.Records.Delete(ctx, rec.Key, rec.Version)
		if errors.Is(err, refstore.ErrNotFound) || errors.Is(err, refstore.ErrConflict) {
			err = nil // another process has mended it
		}
		return remedy, err == nil, err
	}
}

// replace rewrites a record that has a constant value.
func (v *verifier) replace(value []byte) func(context.Context, refstore.Record) (string, bool, error) {
	return func(ctx context.Context, rec refstore.Record) (string, bool, error) {
		_, err := v.Records.Put(ctx, refstore.Record{Key: rec.Key, Value: value, Version: rec.Version})
		if errors.Is(err, refstore.ErrConflict) {
			err = nil // another process has mended it
		}
		return "written again", err == nil, err
	}
}

// workspaceNames are the names of workspaces, including removed ones that still have runs or events.
func (v *verifier) workspaceNames(ctx context.Context) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, partition := range []string{"WORKSPACE", "RUNS"} {
		for rec, err := range v.Records.List(ctx, refstore.Query{Partition: partition, KeysOnly: true}) {
			if err != nil {
				return nil, err
			}
			add(rec.Key.Sort)
		}
	}
	for partition, err := range v.Records.ListPartitions(ctx, "EVENTS") {
		if err != nil {
			return nil, err
		}
		add(strings.TrimPrefix(partition, "EVENTS/"))
	}
	journals, err := events.Journals(ctx, v.Records)
	if err != nil {
		return nil, err
	}
	for _, ws := range journals {
		add(ws)
	}
	return names, nil
}

// blocks are the blocks of a workspace's tasks that wait, or waited, for approval.
func (v *verifier) blocks(ws string) table {
	return table{
		partition: approval.Partition(ws), advice: "the next start asks again", mend: v.remove("removed: the next start asks again"),
		check: func(rec refstore.Record) error {
			_, err := approval.Decode(rec)
			return err
		},
		where: func(sort string) string {
			return "approvals/" + ws + "/" + strings.ReplaceAll(sort, "/", "%2F") + ".rec"
		},
		owner: func(sort string) string { return "what waits for approval in workspace " + ws + ", " + sort },
	}
}

// queues checks the queued jobs.
func (v *verifier) queues(ctx context.Context) error {
	partitions, err := v.Jobs.Partitions(ctx)
	if err != nil {
		return err
	}
	for _, partition := range partitions {
		dir := strings.ToLower(queue.Kind) + strings.TrimPrefix(partition, queue.Kind)
		t := table{
			partition: partition, check: queue.Check, mend: v.remove("removed: a run that waits for it queues it again"),
			where:  func(sort string) string { return dir + "/" + sort + ".rec" },
			owner:  func(sort string) string { return "queue " + strings.Split(dir, "/")[1] + ", " + sort },
			advice: "remove it: a run that waits for it queues it again",
		}
		if partition == queue.Names {
			t.mend, t.advice = v.replace([]byte(queue.NameRecord)), "with --repair it is made again"
			t.owner = func(sort string) string { return "queue " + sort }
		}
		err := v.table(ctx, t)
		if err != nil {
			return err
		}
	}
	return nil
}

// runs checks the run records of a workspace.
func (v *verifier) runs(ctx context.Context, ws string) error {
	var one refstore.Key
	err := v.table(ctx, table{
		partition: "DATAFLOW/" + ws, fields: []string{runview.FieldProvenance, workspace.FieldEvents}, count: &v.report.Runs,
		where: func(sort string) string { return "dataflows/" + ws + "/" + sort + ".beast2" },
		owner: func(sort string) string { return "run " + sort + " of workspace " + ws },
		check: func(rec refstore.Record) error {
			run, err := record.DecodeRun(rec.Value)
			if err == nil && run.RunID != rec.Key.Sort {
				err = fmt.Errorf("it names run %q", run.RunID)
			}
			if data, ok := rec.Field(runview.FieldProvenance); ok && err == nil {
				_, err = record.DecodeProvenance(data)
			}
			one = rec.Key
			if runview.Imported(rec) && err == nil {
				v.eventLogs.imported = append(v.eventLogs.imported, importedEvents{ws, rec.Key.Sort, runview.BoundsOf(rec)})
			}
			return err
		},
		advice: "with --repair it is made again from the events of the run, as far as these are whole",
		mend: func(ctx context.Context, rec refstore.Record) (string, bool, error) {
			again, err := v.Workspaces.Repairer.RebuildRun(ctx, ws, rec.Key.Sort)
			if err != nil || again {
				return "made again from the events of the run", err == nil, err
			}
			return v.remove("removed: its events are not whole, and the next start makes another")(ctx, rec)
		},
	})
	if err != nil || one.Sort == "" || v.lists.index == nil {
		return err
	}
	return v.lists.entered(ctx, one)
}

// latestRun is the run that the state of a workspace names as its latest.
type latestRun struct {
	workspace, run string
	key            refstore.Key    // of the run's record
	state          refstore.Record // of the workspace
	deployed       string          // the hash of the workspace's package
}

// latestRuns yields the latest run of each workspace. A damaged state is a fault of its own.
func (v *verifier) latestRuns(ctx context.Context) iter.Seq2[latestRun, error] {
	return func(yield func(latestRun, error) bool) {
		for rec, err := range v.Records.List(ctx, refstore.Query{Partition: "WORKSPACE"}) {
			if errors.Is(err, refstore.ErrDamaged) {
				continue
			}
			if err != nil {
				yield(latestRun{}, err)
				return
			}
			s, err := record.DecodeWorkspaceState(rec.Value)
			if err != nil || s == nil || s.CurrentRunID == "" {
				continue
			}
			if ws, run := rec.Key.Sort, s.CurrentRunID; !yield(latestRun{ws, run, runview.Key(ws, run), rec, s.PackageHash}, nil) {
				return
			}
		}
	}
}

// state notes workspaces whose latest run has lost its record, which a start repairs.
func (v *verifier) state(ctx context.Context) error {
	for last, err := range v.latestRuns(ctx) {
		if err != nil {
			return err
		}
		if _, err := v.Records.Get(ctx, last.key); !errors.Is(err, refstore.ErrNotFound) {
			if err != nil && !errors.Is(err, refstore.ErrDamaged) {
				return err
			}
			continue
		}
		now, err := v.Records.Get(ctx, last.state.Key)
		if err == nil && now.Version == last.state.Version { // otherwise a run has just replaced it
			v.note("workspace %s names run %s as its latest, whose record is gone; the next start makes another", last.workspace, last.run)
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
