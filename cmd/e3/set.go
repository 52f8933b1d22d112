package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/objectstore"
)

func newSet(a *app) *cobra.Command {
	var o setOptions
	cmd := &cobra.Command{
		Use:   "set [repo] <workspace>.<input> <value|@path>",
		Short: "Give an input of a workspace a value",
		Long: `Set an input of a workspace. The value stays until "e3 unset", even if the input's file changes or the workspace is deployed
again. Running starts keep the inputs that they began with.

For an input that is a value, give JSON; text that is not JSON is a string. "@file" reads YAML, JSON or TOML from a file, also
a whole file of parameters. For an input that is a file or a directory, give "@path". "@-" is standard input, in JSON for a value. A value in a file of parameters is named by its path, with or
without the name of its input: prod.params.train.rate, prod.train.rate.

A value keeps its kind: null, boolean, integer, float, string, list or mapping. Another kind is usually a mistake (2O for 20),
and is refused without --change-kind. For an input that is a string, a number is taken as text. An input whose default is null
takes any kind.`,
		Example: `  e3 set . prod.horizon 24
  e3 set . prod.regions '["eu", "us"]'
  e3 set . prod.sales @new-sales.csv
  e3 set . prod.images @img/
  e3 set . prod.offset -- -3`,
		ValidArgsFunction: completeInput(a),
		RunE: onInput(a, func(ctx context.Context, r *repo.Repo, ws, input string, more []string) error {
			return runSet(ctx, a, r, ws, input, more[0], o)
		}, "<value>"),
	}
	cmd.Flags().BoolVar(&o.asJSON, "json-value", false, "the value must be JSON; other text is an error, not a string")
	cmd.Flags().BoolVar(&o.changeKind, "change-kind", false, "accept a value of another kind, such as a list for a number")
	return a.answers(cmd, setInput{})
}

// onInput makes a command whose first argument is an input. It is an error if the workspace cannot be changed.
func onInput(a *app, do func(ctx context.Context, r *repo.Repo, ws, input string, more []string) error, more ...string) runFunc {
	return a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
		return a.inOnly(ctx, r, args[0], func(name string) error {
			ws, path, err := dataset(name)
			if err != nil {
				return err
			}
			if err := r.Workspaces.Datasets.Settable(ctx, ws); err != nil {
				return err
			}
			input := path.Name
			if path.Entry != "" {
				in, err := r.Workspaces.Datasets.Input(ctx, ws, path.Name)
				if err == nil && in.Source != record.FromParams {
					return usagef("%q is not <workspace>.<input>: an input is set as a whole", name)
				}
				input += "." + path.Entry
			}
			if in, err := r.Workspaces.Datasets.Input(ctx, ws, input); err == nil {
				input = in.Name // a parameter may be given by its path alone
			}
			return do(ctx, r, ws, input, args[1:])
		})
	}, append([]string{"<workspace>.<input>"}, more...)...)
}

// setInput is an input that was given a value.
type setInput struct {
	Workspace string          `json:"workspace"`
	Input     string          `json:"input"`
	Kind      record.LeafKind `json:"kind"` // value, file or directory
	Hash      string          `json:"hash"`
}

// unsetInput is an input that has its default again.
type unsetInput struct {
	Workspace string `json:"workspace"`
	Input     string `json:"input"`
	Changed   bool   `json:"changed"` // it had been set
}

// setOptions are the flags of set.
type setOptions struct{ asJSON, changeKind bool }

func runSet(ctx context.Context, a *app, r *repo.Repo, ws, input, text string, o setOptions) error {
	decl, err := r.Workspaces.Datasets.Input(ctx, ws, input)
	if err != nil {
		return err
	}
	leaf, err := takeIn(ctx, a, r, ws, decl, text, o)
	var kind *value.KindError
	if errors.As(err, &kind) {
		return usagef("input %s: %v; a value of another kind needs --change-kind", input, kind)
	}
	if err != nil {
		return fmt.Errorf("input %s: %w", input, err)
	}
	if err := r.Workspaces.Datasets.Set(ctx, ws, input, leaf); err != nil {
		return err
	}
	return a.Reply(setInput{ws, input, leaf.Kind, leaf.Hash}, func(w *render.Sheet) { fmt.Fprintf(w, "Set %s.%s\n", ws, input) })
}

