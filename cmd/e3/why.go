package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/human"
	"e3/internal/insight/explain"
	"e3/internal/jobs/approval"
	"e3/internal/jobs/queue"
	"e3/internal/repo"
)

func newWhy(a *app) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "why [repo] <workspace>.<task>[@<execution>]",
		Short: "Say why a task ran, would run, or failed",
		Long: `Tell why a task would run at the next start, why it failed, or why its present execution was made; with the beginning of an
execution's id, why that execution was made.

The parts of the task's cache key (command, environment, inputs, declarations) are compared with those of the nearest earlier
success of the same name. A changed input is followed upstream to the first change. If an earlier result no longer counts, the
reason is shown: rejected, pruned, failed, or its output is gone.

The package file and the inputs are read as by a start; nothing is written. The first line is the answer. Of a long chain of
tasks upstream the ends are named; --all names every task.`,
		Example: `  e3 why . prod.report
  e3 why . 'prod.train[4]'
  e3 why . prod.train@018f3b4c-9a`,
		ValidArgsFunction: completeTask(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onExecution(a.openToRead, func(ctx context.Context, r *repo.Repo, arg executionArg) error {
				if arg.ws == "" {
					return usagef("%q is not <workspace>.<task>@<execution>", args[len(args)-1])
				}
				return runWhy(ctx, a, r, arg, all)
			}, "<workspace>.<task>")(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "name every task of the chain upstream")
	return a.answers(cmd, explain.Explanation{})
}

func runWhy(ctx context.Context, a *app, r *repo.Repo, arg executionArg, all bool) error {
	collectOften() // it plans the graph, and reads logs of any length
	sayWhereItStands(ctx, a, r, arg.ws)
	w, err := newExplainer(r, r.Objects).Why(ctx, arg.ws, arg.task, arg.id)
	if err != nil {
		return err
	}
	if arg.id == "" && w.Waiting == nil {
		note, err := approvalNote(ctx, r, arg.ws, arg.task)
		if err != nil {
			return err
		}
		w.Notes = append(w.Notes, note...)
	}
	return a.Reply(w, func(out *render.Sheet) {
		p := &whyPrinter{w: out, all: all}
		p.explanation(w)
	})
}

// approvalNote describes the request for approval of a task for which no run waits now: pending, or its decision.
func approvalNote(ctx context.Context, r *repo.Repo, ws, task string) ([]string, error) {
	b, err := r.Workspaces.Approvals.Present(ctx, ws, task)
	switch {
	case err != nil && (errors.Is(err, human.ErrNotFound) || errors.Is(err, approval.ErrMalformed)) || b == nil:
		return nil, nil // an imported run has none; e3 verify reports unreadable ones
	case err != nil:
		return nil, err
	}
	name := human.Quoted(ws + "." + task)
	switch {
	case b.Status == approval.Pending:
		return []string{fmt.Sprintf("it waits for approval since %s: e3 approve <repo> %s", human.Stamp(b.Created), name)}, nil
	case b.Status == approval.Approved && b.Acted.IsZero():
		return []string{fmt.Sprintf("it was approved by %s on %s: the next start goes on with it", b.By, human.Stamp(b.At))}, nil
	case b.Status == approval.Rejected:
		return []string{fmt.Sprintf("it was rejected by %s on %s; to take that back: e3 reject <repo> %s --undo", b.By, human.Stamp(b.At), name)}, nil
	}
	return nil, nil
}

// newExplainer returns an explainer of a repository. objects is its object store, possibly extended by objects that a
// start would store.
func newExplainer(r *repo.Repo, objects explain.Objects) *explain.Explainer {
	return explain.New(explain.Stores{
		Stores:     historyOf(r),
		Workspaces: r.Workspaces.View(), Objects: objects, Queued: queuedIn(r.Queue()),
	})
}

// queuedIn finds the jobs of tasks that runs have put in queues.
func queuedIn(q *queue.Queue) func(ctx context.Context, ws, run, task string) (*explain.Wait, error) {
	return func(ctx context.Context, ws, run, task string) (*explain.Wait, error) {
		for j, err := range q.Unfinished(ctx) {
			switch {
			case err != nil && ctx.Err() != nil:
				return nil, err
			case err != nil: // of another job; e3 verify reports it
			case j.Workspace == ws && j.Run == run && j.Task == task:
				at := &explain.Wait{Queue: j.Queue, Labels: j.Labels, Memory: j.Policy.Memory}
				if j.Status != queue.Queued && !j.Orphaned() {
					at.Worker = j.Worker
				}
				return at, nil
			}
		}
		return nil, nil
	}
}

