package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
)

// Approvals are the approvals that tasks of workspaces wait for. They can be decided while no run is at work.
type Approvals struct {
	states *States
	blocks *approval.Blocks
}

func newApprovals(states *States) *Approvals {
	return &Approvals{states, approval.New(states.Records, approval.Options{Now: states.Now, Fault: states.Warn, Journal: journal{states}})}
}

// journal writes decisions to the journals of workspaces.
type journal struct{ states *States }

var blockEvents = map[approval.Status]events.Type{
	approval.Approved: events.BlockApproved, approval.Rejected: events.BlockRejected,
	approval.Pending: events.BlockWithdrawn, approval.Closed: events.BlockClosed,
}

// Next implements approval.Journal.
func (j journal) Next(ctx context.Context, ws string) (int64, error) {
	last, err := events.JournalEnd(ctx, j.states.Records, ws)
	return last + 1, err
}

// Tell implements approval.Journal. An event and the change that it reports share the block, the type and the time.
func (j journal) Tell(ctx context.Context, b *approval.Block, from int64) error {
	e := events.Event{Type: blockEvents[b.Status], Time: b.At, Task: b.Task, Execution: b.Execution, Data: &events.Data{
		Run: b.Run, Key: b.Key, Block: b.ID, BlockType: string(b.Type), Step: b.Step, By: b.By, Message: b.Note, At: b.At.UTC().Format(time.RFC3339Nano)}}
	same := func(old *events.Event) bool {
		d := old.Data
		return old.Type == e.Type && d != nil && d.Block == b.ID && d.At == e.Data.At
	}
	if err := events.AppendJournalOnce(ctx, j.states.Records, b.Workspace, j.states.Now, from-1, e, same); err != nil {
		return fmt.Errorf("journal of workspace %s: %w", b.Workspace, err)
	}
	return j.states.Records.Sync(ctx)
}

// Deferred returns the blocks of a workspace that wait for approval, whether a run is at work or not.
func (w *Approvals) Deferred(ctx context.Context, ws string) ([]approval.Block, error) {
	waiting, _, err := w.Standing(ctx, ws)
	return waiting, err
}

// Standing is Deferred, and also returns the decided blocks on which no run has acted.
func (w *Approvals) Standing(ctx context.Context, ws string) (waiting, decided []approval.Block, err error) {
	state, r, err := w.stand(ctx, ws)
	if err != nil {
		return nil, nil, err
	}
	return w.deferred(ctx, state, ws, r)
}

// stand reads a workspace and its latest run; the report is nil if there is no run.
func (w *Approvals) stand(ctx context.Context, ws string) (*State, *runview.Report, error) {
	state, err := w.states.State(ctx, ws)
	if err != nil {
		return nil, nil, err
	}
	r, err := w.states.Runs.Summary(ctx, ws)
	if err != nil && !errors.Is(err, runview.ErrNoRun) {
		return nil, nil, err
	}
	return state, r, nil
}

// deferred is Standing for a workspace whose state and latest run r were read. The next run acts on the blocks in
// decided.
func (w *Approvals) deferred(ctx context.Context, state *State, ws string, r *runview.Report) (waiting, decided []approval.Block, err error) {
	all, err := w.all(ctx, state, ws, "")
	if err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(all, func(x, y approval.Block) int { return strings.Compare(x.Task, y.Task) })
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(b approval.Block) bool { return b.Task != all[0].Task })
		if n < 0 {
			n = len(all)
		}
		switch b := present(all[:n]); {
		case b.Status == approval.Pending:
			waiting = append(waiting, *b)
		case b.Status != approval.Closed && b.Acted.IsZero():
			decided = append(decided, *b)
		}
		all = all[n:]
	}
	return waiting, decided, nil
}

