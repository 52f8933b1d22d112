package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/repo"
	"e3/internal/resultdir"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/workspace"
)

type getOptions struct {
	out   string
	force bool // also of resultOptions.overwrite

	run, execution string
}

// past tells whether an output is asked for that the workspace need not show.
func (o *getOptions) past() bool { return o.run != "" || o.execution != "" }

func (o *getOptions) target() *resultdir.Target {
	return &resultdir.Target{Path: o.out, Force: o.force}
}

func newGet(a *app) *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:   "get [repo] [workspace][.dataset]",
		Short: "Print a dataset, or write it to a file or folder",
		Long: `Print a dataset: a file as its bytes, a value as text or JSON, a directory as a list of its entries. With -o it is
written to a file, or to a folder if it is a directory. It appears there complete or not at all. Existing files are
replaced only with --force.

A workspace alone means the outputs that no task reads, and a name with * or ? means all outputs that match. They need -o,
with a folder: only what changed is written there, and files that were edited are kept unless --force is given.

The output of one item of a matrix is named as its task: prod.fit[3], or prod.qc[s1] for the sample s1. In the package file a task
of a matrix reads its item's file with in: {text: "samples[sample]"}, in quotes, where the input is samples: {files: "raw/{sample}.txt"}.

--run and --execution mean what a task made in another run than the latest, or in one with values of its own (e3 start --set),
which a workspace does not show.

In a workspace of the TypeScript e3 a dataset is named by its path, with backticks around names that need them. Values that
are not plain data, such as functions, are printed in the notation of "e3 convert"; with -o their bytes are written.`,
		Example: `  e3 get . prod.report -o report.html
  e3 get . prod.train.metrics
  e3 get . prod.images -o images/
  e3 get . prod -o results/
  e3 get . 'prod.fit[*]' -o results/
  e3 get . 'prod.train[4].model' > model.pkl
  e3 get . prod.report --run 018f3b4c-9a -o report.html
  e3 get . theirs.tasks.train.output`,
		ValidArgsFunction: completeDataset(a),
		PreRunE: func(cmd *cobra.Command, args []string) error {
			return cmp.Or(filled("--%s needs a path", "output")(cmd, args), filled("--%s needs the beginning of an id", "run", "execution")(cmd, args),
				alternatives(cmd, "run", "execution"))
		},
		RunE: a.on(a.openToRead, func(ctx context.Context, r *repo.Repo, args []string) error {
			return getArgument(ctx, a, r, args[0], &o)
		}, "[workspace.dataset]"),
	}
	f := cmd.Flags()
	f.StringVarP(&o.out, "output", "o", "", "file or folder to write")
	f.BoolVar(&o.force, "force", false, "replace what is there")
	f.StringVar(&o.run, "run", "", "what the task made in this run, by the beginning of its id")
	f.StringVar(&o.execution, "execution", "", "what this execution of the task made, by the beginning of its id")
	completeRuns(a, cmd, "run")
	return a.answers(cmd, workspace.Listing{}, shownValue{}, shownEast{}, savedDataset{}, resultdir.Left{})
}

// savedDataset is a dataset that was written to a path.
type savedDataset struct {
	Dataset string `json:"dataset"` // <workspace>.<name>
	Hash    string `json:"hash"`
	Kind    string `json:"kind"`
	Path    string `json:"path"`
}

// shownValue is a dataset that is a value.
type shownValue struct {
	Dataset string          `json:"dataset"` // <workspace>.<name>
	Kind    string          `json:"kind"`
	Hash    string          `json:"hash"`
	Type    string          `json:"type"`
	Value   json.RawMessage `json:"value"`
}

// shownEast is a dataset of the TypeScript e3 that is no plain value.
type shownEast struct {
	Dataset string          `json:"dataset"` // <workspace>.<name>
	Kind    string          `json:"kind"`
	Hash    string          `json:"hash"`
	Beast2  json.RawMessage `json:"beast2"` // as "e3 convert" writes it
}

