package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/internal/verify"
)

func newVerify(a *app) *cobra.Command {
	var o verify.Options
	var sample, again string
	cmd := &cobra.Command{
		Use:   "verify [repo]",
		Short: "Check a repository, and repair it",
		Long: `Check every object against its name, every reference against its object and every record against its place. Each fault is
listed with what it affects and what to do. It is safe to run at any time. The exit code is 12 if a fault was not repaired.

--repair removes corrupt objects, rejects successes that have lost a part of their output, and removes records that cannot be
read; the affected tasks run again at the next start. Inputs cannot be computed again: it lists those that must be set or
deployed again.

--rerun executes tasks again, in the same way and on the same inputs as the executions that made their outputs, and compares
the results. The exit code is 1 if they differ. Nothing else changes: a new execution with another result is kept, but is
never a cache hit.`,
		Example: `  e3 verify
  e3 verify . --sample 1/7
  e3 verify . --repair
  e3 verify . --rerun prod.train
  e3 verify . --rerun 'prod.*'`,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if o.Sample.UnmarshalText([]byte(sample)) != nil {
				return usagef("--sample is a part of all as 1/7, not %q", sample)
			}
			return cmp.Or(alternatives(cmd, "rerun", "repair"), alternatives(cmd, "rerun", "sample"))
		},
	}
	cmd.RunE = a.on(a.open, func(ctx context.Context, r *repo.Repo, _ []string) error {
		if cmd.Flags().Changed("rerun") {
			return a.inOnly(ctx, r, again, func(name string) error { return rerun(ctx, a, r, name) })
		}
		return runVerify(ctx, a, r, o)
	})
	f := cmd.Flags()
	f.StringVar(&sample, "sample", "", "hash only a part of the objects, as 1/7: each of the seven once is all of them")
	f.BoolVar(&o.Repair, "repair", false, "repair all faults that can be repaired")
	f.StringVar(&again, "rerun", "", "execute <workspace>.<task> again and compare (* and ? in the task's name)")
	return a.answers(cmd, verify.Report{}, lines{verify.Again{}})
}

func runVerify(ctx context.Context, a *app, r *repo.Repo, o verify.Options) error {
	report, err := checkRepository(ctx, a, r, o)
	if report == nil {
		return err
	}
	if replyErr := a.Reply(report, func(w *render.Sheet) { writeVerified(w, report, o.Repair) }); err == nil {
		err = replyErr
	}
	if err == nil && report.Remaining > 0 {
		return &exitError{exitIntegrity}
	}
	return err
}

// checkRepository checks the repository and shows the progress.
func checkRepository(ctx context.Context, a *app, r *repo.Repo, o verify.Options) (*verify.Report, error) {
	live, began := a.Live(), a.Now()
	defer live.Close()
	o.Progress = func(p verify.Progress) {
		live.Progress(int64(p.Done), int64(p.Total))
		live.Phase(string(p.Phase), began)
	}
	return verify.Verify(ctx, verify.Stores{
		Records: r.Records, Objects: r.Objects, Curator: executions.NewCurator(r.Executions, r.Records, a.Now),
		Jobs: r.Queue(), Workspaces: r.Workspaces, Now: a.Now, Place: r.OwnsObjects,
		Foreign: r.ForeignEntries,
		Format: func(ctx context.Context) (faults []verify.FormatFault, err error) {
			found, err := r.FormatFaults(ctx)
			for _, f := range found {
				faults = append(faults, verify.FormatFault(f))
			}
			return faults, err
		},
	}, o)
}

