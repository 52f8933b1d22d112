package executions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
)

// Names in the working directory of a batch's command. The folder of an item is named by its number.
const (
	batchFolder = ".e3-batch"
	batchFile   = batchFolder + "/items.json"
	batchEnv    = "E3_BATCH"
)

func itemFolder(number int) string { return batchFolder + "/" + strconv.Itoa(number) }

// inFolder returns a task with everything that belongs to the item in the item's folder. Each item is number 0 in its
// own sandbox.
func inFolder(t *record.Task) *record.Task {
	if t.Batch == nil {
		return t
	}
	moved := *t
	moved.Inputs = slices.Clone(t.Inputs)
	for i := range moved.Inputs {
		if in := &moved.Inputs[i]; in.Path != "" && t.Batch.Owns(in.Name) {
			in.Path = path.Join(itemFolder(0), in.Path)
		}
	}
	moved.Output.Entries = slices.Clone(t.Output.Entries)
	for i := range moved.Output.Entries {
		moved.Output.Entries[i].Path = path.Join(itemFolder(0), moved.Output.Entries[i].Path)
	}
	return &moved
}

// numbered turns a path of item 0 into the same path of another item.
func numbered(p string, number int) string {
	if rest, own := strings.CutPrefix(p, itemFolder(0)+"/"); own {
		return itemFolder(number) + "/" + rest
	}
	return p
}

// itemsFile is the file of a batch.
type itemsFile struct {
	Items []itemEntry `json:"items"`
}

// write writes the file, in which each item has a line.
func (l *itemsFile) write(in *beneath.Dir, file string) error {
	var b bytes.Buffer
	b.WriteString("{\"items\": [")
	for i := range l.Items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(&l.Items[i]); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // its newline
	}
	b.WriteString("\n]}\n")
	return writeFile(in, file, b.Bytes())
}

// itemEntry is an item in the file of a batch.
type itemEntry struct {
	Matrix map[string]string `json:"matrix"`
	In     map[string]string `json:"in"`
	Out    map[string]string `json:"out"`
}

// describe describes the box's item to its command.
func (b *box) describe(number int) itemEntry {
	it := itemEntry{Matrix: map[string]string{}, In: map[string]string{}, Out: map[string]string{}}
	for _, e := range b.spec.Env {
		if b.spec.Batch.Owns(e.Name) {
			it.Matrix[e.Name] = e.Value
		}
	}
	for i, in := range b.spec.Inputs {
		if b.ownsInput(in) {
			it.In[in.Name] = numbered(b.texts[i], number)
		}
	}
	for _, out := range b.spec.Output.Entries {
		it.Out[out.Name] = numbered(out.Path, number)
	}
	return it
}

// common describes what the command gets beside the items. It is equal for attempts that one command can serve.
func (a *assignment) common() string {
	t := *a.spec
	t.Env, t.Inputs, t.Output.Entries = nil, nil, slices.Clone(t.Output.Entries)
	for i := range t.Output.Entries {
		t.Output.Entries[i].Path = "" // the item may be in it, and the command learns it from the file of the batch
	}
	var b strings.Builder
	for _, e := range a.spec.Env {
		if !a.spec.Batch.Owns(e.Name) {
			t.Env = append(t.Env, e)
		}
	}
	for i, in := range a.spec.Inputs {
		if !a.ownsInput(in) {
			t.Inputs = append(t.Inputs, in)
			b.Write(a.req.Inputs[i][:])
		}
	}
	b.Write(t.Encode())
	b.WriteString(a.req.Step)
	return b.String()
}

// stageBatch fills the sandbox of a batch's command: common inputs, the folders of all items, and the file that lists
// the items. It returns the command's environment.
func (b *box) stageBatch(ctx context.Context, members []*box) ([]string, error) {
	env, err := b.eachInput(ctx, b.baseEnv(), false, b.stageInput)
	if err != nil {
		return nil, err
	}
	var items itemsFile
	for number, m := range members {
		items.Items = append(items.Items, m.describe(number))
		if m == b {
			continue
		}
		if err := m.work.Rename(filepath.FromSlash(itemFolder(0)), b.work, filepath.FromSlash(itemFolder(number))); err != nil {
			return nil, err
		}
		m.away = true
	}
	if err := b.stageScript(); err != nil {
		return nil, err
	}
	file := filepath.FromSlash(batchFile)
	if err := b.placeFile(file); err != nil {
		return nil, err
	}
	if err := items.write(b.work, file); err != nil {
		return nil, err
	}
	return b.lastEnv(env), b.fixMode(file, stagedFile)
}

// giveBack moves the folders of items to where they came from. A folder that the command has removed or replaced stays
// away: its item then lacks its output.
func (b *box) giveBack(members []*box) error {
	for number, m := range members {
		if !m.away {
			continue
		}
		m.away = false
		from := filepath.FromSlash(itemFolder(number))
		if !b.work.IsDir(from) {
			continue
		}
		if err := b.work.Rename(from, m.work, filepath.FromSlash(itemFolder(0))); err != nil {
			return fmt.Errorf("take an item out of its batch: %w", err)
		}
	}
	return nil
}
