package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/manifest"
	"e3/internal/human"
	"e3/internal/newfile"
	"e3/internal/repo"
	"e3/internal/resultdir"
	"e3/workspace"
)

func newNew(a *app) *cobra.Command {
	var from, out string
	var check bool
	cmd := &cobra.Command{
		Use:   "new [folder]",
		Short: "Write a first package file, for the files here or from a dvc.yaml",
		Long: `Write a package file, e3.yaml, for the files of this folder: data becomes inputs, programs become tasks. The
inputs and outputs of a program are guessed from the names in it, and marked as guesses.

With --from, a pipeline of DVC becomes a package file: stages, foreach, matrix, vars, params, metrics and plots. Commands stay as
they are, and each output lies where DVC has it. Parts without a counterpart are named with their lines and with what to do by hand;
the exit code is 1 if something is lost. After a start, --check compares the files that are there with what e3 has made.

An existing file is never overwritten.`,
		Example: `  e3 new
  e3 new --from dvc.yaml
  e3 new --from dvc.yaml --check
  e3 new analysis -o analysis/draft.yaml`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder := "."
			switch {
			case len(args) > 0 && from != "":
				return usagef("--from says already which folder: that of the file")
			case len(args) > 0:
				folder = args[0]
			case from != "" && out != "" && isBelow(from, filepath.Dir(out)):
				folder = filepath.Dir(out)
			case from != "":
				folder = newfile.DVCFolder(from)
			}
			if out == "" {
				out = filepath.Join(folder, manifest.FileName)
			}
			if check {
				return checkNew(cmd.Context(), a, from, out)
			}
			return runNew(cmd.Context(), a, folder, from, out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "a pipeline of DVC, `dvc.yaml`")
	f.BoolVar(&check, "check", false, "with --from, after a start: compare the outputs on disk with those of e3, and write nothing")
	f.StringVarP(&out, "output", "o", "", "the `file` to write, which must not exist (default e3.yaml in the folder)")
	return a.answers(cmd, drafted{}, resultdir.Comparison{})
}

// drafted is a package file that was written.
type drafted struct {
	File   string   `json:"file"`
	Inputs int      `json:"inputs"`
	Tasks  int      `json:"tasks"`
	Notes  []string `json:"notes"` // what to look over
}

// checkNew compares the files of a pipeline on disk with what the package file at out has made.
func checkNew(ctx context.Context, a *app, from, out string) error {
	if from == "" {
		return usagef("--check compares the outputs of a pipeline: name it with --from")
	}
	if _, err := os.Stat(from); err != nil {
		return usagef("%v; name the file of DVC with --from", err)
	}
	def, err := manifest.ParseFile(out)
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("%s is not here: first e3 new --from %s, then e3 start -f %[1]s", human.Line(out), human.Quoted(from))
	}
	if err != nil {
		return err
	}
	location := cmp.Or(a.Getenv("E3_REPO"), filepath.Dir(out))
	return a.within(ctx, a.openToRead, location, func(r *repo.Repo) error {
		return a.compareInPlace(ctx, r, def.Name, filepath.Dir(out))
	})
}

func (a *app) compareInPlace(ctx context.Context, r *repo.Repo, ws, folder string) error {
	found, release, err := r.Workspaces.Datasets.Results(ctx, ws, workspace.ResultChoice{InPlace: true})
	if err != nil {
		return err
	}
	defer release()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	items := make([]resultdir.Item, len(found.Outputs))
	for i := range found.Outputs {
		items[i] = resultdir.Item{Path: found.Outputs[i].Path, Leaf: found.Outputs[i].Leaf}
	}
	c, err := (&resultdir.Folder{Root: root, Objects: r.Objects}).Compare(ctx, items)
	if err != nil {
		return err
	}
	c.Unmade = append(c.Unmade, found.Missing...)
	err = a.Reply(c, func(w *render.Sheet) {
		w.Line("%s as e3 has made them", human.Count(c.Same, "file"))
		for _, list := range []struct {
			what  string
			paths []string
		}{{"with other content", c.Different}, {"not there", c.Absent}, {"not made by e3 yet", c.Unmade}} {
			if len(list.paths) > 0 {
				w.Line("%s %s", human.Count(len(list.paths), "output"), list.what)
			}
			for _, p := range list.paths {
				w.Line("  %s", human.Line(p))
			}
		}
	})
	if err == nil && len(c.Different)+len(c.Absent)+len(c.Unmade) > 0 {
		return &exitError{exitFailed}
	}
	return err
}

func runNew(_ context.Context, a *app, folder, from, out string) error {
	if _, err := os.Lstat(out); err == nil {
		return existing(out)
	}
	if err := resultdir.CheckParent(out); err != nil {
		return err
	}
	here, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	var draft *newfile.Draft
	var notes []newfile.Note
	if from == "" {
		draft, err = newfile.FromFolder(os.DirFS(here), filepath.Base(here))
	} else {
		var file string
		if file, err = filepath.Abs(from); err == nil {
			file, err = filepath.Rel(here, file)
		}
		if err == nil {
			draft, notes, err = newfile.FromDVC(os.DirFS(here), filepath.ToSlash(file), filepath.Base(here))
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usagef("%v; name the folder, or with --from the file of DVC", err)
	case err != nil:
		return usagef("%v", err)
	}
	text := draft.Text()
	def, faults := manifest.Parse(out, []byte(text))
	if faults != nil && from == "" {
		draft.Unwire() // the guesses contradict each other
		text = draft.Text()
		def, faults = manifest.Parse(out, []byte(text))
	}
	if err := writeNew(out, text); err != nil {
		return err
	}
	doc := drafted{File: out, Inputs: len(draft.Inputs), Tasks: len(draft.Tasks), Notes: []string{}}
	lost := faults != nil
	for _, n := range notes {
		lost = lost || n.Lost
		doc.Notes = append(doc.Notes, n.String())
		if n.Lost {
			a.Warnf("%s", human.Line(n.String()))
		} else {
			a.Notef("%s", human.Line(n.String()))
		}
	}
	if faults == nil {
		a.warn(manifest.Lint(def))
	}
	err = a.Reply(doc, func(w *render.Sheet) {
		w.Line("Wrote %s: %s, %s", out, human.Count(len(draft.Inputs), "input"), human.Count(len(draft.Tasks), "task"))
		if !lost {
			w.Line("Look it over, then: e3 start -f %s", human.Quoted(out))
		}
	})
	switch {
	case err != nil:
		return err
	case faults != nil:
		return fmt.Errorf("%w\nwhat e3 new wrote needs these corrections", faults)
	case lost:
		return &exitError{exitFailed}
	}
	return nil
}

// isBelow reports whether a file lies in a folder, or in one in it.
func isBelow(file, folder string) bool {
	file, errFile := filepath.Abs(file)
	folder, errFolder := filepath.Abs(folder)
	rel, err := filepath.Rel(folder, file)
	return errFile == nil && errFolder == nil && err == nil && filepath.IsLocal(rel)
}

func existing(out string) error {
	return usagef("%s is here already and is not overwritten; to write another file: e3 new -o draft.yaml", human.Line(out))
}

// writeNew writes a file that must not exist.
func writeNew(out, text string) error {
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return existing(out)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
