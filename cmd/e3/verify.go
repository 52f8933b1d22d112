package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/internal/verify"
)

type verifyOptions struct {
	sample string
	repair bool
	rerun  string
}

func newVerify(a *app) *cobra.Command {
	var o verifyOptions
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
		RunE: func(cmd *cobra.Command, args []string) error {
			location, _, err := a.positional(cmd, args, 0)
			if err != nil {
				return err
			}
			if err := alternatives(cmd, "rerun", "repair"); err != nil {
				return err
			}
			if err := alternatives(cmd, "rerun", "sample"); err != nil {
				return err
			}
			if cmd.Flags().Changed("rerun") {
				return a.inOnly(cmd.Context(), location, o.rerun, func(name string) error { return rerun(cmd.Context(), a, location, name) })
			}
			sample, err := parseSample(o.sample)
			if err != nil {
				return err
			}
			return runVerify(cmd.Context(), a, location, verify.Options{Sample: sample, Repair: o.repair})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.sample, "sample", "", "hash only a part of the objects, as 1/7: each of the seven once is all of them")
	f.BoolVar(&o.repair, "repair", false, "repair all faults that can be repaired")
	f.StringVar(&o.rerun, "rerun", "", "execute <workspace>.<task> again and compare (* and ? in the task's name)")
	return cmd
}

// parseSample reads k/n; "" is everything.
func parseSample(s string) (verify.Sample, error) {
	if s == "" {
		return verify.Sample{}, nil
	}
	part, of, _ := strings.Cut(s, "/")
	k, err := strconv.Atoi(part)
	n, err2 := strconv.Atoi(of)
	sample := verify.Sample{Part: k, Of: n}
	if err != nil || err2 != nil || n < 1 || n > 1_000_000 || sample.Validate() != nil {
		return verify.Sample{}, usagef("--sample is a part of all as 1/7, not %q", s)
	}
	return sample, nil
}

// verifyJSON is the result of a check, for programs.
type verifyJSON struct {
	Sample     string      `json:"sample,omitempty"`
	Objects    int64       `json:"objects"`
	Bytes      int64       `json:"bytes"`
	Executions int64       `json:"executions"`
	Workspaces int64       `json:"workspaces"`
	Packages   int64       `json:"packages"`
	Runs       int64       `json:"runs"`
	Faults     []faultJSON `json:"faults"`
	Remaining  int         `json:"remaining"`
	Notes      []string    `json:"notes"`
	Rerun      []string    `json:"rerun"`  // tasks that run again at the next start
	Inputs     []string    `json:"inputs"` // that must be set or deployed again
}

type faultJSON struct {
	Kind     verify.FaultKind `json:"kind"`
	Where    string           `json:"where"`
	Problem  string           `json:"problem"`
	For      []string         `json:"for,omitempty"`
	More     int              `json:"more,omitempty"`
	Advice   string           `json:"advice,omitempty"`
	Repaired bool             `json:"repaired"`
	Remedy   string           `json:"remedy,omitempty"`
}

