package report

import (
	"context"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/human"
	"e3/internal/parallel"
	"e3/objectstore"
)

// Bounds of commands.
const (
	maxCommands = 120      // commands; a matrix counts once
	maxCommand  = 8 << 10  // bytes of a command
	maxShown    = 200      // characters of a value
	maxValueAt  = 64 << 10 // bytes of its object
)

// Command is the command of a task, with the values that the task gets.
type Command struct {
	*Row
	Title  string
	Text   string
	Values []Fact // inputs that are values, and constants
	Err    string // why it cannot be shown
}

// commands reads the commands of the tasks. Items of a matrix share the command of the first item.
func (b *builder) commands(c *Contents) error {
	if b.pkg == nil {
		return nil
	}
	declared := make(map[string]*record.PackageTask, len(b.pkg.Tasks))
	for i := range b.pkg.Tasks {
		declared[b.pkg.Tasks[i].Name] = &b.pkg.Tasks[i]
	}
	hidden := Hidden(b.pkg)
	seen, left := map[string]bool{}, 0
	for i := range c.Rows {
		r := &c.Rows[i]
		family, _, items := strings.Cut(r.Task, "[")
		if declared[r.Task] == nil || seen[family] {
			continue
		}
		seen[family] = true
		if len(c.Commands) == maxCommands {
			left++
			continue
		}
		one := Command{Row: r, Title: r.Task}
		if items {
			one.Title += ", and the other items of its matrix"
		}
		c.Commands = append(c.Commands, one)
	}
	if left > 0 {
		c.Notes = append(c.Notes, human.Count(left, "more command")+" are left out to keep the page small.")
	}
	return parallel.AtMost(b.ctx, b.s.Runs.Lookups, len(c.Commands), func(ctx context.Context, k int) error {
		one := &c.Commands[k]
		return b.command(ctx, one, declared[one.Task], hidden)
	})
}

// Hidden are the names of the inputs whose content does not leave the repository.
func Hidden(pkg *record.Package) map[string]bool {
	hidden := map[string]bool{}
	if pkg == nil {
		return hidden
	}
	for i := range pkg.Inputs {
		if pkg.Inputs[i].NoExport {
			hidden[pkg.Inputs[i].Name] = true
		}
	}
	return hidden
}

// command fills in one command.
func (b *builder) command(ctx context.Context, c *Command, t *record.PackageTask, hidden map[string]bool) error {
	hash, err := objectstore.ParseHash(t.Task)
	var spec *record.Task
	if err == nil {
		spec, err = executions.LoadTask(ctx, b.s.Runs.Objects, hash)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		c.Err = "The command cannot be read: " + visible(err.Error())
		return nil
	}
	text := spec.Shell
	if spec.Argv != nil {
		words := make([]string, len(spec.Argv))
		for i, word := range spec.Argv {
			words[i] = human.Quoted(word)
		}
		text = strings.Join(words, " ")
	}
	if len(text) > maxCommand {
		text = strings.ToValidUTF8(text[:maxCommand], "") + "…"
	}
	c.Text = Plain([]byte(strings.TrimRight(text, "\n")))
	for _, e := range spec.Env {
		c.Values = append(c.Values, Fact{visible(e.Name), visible(human.Truncate(e.Value, maxShown))})
	}
	key, ok := executions.ParseKey(c.Key)
	if !ok || key.Task != hash {
		return nil
	}
	e, err := b.s.Executions.Get(ctx, key, c.ExecutionID)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil || len(e.InputHashes) != len(spec.Inputs) {
		return nil // only the values are missing
	}
	for i, in := range spec.Inputs {
		if in.Kind != record.KindValue || i < len(t.Wiring) && hidden[t.Wiring[i].Name] {
			continue
		}
		if text := b.value(ctx, e.InputHashes[i]); text != "" {
			c.Values = append(c.Values, Fact{visible(in.Name), visible(human.Truncate(text, maxShown))})
		}
	}
	return nil
}

// value is the text of a value object; "" if it cannot be read.
func (b *builder) value(ctx context.Context, hash string) string {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return ""
	}
	data, err := objectstore.ReadAll(ctx, b.s.Runs.Objects, h, maxValueAt)
	if err != nil {
		return ""
	}
	v, err := value.Decode(data)
	if err != nil {
		return ""
	}
	if text, ok := v.Scalar(); ok {
		return text
	}
	text, err := v.JSON()
	if err != nil {
		return ""
	}
	return string(text)
}
