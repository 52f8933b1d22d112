package executions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"e3/internal/format/record"
	"e3/internal/host/room"
	"e3/internal/host/runner"
	"e3/internal/host/trace"
	"e3/refstore"
)

// fieldOpened holds the report of a traced command (trace.Parse), for people. Nothing that a run does depends on it.
const fieldOpened = "opened.txt"

// openedFile is the report in the sandbox.
const openedFile = "opened"

// maxOpened bounds the report in the record: some thousand paths.
const maxOpened = 128 << 10

// traceOpens has the files that the command opens reported, if Options.Trace says so.
func (c *command) traceOpens(ctx context.Context, spec *runner.Spec) error {
	if c.x.opts.Trace == nil {
		return nil
	}
	look, err := c.x.opts.Trace(ctx, c.req)
	if err != nil || look == nil {
		return err
	}
	look.Work, look.Report = c.box.real, filepath.Join(c.box.root.Name(), openedFile)
	if c.spec.Room.Closed {
		look.Work = room.Work
	}
	if c.spec.Batch != nil {
		look.Inputs = append(look.Inputs, batchFile)
	}
	for number, item := range c.items {
		for _, in := range item.spec.Inputs {
			if rel := stagedAt(in); rel != "" {
				look.Inputs = append(look.Inputs, numbered(rel, number))
			}
		}
		for _, out := range item.spec.Output.Entries { // its own outputs
			look.Outputs = append(look.Outputs, numbered(out.Path, number))
		}
	}
	if err := c.box.root.Remove(openedFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c.box.traced, spec.Trace = true, look
	return nil
}

// stagedAt is where an input is put for the command; "": nowhere.
func stagedAt(in record.Input) string {
	if in.Kind.OfMachine() {
		return ""
	}
	return in.Path
}

// openedField is the report of a traced command as a field of its record, sorted and bounded.
func (b *box) openedField() ([]refstore.Field, error) {
	if !b.traced {
		return nil, nil
	}
	f, err := b.root.OpenFile(openedFile, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it did not start
	}
	if err != nil {
		return nil, fmt.Errorf("files that the command opened: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 16*maxOpened))
	if err != nil {
		return nil, fmt.Errorf("files that the command opened: %w", err)
	}
	list := trace.Parse(string(text))
	slices.SortFunc(list, trace.Finding.Compare)
	value := []byte{}
	for _, finding := range slices.Compact(list) {
		if value = finding.Append(value); len(value) >= maxOpened {
			break
		}
	}
	return []refstore.Field{{Name: fieldOpened, Value: value}}, nil
}

// Opened returns what a command opened. traced is false if no report is on record.
func (s *Store) Opened(ctx context.Context, k Key, id string) (found []trace.Finding, traced bool, err error) {
	rec, err := s.records.Get(ctx, recordKey(k, id), fieldOpened)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("execution %s: %w", id, err)
	}
	text, traced := rec.Field(fieldOpened)
	return trace.Parse(string(text)), traced, nil
}
