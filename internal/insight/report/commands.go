package report

import (
	"context"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/parallel"
	"e3/objectstore"
)

// Bounds of what is read of executions and tasks for a page.
const (
	maxMeasured = 400      // executions whose memory and cores are shown
	maxCommands = 120      // commands: of a matrix the first item
	maxCommand  = 8 << 10  // bytes of one
	maxShown    = 200      // characters of a value
	maxValueAt  = 64 << 10 // bytes of its object
)

// command is what a task runs, with the values that it gets.
type command struct {
	*row
	Title  string
	Text   string
	Values []fact // inputs that are values, and constants
	Err    string // why it cannot be shown
}

// measure reads the executions of tasks for their memory and cores, those of this run first.
func (b *builder) measure(p *page) error {
	var open []*row
	left := 0
	for _, cached := range []bool{false, true} {
		for i := range p.Rows {
			r := &p.Rows[i]
			_, ok := executions.ParseKey(r.Key)
			switch {
			case (r.State == runview.TaskCached) != cached || !ok || r.ExecutionID == "":
			case len(open) == maxMeasured:
				left++
			default:
				open = append(open, r)
			}
		}
	}
	err := parallel.AtMost(b.ctx, b.s.Runs.Lookups, len(open), func(ctx context.Context, k int) error {
		r := open[k]
		key, _ := executions.ParseKey(r.Key)
		e, err := b.s.Executions.Get(ctx, key, r.ExecutionID)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || e.Detail == nil {
			return nil // only these columns are empty
		}
		r.execution, r.Memory = e, e.Detail.PeakRSS
		if took := e.CompletedAt.Sub(e.StartedAt); took >= 10*time.Millisecond {
			r.Cores = float64(e.Detail.UserCPU+e.Detail.SystemCPU) / float64(took)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if left > 0 {
		p.Notes = append(p.Notes, "Memory and cores of "+human.Count(left, "more task")+" are left out to keep the page quick.")
	}
	return nil
}

// commands reads what the tasks run. Items of a matrix share the command of the first.
func (b *builder) commands(p *page) error {
	if b.pkg == nil {
		return nil
	}
	declared := make(map[string]*record.PackageTask, len(b.pkg.Tasks))
	for i := range b.pkg.Tasks {
		declared[b.pkg.Tasks[i].Name] = &b.pkg.Tasks[i]
	}
	hidden := map[string]bool{}
	for i := range b.pkg.Inputs {
		hidden[b.pkg.Inputs[i].Name] = b.pkg.Inputs[i].NoExport
	}
	seen, left := map[string]bool{}, 0
	for i := range p.Rows {
		r := &p.Rows[i]
		t := declared[r.Task]
		family, _, items := strings.Cut(r.Task, "[")
		if t == nil || seen[family] {
			continue
		}
		seen[family] = true
		if len(p.Commands) == maxCommands {
			left++
			continue
		}
		c := command{row: r, Title: r.Task}
		if items {
			c.Title += ", and the other items of its matrix"
		}
		if err := b.command(&c, t, hidden); err != nil {
			return err
		}
		p.Commands = append(p.Commands, c)
	}
	if left > 0 {
		p.Notes = append(p.Notes, human.Count(left, "more command")+" are left out to keep the page small.")
	}
	return nil
}

// command fills in one command.
func (b *builder) command(c *command, t *record.PackageTask, hidden map[string]bool) error {
	hash, err := objectstore.ParseHash(t.Task)
	var spec *record.Task
	if err == nil {
		spec, err = executions.LoadTask(b.ctx, b.s.Runs.Objects, hash)
	}
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
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
		c.Values = append(c.Values, fact{visible(e.Name), visible(human.Truncate(e.Value, maxShown))})
	}
	e := c.execution
	if e == nil || len(e.InputHashes) != len(spec.Inputs) || e.Key.Task != hash {
		return nil
	}
	for i, in := range spec.Inputs {
		if in.Kind != record.KindValue || i < len(t.Wiring) && hidden[t.Wiring[i].Name] {
			continue
		}
		if text := b.value(e.InputHashes[i]); text != "" {
			c.Values = append(c.Values, fact{visible(in.Name), visible(human.Truncate(text, maxShown))})
		}
	}
	return nil
}

// value is the text of a value object; "" if it cannot be read.
func (b *builder) value(hash string) string {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return ""
	}
	data, err := objectstore.ReadAll(b.ctx, b.s.Runs.Objects, h, maxValueAt)
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
