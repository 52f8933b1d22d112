package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"e3/cmd/e3/internal/term"
	"e3/internal/host/atomicfile"
	"e3/internal/host/trace"
	"e3/internal/human"
	"e3/internal/propose"
	"e3/internal/repo"
)

// openOptions are the flags about files that commands open.
type openOptions struct {
	trace, propose, write, yes bool
}

func (o *openOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.trace, "trace-files", false, "record which files of the project the commands open, in both rooms; e3 lint tells")
	f.BoolVar(&o.propose, "propose", false, "the same, with files that they only look for, and print at the end the inputs that are missing and those that no command opened")
	f.BoolVar(&o.write, "write", false, "with --propose: show a diff of the package file, ask, and write it")
	f.BoolVar(&o.yes, "yes", false, "with --write: do not ask")
}

func (o *openOptions) any() bool      { return o.trace || o.proposes() }
func (o *openOptions) proposes() bool { return o.propose || o.write }

// usage refuses options that cannot work together.
func (o *openOptions) usage(a *app, start *startOptions) error {
	switch {
	case o.yes && !o.write:
		return usagef("--yes goes with --write")
	case o.proposes() && (start.watch != "" || a.JSON || start.progress == "json"):
		return usagef("--propose prints text about one run: leave --watch and --json out, or use --trace-files and then e3 lint --json")
	case o.write && !o.yes && term.Of(a.Stderr) == nil:
		return usagef("--write asks before it writes, and there is no terminal: say --yes as well, or leave --write out")
	}
	return nil
}

// check refuses options that cannot work here.
func (o *openOptions) check(ctx context.Context, r *repo.Repo, ws string) error {
	switch {
	case !o.any():
		return nil
	case !trace.Possible():
		return fmt.Errorf("%w: --trace-files and --propose need Linux, on amd64 or arm64", trace.ErrUnavailable)
	}
	p, err := r.Workspaces.Datasets.Project(ctx, ws)
	if err == nil && p.Folder == "" {
		return usagef("workspace %s follows no package file here, so there is no project in which files could be missed", ws)
	}
	return err
}

// proposeAfter prints what the tasks of the latest run read and do not declare.
func proposeAfter(ctx context.Context, a *app, r *repo.Repo, location, ws string, o *startOptions) error {
	found, err := readOpens(ctx, r, ws)
	if err != nil {
		return fmt.Errorf("propose inputs: %w", err)
	}
	again := "e3 start " + human.Quoted(location) + " " + human.Quoted(ws)
	var text bytes.Buffer
	found.print(&text, again+" --propose --force")
	a.Introduced()
	if _, err := a.Stdout.Write(text.Bytes()); err != nil {
		return err
	}
	after, err := propose.Edit(filepath.Base(found.file), found.text, found.proposal)
	switch {
	case errors.Is(err, propose.ErrByHand):
		a.Warnf("%v", err)
		return nil
	case err != nil || bytes.Equal(after, found.text):
		return err
	case !o.runs.opens.write:
		a.Notef("To write it: %s --propose --write", again)
		return nil
	}
	return writeProposal(a, found, after, o.runs.opens.yes)
}

// writeProposal writes the package file, unless its user says no or it has changed meanwhile.
func writeProposal(a *app, found *opened, after []byte, yes bool) error {
	name := filepath.Base(found.file)
	if _, err := io.WriteString(a.Stdout, "\n"+human.Text(fmt.Sprintf("--- %s\n+++ %s\n", name, name)+human.Diff(string(found.text), string(after)))); err != nil {
		return err
	}
	if !yes {
		fmt.Fprintf(a.Stderr, "Write %s? [y/N] ", name)
		answer, err := bufio.NewReader(a.stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
			a.Notef("%s is as before", name)
			return nil
		}
	}
	path, err := filepath.EvalSymlinks(found.file)
	if err != nil {
		return err
	}
	now, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(now, found.text) {
		return fmt.Errorf("%s has changed meanwhile and is as it was left: start again", name)
	}
	if err := atomicfile.WriteFile(path, after, atomicfile.Options{Perm: info.Mode().Perm()}); err != nil {
		return err
	}
	a.Notef("Wrote %s: the next start runs the tasks that changed", name)
	return nil
}

// print writes a proposal for people. force is the command that traces what was not.
func (o *opened) print(w io.Writer, force string) {
	p := o.proposal
	name := filepath.Base(o.file)
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if len(t.Reads) > 0 {
			fmt.Fprintf(w, "\n%s reads what it does not declare:\n", human.Line(t.Name))
		}
		for _, read := range t.Reads {
			fmt.Fprintf(w, "  %s: %s\n", human.Line(read.Path), human.Line(o.advice(&read)))
		}
		if len(t.Sought) > 0 {
			fmt.Fprintf(w, "\n%s looked for what it does not declare, and then did not open it: %s\n", human.Line(t.Name), human.Line(human.Few(t.Sought)))
			fmt.Fprintf(w, "  declare it if the result depends on it; --write does not\n")
		}
		if len(t.Unread) > 0 {
			fmt.Fprintf(w, "\n%s declares what no command of it opened: %s\n", human.Line(t.Name), human.Line(strings.Join(t.Unread, ", ")))
		}
	}
	traced, untraced := 0, 0
	for i := range p.Tasks {
		traced, untraced = traced+p.Tasks[i].Traced, untraced+p.Tasks[i].Untraced
	}
	switch {
	case traced == 0 && untraced == 0:
		fmt.Fprintf(w, "\nNo command ran\n")
	case traced > 0 && p.Empty():
		fmt.Fprintf(w, "\nAll that %s opened is declared in %s\n", human.Count(traced, "traced command"), name)
	}
	if untraced > 0 {
		fmt.Fprintf(w, "\nNot traced, as the results are cached: %s; to trace them too: %s\n", human.Count(untraced, "command"), force)
	}
}

// advice says what to write for something that a task reads.
func (o *opened) advice(read *propose.Read) string {
	if read.Note != "" {
		return read.Note
	}
	for _, in := range o.proposal.New {
		if in.Name == read.Source {
			return fmt.Sprintf("write %s: {%s: %s} under inputs, and %s in its in", in.Name, in.Key, in.Path, in.Name)
		}
	}
	return "add " + read.Source + " to its in"
}
