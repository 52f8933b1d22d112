package main

import (
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
	"e3/internal/resultdir"
)

func newNew(a *app) *cobra.Command {
	var from, out string
	cmd := &cobra.Command{
		Use:   "new [folder]",
		Short: "Write a first package file, for the files here or from a dvc.yaml",
		Long: `Write a package file, e3.yaml, for the files of this folder: data becomes inputs, programs become tasks. The
inputs and outputs of a program are guessed from the names in it, and marked as guesses.

With --from, a pipeline of DVC becomes a package file: stages, foreach, matrix, vars, params, metrics and plots. Commands stay as
they are. Parts without a counterpart are named with their lines and with what to do by hand; the exit code is 1 if something is lost.

An existing file is never overwritten.`,
		Example: `  e3 new
  e3 new --from dvc.yaml
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
			return runNew(cmd.Context(), a, folder, from, out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "a pipeline of DVC, `dvc.yaml`")
	f.StringVarP(&out, "output", "o", "", "the `file` to write, which must not exist (default e3.yaml in the folder)")
	return a.answers(cmd, drafted{})
}

// drafted is a package file that was written.
type drafted struct {
	File   string   `json:"file"`
	Inputs int      `json:"inputs"`
	Tasks  int      `json:"tasks"`
	Notes  []string `json:"notes"` // what to look over
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