// takeIn stores the value of an argument according to the kind of the input.
func takeIn(ctx context.Context, a *app, r *repo.Repo, ws string, decl *record.PackageInput, text string, o setOptions) (record.Leaf, error) {
	path, isPath := strings.CutPrefix(text, "@")
	if decl.Source == record.FromValue || decl.Source == record.FromParams {
		v, err := parseValue(a, path, isPath, text, o.asJSON)
		if err == nil && !o.changeKind {
			if isPath || o.asJSON {
				text = ""
			}
			v, err = r.Workspaces.Datasets.FitValue(ctx, ws, decl, v, text)
		}
		if err != nil {
			return record.Leaf{}, err
		}
		return r.Workspaces.Datasets.PutValue(ctx, v)
	}
	what := "directory"
	if decl.Source.IsOneFile() {
		what = "file"
	}
	switch {
	case o.changeKind:
		return record.Leaf{}, usagef("it is a %s; only values can change kind: leave --change-kind out", what)
	case !isPath || o.asJSON:
		if o.asJSON {
			text = "path"
		}
		return record.Leaf{}, usagef("it is a %s: give it as %s", what, human.Quoted("@"+text))
	case path == "-" && decl.Source.IsOneFile():
		return r.Workspaces.Datasets.PutStream(ctx, a.stdin)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return record.Leaf{}, usagef("%v", err)
	case !info.IsDir() && !info.Mode().IsRegular():
		return record.Leaf{}, usagef("%v; to read from a pipe: @-", &objectstore.SpecialFileError{Path: path, Mode: info.Mode()})
	case info.IsDir() == decl.Source.IsOneFile():
		return record.Leaf{}, usagef("it is a %s, and %s is not", what, path)
	}
	return r.Workspaces.Datasets.PutPath(ctx, decl.Source, path)
}

func parseValue(a *app, path string, isPath bool, text string, asJSON bool) (any, error) {
	if !isPath {
		v, err := value.ParseJSON([]byte(text))
		if err != nil && !asJSON && !json.Valid([]byte(text)) {
			return text, nil
		}
		if err != nil {
			return nil, usagef("%v", err)
		}
		return v, nil
	}
	in := a.stdin
	if path != "-" {
		f, err := objectstore.OpenFile(path)
		if err != nil {
			return nil, usagef("%v; to read from a pipe: @-", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, value.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > value.MaxBytes {
		return nil, usagef("%s has more than %s", path, human.Bytes(value.MaxBytes))
	}
	var v any
	if path == "-" || asJSON {
		if v, err = value.ParseJSON(data); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	} else {
		v, err = manifest.ParseValue(path, data) // as --set of a start; its errors name the file
	}
	if err != nil {
		return nil, usagef("%v", err)
	}
	return v, nil
}

func newUnset(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:               "unset [repo] <workspace>.<input>",
		Short:             "Give an input back to its file, URL or default",
		Long:              `Undo "e3 set": the input follows its file again, or has the package's default.`,
		ValidArgsFunction: completeInput(a),
		RunE: onInput(a, func(ctx context.Context, r *repo.Repo, ws, input string, _ []string) error {
			changed, err := r.Workspaces.Datasets.Unset(ctx, ws, input)
			if err != nil {
				return err
			}
			return a.Reply(unsetInput{ws, input, changed}, func(w *render.Sheet) {
				if changed {
					fmt.Fprintf(w, "Unset %s.%s\n", ws, input)
				} else {
					fmt.Fprintf(w, "%s.%s was not set\n", ws, input)
				}
			})
		}),
	}, unsetInput{})
}
