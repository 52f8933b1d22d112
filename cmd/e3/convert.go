package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"e3/internal/format/beast2"
	"e3/internal/host/atomicfile"
	"e3/internal/human"
	"e3/internal/resultdir"
)

type convertOptions struct{ from, to, out string }

func newConvert(a *app) *cobra.Command {
	var o convertOptions
	cmd := &cobra.Command{
		Use:   "convert <file>",
		Short: "Turn beast2 into JSON and back",
		Long: `Turn a beast2 file into JSON, {"type": …, "value": …}, and back, byte for byte. Records and values of a repository
are beast2. "-" is standard input. The format of the input is recognised from its first bytes.`,
		Example: `  e3 convert .e3/workspaces/prod.beast2
  e3 convert run.json -o run.beast2`,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("e3 convert takes one file, got %d", len(args))
			}
			return runConvert(a, args[0], &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "beast2 or json (default: as the input shows)")
	f.StringVar(&o.to, "to", "", "beast2 or json (default: the other one)")
	f.StringVarP(&o.out, "output", "o", "", "file to write (default: standard output)")
	fixedValues(cmd, "from", "beast2", "json")
	fixedValues(cmd, "to", "beast2", "json")
	return cmd
}

// maxConvert bounds the bytes that are read into memory.
const maxConvert = 1 << 30

func runConvert(a *app, path string, o *convertOptions) error {
	in := a.stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return usagef("%v", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxConvert+1))
	if err != nil {
		return err
	}
	if len(data) > maxConvert {
		return usagef("%s has more than %s", path, human.Bytes(maxConvert))
	}
	from, to := o.from, o.to
	if from == "" {
		from = "json"
		if bytes.HasPrefix(data, []byte(beast2.Magic)) {
			from = "beast2"
		}
	}
	if to == "" {
		to = map[string]string{"beast2": "json", "json": "beast2"}[from]
	}
	out, err := transcode(data, from, to)
	if value := withoutTrailers(data); err != nil && from == "beast2" && len(value) < len(data) {
		out, err = transcode(value, from, to)
	}
	if err != nil {
		return fmt.Errorf("convert %s: %w", path, err)
	}
	switch {
	case o.out != "":
		if err := resultdir.CheckParent(o.out); err != nil {
			return err
		}
		return atomicfile.WriteFile(filepath.Clean(o.out), out, atomicfile.Options{})
	case a.ToTerminal() && to == "beast2":
		return usagef("beast2 is not text; name a file with -o, or redirect the output")
	}
	return a.Raw(func(w io.Writer) error {
		_, err := w.Write(out)
		return err
	})
}

// withoutTrailers returns the value in a file of a repository, without what e3 writes behind it (doc/format.md, "Sums" and
// "Executions"): the line with its sum, or the fields of an execution and the line with their lengths.
func withoutTrailers(file []byte) []byte {
	for {
		at := bytes.LastIndexByte(bytes.TrimSuffix(file, []byte("\n")), '\n')
		if at < 0 {
			return file
		}
		words := strings.Fields(string(file[at:]))
		switch {
		case len(words) > 1 && words[0] == "e3sum":
		case len(words) > 0 && words[0] == "e3with":
			for _, field := range words[1:] {
				_, length, _ := strings.Cut(field, "=")
				n, err := strconv.Atoi(length)
				if err != nil || n < 0 || n > at {
					return file
				}
				at -= n
			}
		default:
			return file
		}
		file = file[:at]
	}
}

// transcode converts through the other format if both are the same, so that the input is checked.
func transcode(data []byte, from, to string) ([]byte, error) {
	steps := []func([]byte) ([]byte, error){beast2.ToJSON}
	switch {
	case from == "json" && to == "beast2":
		steps = []func([]byte) ([]byte, error){beast2.FromJSON}
	case from == "json":
		steps = []func([]byte) ([]byte, error){beast2.FromJSON, beast2.ToJSON}
	case to == "beast2":
		steps = []func([]byte) ([]byte, error){beast2.ToJSON, beast2.FromJSON}
	}
	for _, step := range steps {
		var err error
		if data, err = step(data); err != nil {
			return nil, err
		}
	}
	return data, nil
}