// whyPrinter writes an explanation for people.
type whyPrinter struct {
	w   *render.Sheet
	all bool // names every task of a chain
}

func (p *whyPrinter) explanation(w *explain.Explanation) {
	p.w.Ink(0, p.w.Style.Tone(string(w.State)), "%s", w.Sentence)
	if w.Execution != nil {
		p.ref("execution", w.Execution)
	}
	if len(w.Chain) > 1 {
		p.w.Ink(2, "", "%-11s %s", "by way of", p.chain(w.Chain))
	}
	if w.Reason != nil {
		fmt.Fprintln(p.w)
		p.reason(w.Reason, 2)
	}
	if f := w.Failure; f != nil && (f.Succeeded != nil || f.Meaning != "" || len(f.Tail) > 0) {
		fmt.Fprintln(p.w)
		p.failure(f)
	}
	if len(w.Changed) > 0 {
		fmt.Fprintln(p.w)
		p.w.Ink(2, "", "Since it last worked:")
		for i := range w.Changed {
			p.w.Ink(4, "", "%s: %s", w.Changed[i].Task, w.Changed[i].Text)
		}
	}
	if d := w.Downstream; d != nil {
		fmt.Fprintln(p.w)
		p.downstream(d)
	}
	if len(w.Notes) > 0 {
		fmt.Fprintln(p.w)
	}
	for _, n := range w.Notes {
		p.w.Ink(2, p.w.Style.Dim, "%s", n)
	}
}

// chainEnd is the number of tasks that are named at each end of a long chain.
const chainEnd = 5

// chain writes the tasks of a chain, the ends only if it is long.
func (p *whyPrinter) chain(tasks []string) string {
	const arrow = " → "
	left := len(tasks) - 2*chainEnd
	if p.all || left < 2 {
		return strings.Join(tasks, arrow)
	}
	return strings.Join(tasks[:chainEnd], arrow) + arrow + fmt.Sprintf("… (%s; --all names them)", human.Count(left, "more task")) + arrow +
		strings.Join(tasks[len(tasks)-chainEnd:], arrow)
}

func (p *whyPrinter) ref(label string, r *explain.ExecutionRef) {
	text := r.Execution
	if !r.At.IsZero() {
		text += "  " + human.Stamp(r.At)
	}
	if r.Status != "" {
		text += "  " + string(r.Status)
	}
	if r.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", r.Attempt)
	}
	if r.Worker != "" {
		text += ", by " + r.Worker
	}
	if r.Run != "" {
		text += ", in run " + human.Short(r.Run)
	}
	if r.ImportedFrom != "" {
		text += ", imported from " + r.ImportedFrom
	}
	p.w.Ink(2, "", "%-11s %s", label, text)
}

// reason writes why a task ran, then the reasons upstream.
func (p *whyPrinter) reason(r *explain.Reason, indent int) {
	name := r.Task
	if r.AsAbove {
		p.w.Ink(indent, p.w.Style.Dim, "%s: as above", name)
		return
	}
	if len(r.Differences) == 0 || r.Cause.Kind == explain.FailedBefore || r.Cause.Kind == explain.Retry || r.Failed != nil {
		p.w.Ink(indent, "", "%s: %s", name, r.Cause.Text)
	} else {
		p.w.Ink(indent, "", "%s:", name)
	}
	if c := r.Compared; c != nil && c.Execution != "" {
		text := "compared with execution " + c.Execution
		if !c.At.IsZero() {
			text += " of " + human.Stamp(c.At)
		}
		if c.ImportedFrom != "" {
			text += ", imported from " + c.ImportedFrom
		}
		p.w.Ink(indent+2, p.w.Style.Dim, "%s", text)
	}
	for _, n := range r.Notes {
		p.w.Ink(indent+2, p.w.Style.Dim, "%s", n)
	}
	for i := range r.Differences {
		p.difference(&r.Differences[i], r.Task, indent+2)
	}
	if r.More > 0 {
		p.w.Ink(indent+2, p.w.Style.Dim, "and %s", human.Count(r.More, "more difference"))
	}
	if r.Before != nil {
		p.reason(r.Before, indent+2)
	}
	for i := 0; i < len(r.Upstream); i++ {
		p.reason(r.Upstream[i], indent+4)
		var same []string
		for i+1 < len(r.Upstream) && alike(r.Upstream[i], r.Upstream[i+1]) {
			i++
			same = append(same, r.Upstream[i].Task)
		}
		if len(same) > 0 {
			p.w.Ink(indent+4, p.w.Style.Dim, "%s: the same", strings.Join(same, ", "))
		}
	}
	if r.Omitted > 0 {
		p.w.Ink(indent+4, p.w.Style.Dim, "and %d more upstream that were not looked at", r.Omitted)
	}
}