func runGet(ctx context.Context, a *app, r *repo.Repo, name string, o *getOptions) error {
	ws, path, err := dataset(name)
	if err != nil {
		return err
	}
	d, release, err := held(ctx, a, r, ws, path, o)
	if err != nil {
		return unassigned(ctx, r, err)
	}
	defer release()
	if !o.past() {
		if err := sayEarlier(ctx, a, r, name, d); err != nil {
			return err
		}
	}
	if d.East {
		return getEast(ctx, a, r, name, d, o)
	}
	h, err := objectstore.ParseHash(d.Hash)
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := save(ctx, r, d, h, o.target()); err != nil {
			return ofDataset(name, err)
		}
		return a.Reply(savedDataset{name, d.Hash, d.Kind.String(), o.out}, func(*render.Sheet) {})
	}
	switch {
	case d.Kind == record.LeafValue:
		v, err := readValue(ctx, r, h)
		if err != nil {
			return fmt.Errorf("dataset %s: %w", name, err)
		}
		return writeValue(a, name, d.Hash, v)
	case d.Kind == record.LeafDir || a.JSON:
		return describe(ctx, a, r, name, d)
	}
	return a.Raw(func(w io.Writer) error {
		_, err := objectstore.CopyChecked(ctx, w, r.Objects, h)
		return ofDataset(name, err)
	})
}

// held finds and protects what is asked for.
func held(ctx context.Context, a *app, r *repo.Repo, ws string, path workspace.DatasetPath, o *getOptions) (*workspace.Dataset, func(), error) {
	if !o.past() {
		return r.Workspaces.Datasets.HoldDataset(ctx, ws, path)
	}
	e, err := pastExecution(ctx, a, r, ws, path.Name, &logsOptions{run: o.run, execution: o.execution})
	if err != nil {
		return nil, nil, err
	}
	return r.Workspaces.Datasets.HoldOutput(ctx, ws, path, e)
}

// ofDataset says whose content is lost.
func ofDataset(name string, err error) error {
	if lost, _ := objectstore.IsLost(err); lost {
		return fmt.Errorf("dataset %s: %w", name, err)
	}
	return err
}

func readValue(ctx context.Context, r *repo.Repo, h objectstore.Hash) (*value.Value, error) {
	data, err := objectstore.ReadAll(ctx, r.Objects, h, value.MaxBytes)
	if err != nil {
		return nil, err
	}
	return value.Decode(data)
}

// valueText is a scalar as text, anything else as JSON, with a newline.
func valueText(v *value.Value) ([]byte, error) {
	if text, ok := v.Scalar(); ok {
		return append([]byte(text), '\n'), nil
	}
	data, err := v.JSON()
	return append(data, '\n'), err
}

func writeValue(a *app, name, hash string, v *value.Value) error {
	if a.JSON {
		data, err := v.JSON()
		if err != nil {
			return err
		}
		return a.Document(shownValue{name, record.LeafValue.String(), hash, v.Type().String(), data}, false)
	}
	data, err := valueText(v)
	if err != nil {
		return err
	}
	return a.Raw(func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// save writes a dataset of e3's own format to a file or folder, and checks the bytes meanwhile.
func save(ctx context.Context, r *repo.Repo, d *workspace.Dataset, h objectstore.Hash, to *resultdir.Target) error {
	if d.Kind == record.LeafDir {
		return to.WriteFolder(r, func(aside string) error {
			_, err := tree.Checkout(ctx, r.Objects, h, aside, tree.CheckoutOptions{})
			return err
		})
	}
	return to.WriteFile(d.Executable, func(f io.Writer) error {
		if d.Kind != record.LeafValue {
			_, err := objectstore.Copy(ctx, f, r.Objects, h)
			return err
		}
		v, err := readValue(ctx, r, h)
		if err != nil {
			return err
		}
		data, err := valueText(v)
		if err == nil {
			_, err = f.Write(data)
		}
		return err
	})
}