// all returns the blocks of a workspace, or of one task, that belong to the deployed package. An unreadable block is
// left out, unless the task is named.
func (w *Approvals) all(ctx context.Context, state *State, ws, task string) (found []approval.Block, err error) {
	for b, err := range w.blocks.List(ctx, ws, task) {
		switch {
		case errors.Is(err, approval.ErrMalformed) && task == "":
		case err != nil:
			return nil, fmt.Errorf("list the tasks that wait for approval: %w", err)
		default:
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	return w.unchanged(ctx, state, found)
}

// unchanged drops the blocks of tasks that were changed or removed after the block was made. The next run that
// settles such a task closes them.
func (w *Approvals) unchanged(ctx context.Context, state *State, list []approval.Block) ([]approval.Block, error) {
	if !state.Deployed {
		return nil, nil
	}
	pkg, err := w.states.Packages.Load(ctx, state.PackageHash)
	if errors.Is(err, record.ErrType) { // a package of the reference: nothing of it runs
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	hashes := make(map[string]string, len(pkg.Tasks))
	for i := range pkg.Tasks {
		hashes[pkg.Tasks[i].Name] = pkg.Tasks[i].Task
	}
	return slices.DeleteFunc(list, func(b approval.Block) bool { return hashes[b.Task] != b.TaskHash() }), nil
}

// NotWaitingError says that a task does not wait for approval.
type NotWaitingError struct {
	Workspace string
	Task      string
	Others    []string // tasks of the workspace that wait
}

func (e *NotWaitingError) Error() string {
	text := fmt.Sprintf("%s.%s does not wait for approval", e.Workspace, e.Task)
	if len(e.Others) > 0 {
		return text + "; tasks that wait: " + strings.Join(e.Others, ", ")
	}
	return text + ", and nothing else does"
}

// Unwrap makes errors.Is(err, approval.ErrNotFound) true.
func (e *NotWaitingError) Unwrap() error { return approval.ErrNotFound }

// A Decision is the outcome of a decision about a task.
type Decision struct {
	Workspace string          `json:"workspace"`
	Task      string          `json:"task"`
	Run       string          `json:"run"` // the latest run that asked
	Block     string          `json:"block"`
	Type      approval.Type   `json:"type"`
	Status    approval.Status `json:"status"`
	Changed   bool            `json:"changed"` // the decision is new
	By        string          `json:"by,omitempty"`
	At        moment.Time     `json:"at"`
	Note      string          `json:"note,omitempty"`
	Live      bool            `json:"-"` // a run at work waits for it
}

// Resolve decides about a task that waits for approval, whether a run is at work or not. Errors are an *UnknownError,
// a *NotWaitingError, and an *approval.ResolvedError if the task was decided otherwise.
func (w *Approvals) Resolve(ctx context.Context, ws, task string, res approval.Resolution) (Decision, error) {
	return w.decide(ctx, ws, task, func(b *approval.Block) (approval.Block, bool, error) { return w.blocks.Resolve(ctx, b, res) })
}

// Withdraw takes back the decision about a task: an approval that no run has acted on, or a rejection, as res says.
// It returns the same errors as Resolve.
func (w *Approvals) Withdraw(ctx context.Context, ws, task string, res approval.Resolution) (Decision, error) {
	return w.decide(ctx, ws, task, func(b *approval.Block) (approval.Block, bool, error) { return w.blocks.Withdraw(ctx, b, res) })
}

// decide changes the present block of a task.
func (w *Approvals) decide(ctx context.Context, ws, task string, change func(*approval.Block) (approval.Block, bool, error)) (Decision, error) {
	state, r, err := w.stand(ctx, ws)
	if err != nil {
		return Decision{}, err
	}
	all, err := w.all(ctx, state, ws, task)
	if err != nil {
		return Decision{}, err
	}
	b := present(all)
	if b == nil {
		return Decision{}, w.notWaiting(ctx, ws, task, state, r)
	}
	now, changed, err := change(b)
	if errors.Is(err, approval.ErrNotFound) { // already approved: a later block waits, or none
		err = w.notWaiting(ctx, ws, task, state, r)
	}
	return Decision{
		Workspace: now.Workspace, Task: now.Task, Run: now.Run, Block: now.ID, Type: now.Type, Status: now.Status,
		Changed: changed, By: now.By, At: moment.At(now.At), Note: now.Note, Live: r != nil && r.Live && now.Run == r.RunID,
	}, err
}

// present returns the block of the latest run, since other blocks are about other inputs; nil if there are no blocks.
// Among several it prefers a pending block, then the latest change.
func present(all []approval.Block) *approval.Block {
	var found *approval.Block
	for i := range all {
		b := &all[i]
		switch waits := b.Status == approval.Pending; {
		case found == nil, b.Run > found.Run:
			found = b
		case b.Run < found.Run:
		case waits != (found.Status == approval.Pending):
			if waits {
				found = b
			}
		case changedAt(b).After(changedAt(found)):
			found = b
		}
	}
	return found
}

// Present returns the block of a task that the latest run has asked about; nil if there is none.
func (w *Approvals) Present(ctx context.Context, ws, task string) (*approval.Block, error) {
	state, err := w.states.State(ctx, ws)
	if err != nil {
		return nil, err
	}
	all, err := w.all(ctx, state, ws, task)
	return present(all), err
}

// changedAt is when a block was made or has changed last.
func changedAt(b *approval.Block) time.Time {
	if b.At.IsZero() {
		return b.Created
	}
	return b.At
}

// notWaiting returns the error that says why a task does not wait, or that no task has that name.
func (w *Approvals) notWaiting(ctx context.Context, ws, task string, state *State, r *runview.Report) error {
	if state.Deployed {
		pkg, err := w.states.Packages.Load(ctx, state.PackageHash)
		if err != nil {
			return err
		}
		known := make([]string, len(pkg.Tasks))
		for i := range pkg.Tasks {
			known[i] = pkg.Tasks[i].Name
		}
		if !slices.Contains(known, task) {
			return &UnknownError{What: "task", Name: task, Known: known}
		}
	}
	e := &NotWaitingError{Workspace: ws, Task: task}
	waiting, _, err := w.deferred(ctx, state, ws, r)
	if err != nil {
		return err
	}
	for i := range waiting {
		e.Others = append(e.Others, ws+"."+waiting[i].Task)
	}
	return e
}