// alike reports whether two items of a matrix have the same reason, which is then printed once.
func alike(a, b *explain.Reason) bool {
	base := func(task string) string {
		name, _, _ := strings.Cut(task, "[")
		return name
	}
	return base(a.Task) == base(b.Task) && a.Cause.Text == b.Cause.Text && !b.AsAbove && len(a.Differences) == len(b.Differences) &&
		len(a.Upstream)+len(b.Upstream) == 0 && b.Failed == nil && b.Before == nil
}

func (p *whyPrinter) difference(d *explain.Difference, task string, indent int) {
	text := d.Text(task)
	if d.Producer != "" {
		text += ", made by " + d.Producer
	}
	p.w.Ink(indent, "", "%s", text)
	in := indent + 2
	for _, l := range d.Lines {
		color := p.w.Style.Red
		if l.Op == "+" {
			color = p.w.Style.Green
		}
		p.w.Ink(in, color, "%s %s", l.Op, l.Text)
	}
	for _, it := range d.Items {
		text := it.Label + " " + it.How
		if it.Task != "" {
			text += " (" + it.Task + ")"
		}
		p.w.Ink(in, "", "%s", text)
	}
	if d.More > 0 {
		p.w.Ink(in, p.w.Style.Dim, "and %d more", d.More)
	}
	c := d.Change
	if c == nil {
		return
	}
	if len(c.Files) > 1 {
		for _, f := range c.Files {
			p.w.Ink(in, "", "%s %s%s", f.Path, f.How, sizesText(&f))
		}
		if n := c.Count - len(c.Files); n > 0 {
			p.w.Ink(in, p.w.Style.Dim, "and %d more", n)
		}
	}
	if len(c.Values) > 1 {
		for _, v := range c.Values {
			p.w.Ink(in, "", "%s %s → %s", v.Path, orNothing(v.Was), orNothing(v.Is))
		}
		if n := c.Count - len(c.Values); n > 0 {
			p.w.Ink(in, p.w.Style.Dim, "and %d more", n)
		}
	}
	if c.Gone != "" {
		p.w.Ink(in, p.w.Style.Dim, "%s", c.Gone)
	}
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

func sizesText(f *explain.FileEdit) string {
	switch {
	case f.IsDir:
		return " (a directory)"
	case f.How == "added":
		return " (" + human.Bytes(f.IsSize) + ")"
	case f.How == "removed":
		return " (" + human.Bytes(f.WasSize) + ")"
	case f.WasSize != f.IsSize:
		return " (" + human.Bytes(f.WasSize) + " → " + human.Bytes(f.IsSize) + ")"
	}
	return ""
}

func (p *whyPrinter) failure(f *explain.Failure) {
	if f.Succeeded != nil {
		p.w.Ink(2, "", "The same command on the same inputs succeeded before: execution %s of %s", f.Succeeded.Execution, human.Stamp(f.Succeeded.At))
	}
	if f.Meaning != "" {
		p.w.Ink(2, "", "%s", f.Meaning)
	}
	if len(f.Tail) == 0 {
		return
	}
	p.w.Ink(2, "", "The end of its %s:", f.Log)
	for _, l := range f.Tail {
		p.w.Ink(4, p.w.Style.Dim, "%s", l)
	}
}

func (p *whyPrinter) downstream(d *explain.Downstream) {
	head := fmt.Sprintf("What follows from %s: %s", d.Of, human.Count(d.Total, "task"))
	if d.Run == "" {
		head += " to look at again"
	} else {
		var parts []string
		for _, c := range []struct {
			n    int
			word string
		}{{d.Ran, "ran"}, {d.Answered, "cached"}, {d.Failed, "failed"}, {d.Skipped, "skipped"}} {
			if c.n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", c.n, c.word))
			}
		}
		if len(parts) > 0 {
			head += ": " + strings.Join(parts, ", ")
		}
	}
	p.w.Ink(2, "", "%s", head)
	for tasks := range slices.Chunk(d.Tasks, 5) {
		var names []string
		for _, t := range tasks {
			name := t.Task
			if t.State != "" {
				name += " (" + t.State + ")"
			}
			names = append(names, name)
		}
		p.w.Ink(4, p.w.Style.Dim, "%s", strings.Join(names, ", "))
	}
	if n := d.Total - len(d.Tasks); n > 0 {
		p.w.Ink(4, p.w.Style.Dim, "and %d more", n)
	}
}