func runVerify(ctx context.Context, a *app, location string, o verify.Options) error {
	r, err := a.open(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	report, err := checkRepository(ctx, a, r, o)
	if report == nil {
		return err
	}
	doc := verifyJSON{
		Objects: report.Objects, Bytes: report.Bytes, Executions: report.Executions, Workspaces: report.Workspaces,
		Packages: report.Packages, Runs: report.Runs, Faults: []faultJSON{}, Remaining: report.Remaining(),
		Notes: append([]string{}, report.Notes...), Rerun: append([]string{}, report.Rerun...), Inputs: append([]string{}, report.Inputs...),
	}
	if report.Sample.Of > 0 {
		doc.Sample = fmt.Sprintf("%d/%d", report.Sample.Part, report.Sample.Of)
	}
	for i := range report.Faults {
		f := &report.Faults[i]
		doc.Faults = append(doc.Faults, faultJSON{f.Kind, f.Where, f.Problem, f.For, f.More, f.Advice, f.Repaired, f.Remedy})
	}
	if replyErr := a.Reply(doc, func(w *render.Sheet) { writeVerified(w, report, o.Repair, human.Quoted(shown(location, r))) }); err == nil {
		err = replyErr
	}
	if err == nil && doc.Remaining > 0 {
		return &exitError{exitIntegrity}
	}
	return err
}

// checkRepository checks the repository and shows the progress.
func checkRepository(ctx context.Context, a *app, r *repo.Repo, o verify.Options) (*verify.Report, error) {
	if live := a.Live(); live != nil {
		defer live.Close()
		began, phase := a.Now(), verify.Phase("")
		o.Progress = func(p verify.Progress) {
			live.Progress(int64(p.Done), int64(p.Total))
			if p.Phase != phase {
				if phase != "" {
					live.End(string(phase))
				}
				live.Start(string(p.Phase), began)
				phase = p.Phase
			}
		}
	}
	return verify.Verify(ctx, verify.Stores{
		Records: r.Records, Objects: r.Objects, Curator: executions.NewCurator(r.Executions, r.Records, a.Now),
		Workspaces: r.Workspaces, Now: a.Now, Place: r.OwnsObjects, Format: func(ctx context.Context) (faults []verify.FormatFault, err error) {
			found, err := r.FormatFaults(ctx)
			for _, f := range found {
				faults = append(faults, verify.FormatFault(f))
			}
			return faults, err
		},
		Foreign: func(ctx context.Context) (entries []verify.ForeignEntry, err error) {
			found, err := r.ForeignEntries(ctx)
			for _, e := range found {
				entries = append(entries, verify.ForeignEntry(e))
			}
			return entries, err
		},
	}, o)
}

func writeVerified(w io.Writer, r *verify.Report, repair bool, location string) {
	const most = 100
	for i := range r.Faults[:min(most, len(r.Faults))] {
		writeFault(w, &r.Faults[i])
	}
	if n := len(r.Faults) - most; n > 0 {
		fmt.Fprintf(w, "and %s more, which --json lists\n", counted(int64(n), "fault"))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", human.Line(n))
	}
	objects := counted(r.Objects, "object")
	if r.Sample.Of > 0 {
		objects = fmt.Sprintf("part %d/%d of the objects, %s", r.Sample.Part, r.Sample.Of, thousands(r.Objects))
	}
	fmt.Fprintf(w, "Checked %s (%s), %s, %s: ", objects, human.Bytes(r.Bytes), counted(r.Executions, "execution"), counted(r.Workspaces, "workspace"))
	remaining := r.Remaining()
	switch total := len(r.Faults); {
	case total == 0:
		fmt.Fprintln(w, "no faults")
	case remaining == 0:
		fmt.Fprintf(w, "%s, repaired\n", counted(int64(total), "fault"))
	case repair:
		fmt.Fprintf(w, "%s, %s of them repaired\n", counted(int64(total), "fault"), thousands(int64(total-remaining)))
	default:
		fmt.Fprintf(w, "%s\n", counted(int64(total), "fault"))
	}
	if len(r.Rerun) > 0 {
		fmt.Fprintf(w, "Will run again at the next start: %s\n", human.Line(human.Few(r.Rerun)))
	}
	if len(r.Inputs) > 0 {
		fmt.Fprintf(w, "To be set or deployed again: %s\n", human.Line(human.Few(r.Inputs)))
	}
	if !repair && remaining > 0 {
		fmt.Fprintf(w, "To repair what can be repaired: e3 verify %s --repair\n", location)
	}
}

func writeFault(w io.Writer, f *verify.Fault) {
	fmt.Fprintf(w, "%s: %s\n", f.Kind, human.Line(f.Where))
	line := func(label, text string) {
		if text != "" {
			fmt.Fprintf(w, "  %-9s %s\n", label, human.Line(text))
		}
	}
	line("problem", f.Problem)
	for i, owner := range f.For {
		line(map[bool]string{true: "concerns"}[i == 0], owner)
	}
	if f.More > 0 {
		line("", fmt.Sprintf("and %d more", f.More))
	}
	if f.Remedy != "" {
		line("repair", f.Remedy)
	}
	if !f.Repaired {
		line("advice", f.Advice)
	}
}

// counted is "1,234 objects".
func counted(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return thousands(n) + " " + what
}

// againJSON is a task that was executed again, for programs.
type againJSON struct {
	Task        string       `json:"task"`
	Result      string       `json:"result"` // same, different, failed, error or impossible
	Was         string       `json:"was,omitempty"`
	Execution   string       `json:"execution,omitempty"`
	WasOutput   string       `json:"wasOutput,omitempty"`
	Output      string       `json:"output,omitempty"`
	WasDuration int64        `json:"wasMs,omitempty"`
	Duration    int64        `json:"ms,omitempty"`
	ExitCode    int64        `json:"exitCode,omitempty"`
	Message     string       `json:"message,omitempty"`
	Changes     []changeJSON `json:"changes,omitempty"`
	MoreChanges int          `json:"moreChanges,omitempty"`
}

type changeJSON struct {
	Kind verify.ChangeKind `json:"kind"`
	Path string            `json:"path,omitempty"`
	Was  string            `json:"was,omitempty"`
	Is   string            `json:"is,omitempty"`
}

func againOf(x *verify.Again) againJSON {
	doc := againJSON{Task: x.Workspace + "." + x.Task, Result: "impossible", MoreChanges: x.More}
	if x.Was != nil {
		doc.Was, doc.WasOutput, doc.WasDuration = x.Was.ExecutionID, x.Was.OutputHash, x.Took().Milliseconds()
	}
	if x.Err != nil {
		doc.Message = x.Err.Error()
		return doc
	}
	doc.Execution, doc.Duration, doc.ExitCode, doc.Message = x.Is.ExecutionID, x.Is.Duration.Milliseconds(), x.Is.ExitCode, x.Is.Message
	switch {
	case x.Same():
		doc.Result = "same"
	case x.Is.State == record.Success:
		doc.Result = "different"
	default:
		doc.Result = x.Is.State.String()
	}
	if x.Is.State == record.Success {
		doc.Output = x.Is.Output.String()
	}
	for _, c := range x.Changes {
		doc.Changes = append(doc.Changes, changeJSON(c))
	}
	return doc
}

// rerun executes tasks again. Each is reported when it ends: with --json, as a line.
func rerun(ctx context.Context, a *app, location, name string) error {
	ws, pattern, ok := strings.Cut(name, ".")
	if !ok || strings.ContainsAny(ws, "[*?") { // a dot may be part of an item
		return unnamed(name, "<workspace>.<task>")
	}
	if ws == "" || pattern == "" {
		return usagef("%q is not <workspace>.<task>", name)
	}
	r, err := a.open(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	x, err := r.Executor(repo.ExecutorOptions{Unlimited: func(err error) { a.Warnf("%v", err) }})
	if err != nil {
		return err
	}
	where := human.Quoted(shown(location, r))
	total, same := 0, 0
	var fault error
	err = verify.Rerun(ctx, verify.RerunStores{Objects: r.Objects, Sessions: r.Records, Executor: x, Workspaces: r.Workspaces}, ws, pattern, func(x *verify.Again) {
		total++
		if x.Same() {
			same++
		}
		doc := againOf(x)
		if a.JSON { // a line each, on a terminal too
			fault = errors.Join(fault, a.Document(doc, false))
			return
		}
		fault = errors.Join(fault, a.Reply(nil, func(w *render.Sheet) { writeAgain(w, x, &doc, where) }))
	})
	if err = errors.Join(err, fault); err != nil {
		return err
	}
	if same < total {
		return &exitError{exitFailed}
	}
	return nil
}

func writeAgain(w io.Writer, x *verify.Again, doc *againJSON, where string) {
	task := human.Line(doc.Task)
	switch doc.Result {
	case "impossible":
		fmt.Fprintf(w, "%s: cannot be executed again: %s\n", task, human.Line(doc.Message))
		return
	case "same":
		fmt.Fprintf(w, "%s: same (%s, was %s)\n", task, human.Duration(x.Is.Duration), human.Duration(x.Took()))
		return
	case "different":
		fmt.Fprintf(w, "%s: different\n", task)
	case "failed":
		fmt.Fprintf(w, "%s: failed with exit code %d, and had succeeded\n", task, x.Is.ExitCode)
	default:
		fmt.Fprintf(w, "%s: ended in error, and had succeeded: %s\n", task, human.Line(x.Is.Message))
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
	t.Write(w, "  ")
	if x.More > 0 {
		fmt.Fprintf(w, "  and %d more\n", x.More)
	}
	fmt.Fprintf(w, "  was       execution %s %s\n", doc.Was, prefix(doc.WasOutput, 12))
	fmt.Fprintf(w, "  is        execution %s %s\n", doc.Execution, prefix(doc.Output, 12))
	if doc.Result == "different" {
		fmt.Fprintf(w, "  Starts still use the first. To run the task again instead: e3 reject %s %s\n", where, doc.Was)
	}
}