func writeVerified(w *render.Sheet, r *verify.Report, repair bool) {
	const most = 100
	for i := range r.Faults[:min(most, len(r.Faults))] {
		writeFault(w, &r.Faults[i])
	}
	if n := len(r.Faults) - most; n > 0 {
		w.Line("and %s more, which --json lists", human.Count(n, "fault"))
	}
	for _, n := range r.Notes {
		w.Line("note: %s", n)
	}
	objects := human.Count(r.Objects, "object")
	if !r.Sample.IsZero() {
		objects = fmt.Sprintf("part %d/%d of the objects, %s", r.Sample.Part, r.Sample.Of, human.Thousands(r.Objects))
	}
	total := int64(len(r.Faults))
	faults := human.Count(total, "fault")
	switch {
	case total == 0:
		faults = "no faults"
	case r.Remaining == 0:
		faults += ", repaired"
	case repair:
		faults += ", " + human.Thousands(total-int64(r.Remaining)) + " of them repaired"
	}
	w.Line("Checked %s (%s), %s, %s: %s", objects, human.Bytes(r.Bytes), human.Count(r.Executions, "execution"), human.Count(r.Workspaces, "workspace"), faults)
	if len(r.Rerun) > 0 {
		w.Line("Will run again at the next start: %s", human.Few(r.Rerun))
	}
	if len(r.Inputs) > 0 {
		w.Line("To be set or deployed again: %s", human.Few(r.Inputs))
	}
	if !repair && r.Remaining > 0 {
		w.Line("To repair what can be repaired: e3 verify <repo> --repair")
	}
}

func writeFault(w *render.Sheet, f *verify.Fault) {
	w.Line("%s: %s", f.Kind, f.Where)
	w.Field("problem", "%s", f.Problem)
	label := "concerns"
	for _, owner := range f.For {
		w.Field(label, "%s", owner)
		label = ""
	}
	if f.More > 0 {
		w.Field("", "and %d more", f.More)
	}
	w.Field("repair", "%s", f.Remedy)
	if !f.Repaired {
		w.Field("advice", "%s", f.Advice)
	}
}

// rerun executes tasks again. Each is reported when it ends: with --json, as a line.
func rerun(ctx context.Context, a *app, r *repo.Repo, name string) error {
	ws, pattern, ok := strings.Cut(name, ".")
	if !ok || strings.ContainsAny(ws, "[*?") { // a dot may be part of an item
		return unnamed(name, "<workspace>.<task>")
	}
	if ws == "" || pattern == "" {
		return usagef("%q is not <workspace>.<task>", name)
	}
	x, err := r.Executor(repo.ExecutorOptions{Unlimited: func(err error) { a.Warnf("%v", err) }, Prepared: a.tellPreparation})
	if err != nil {
		return err
	}
	same := true
	var fault error
	err = verify.Rerun(ctx, verify.RerunStores{Objects: r.Objects, Sessions: r.Records, Executor: x, Workspaces: r.Workspaces}, ws, pattern, func(x *verify.Again) {
		same = same && x.Result == verify.Same
		if a.JSON { // a line each, on a terminal too
			fault = errors.Join(fault, a.Document(x, false))
			return
		}
		fault = errors.Join(fault, a.Reply(nil, func(w *render.Sheet) { writeAgain(w, x) }))
	})
	if err = errors.Join(err, fault); err != nil {
		return err
	}
	if !same {
		return &exitError{exitFailed}
	}
	return nil
}

func writeAgain(w *render.Sheet, x *verify.Again) {
	switch x.Result {
	case verify.Impossible:
		w.Line("%s: cannot be executed again: %s", x.Task, x.Message)
		return
	case verify.Same:
		w.Line("%s: same (%s, was %s)", x.Task, human.Duration(x.Took.Duration()), human.Duration(x.WasTook.Duration()))
		return
	case verify.Different:
		w.Line("%s: different", x.Task)
	case verify.Failed:
		w.Line("%s: failed with exit code %d, and had succeeded", x.Task, x.ExitCode)
	default:
		w.Line("%s: ended in error, and had succeeded: %s", x.Task, x.Message)
	}
	t := &render.Table{}
	for _, c := range x.Changes {
		what := c.Was + " → " + c.Is
		switch {
		case c.Was == "" || c.Is == "":
			what = c.Was + c.Is
		case c.Was == c.Is:
			what = c.Was + ", other content"
		}
		if c.Path == "" {
			t.Row(string(c.Kind), what)
		} else {
			t.Row(string(c.Kind), c.Path, what)
		}
	}
	w.Table(t, "  ")
	if x.More > 0 {
		w.Line("  and %d more", x.More)
	}
	w.Field("was", "execution %s %s", x.Before, prefix(x.WasOutput, 12))
	w.Field("is", "execution %s %s", x.Execution, prefix(x.Output, 12))
	if x.Result == verify.Different {
		w.Line("  Starts still use the first. To run the task again instead: e3 reject <repo> %s", x.Before)
	}
}
