package report

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/figures"
	"e3/internal/insight/markdown"
	h "e3/internal/insight/markup"
	"e3/internal/insight/runview"
	"e3/objectstore"
)

// Bounds of outputs in a page.
const (
	maxFiles      = 24       // files of an output that is a directory
	maxFigures    = 120      // plots and reports
	maxPicture    = 3 << 20  // bytes of one
	maxFrame      = 2 << 20  // bytes of a report in HTML
	maxText       = 64 << 10 // bytes of text
	allFigures    = 12 << 20 // bytes of them together
	maxMetrics    = 256 << 10
	maxMetricRows = 5_000
	maxNotes      = 12
)

// Content is what a page shows of a file: one of its parts, or only a note.
type Content struct {
	Chart    h.Node
	Table    *Table
	Image    string // address of a picture, or the picture itself
	Document string // HTML in which nothing runs
	Text     string
	Prose    h.Node // of a report in Markdown
	Note     string
}

// Figure is an output that is shown.
type Figure struct {
	Task, Name string
	Size       int64 // -1: of several files
	Content
}

func (f Figure) isDocument() bool { return f.Document != "" || f.Text != "" || f.Prose != nil }

// outputs adds the metrics, plots and reports of all tasks that have an output.
func (b *builder) outputs(c *Contents) error {
	if b.pkg == nil {
		return nil
	}
	kinds := map[string]*record.PackageTask{}
	for i := range b.pkg.Tasks {
		if t := &b.pkg.Tasks[i]; len(t.Policy.Views) > 0 {
			kinds[t.Name] = t
		}
	}
	o := &outputs{b: b, page: c}
	for i := range b.run.Tasks {
		t := &b.run.Tasks[i]
		if kinds[t.Task] == nil || t.State != runview.TaskSuccess && t.State != runview.TaskCached {
			continue
		}
		if err := o.task(t, kinds[t.Task]); err != nil {
			return err
		}
	}
	c.Metrics = o.tables()
	o.drawn()
	if o.left > 0 {
		c.Notes = append(c.Notes, human.Count(o.left, "more file")+" among plots and reports are left out to keep the page small; get them with: e3 get")
	}
	return nil
}

// outputs gathers the contents of outputs.
type outputs struct {
	b       *builder
	page    *Contents
	bytes   int64
	left    int
	metrics []*metricSource
	rows    int
	charts  Charts
}

// note records that something is missing.
func (o *outputs) note(format string, args ...any) {
	switch n := len(o.page.Notes); {
	case n < maxNotes:
		o.page.Notes = append(o.page.Notes, visible(fmt.Sprintf(format, args...)))
	case n == maxNotes:
		o.page.Notes = append(o.page.Notes, "There is more that could not be shown.")
	}
}

// file is a file of an output.
type file struct {
	task, name string // entry and path for display
	hash       objectstore.Hash
	size       int64 // -1: not known
}

// task shows the outputs of one task. The page says which outputs are gone or unreadable; this is no error.
func (o *outputs) task(t *runview.TaskReport, declared *record.PackageTask) error {
	b := o.b
	e, err := b.execution(t, declared)
	var output objectstore.Hash
	if err == nil {
		if e.Detail != nil && e.Detail.Version != "" {
			b.ran(e.Detail)
		}
		output, err = objectstore.ParseHash(e.OutputHash)
	}
	var task *record.Task
	if err == nil {
		task, err = o.object(e.Key.Task)
	}
	if err == nil {
		for i := range declared.Policy.Views {
			if err = o.view(t.Task, task, output, &declared.Policy.Views[i]); err != nil {
				break
			}
		}
	}
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	if err != nil {
		o.note("The outputs of %s cannot be shown: %s.", t.Task, why(err))
	}
	return nil
}

// execution reads the execution that gave a task its outputs. The events of a run that was proven do not tell its key.
func (b *builder) execution(t *runview.TaskReport, declared *record.PackageTask) (*executions.Execution, error) {
	if key, ok := executions.ParseKey(t.Key); ok {
		return b.s.Executions.Get(b.ctx, key, t.ExecutionID)
	}
	task, err := objectstore.ParseHash(declared.Task)
	if err != nil || t.ExecutionID == "" {
		return nil, executions.ErrNotFound
	}
	return b.s.Executions.FindTask(b.ctx, task, t.ExecutionID)
}

// ran records the version of e3 that ran an execution.
func (b *builder) ran(d *record.Detail) {
	if b.version == nil {
		b.version = map[string]bool{}
	}
	if d.RunID == b.run.RunID {
		b.version[d.Version] = true
	}
}

// why explains to a reader of the page why something cannot be read.
func why(err error) string {
	switch {
	case errors.Is(err, executions.ErrNotFound):
		return "its execution is no longer in the repository"
	case errors.Is(err, objectstore.ErrNotFound):
		return "the content is no longer in the repository"
	}
	return err.Error()
}

func (o *outputs) object(h objectstore.Hash) (*record.Task, error) {
	return executions.LoadTask(o.b.ctx, o.b.s.Runs.Objects, h)
}

// view shows the files that a view selects.
func (o *outputs) view(name string, task *record.Task, output objectstore.Hash, v *record.View) error {
	declared := &task.Output.Entries[0]
	for i := range task.Output.Entries {
		if task.Output.Entries[i].Name == v.Entry {
			declared = &task.Output.Entries[i]
		}
	}
	isDir := task.Output.Multi || declared.Kind == record.KindDir
	files, more, err := figures.Find(o.b.ctx, o.b.s.Runs.Objects, v, output, isDir, maxFiles)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(files) == 0 {
		o.note("Of %s there is no %s, which the package file marks.", name, v)
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", v, err)
	}
	if more {
		o.note("Of the directory %s of %s only the first %d files are shown.", path.Base(declared.Path), name, maxFiles)
	}
	for _, f := range files {
		at := file{task: name, name: path.Base(declared.Path), hash: f.Hash, size: f.Size}
		if f.Inner {
			at.name = path.Join(at.name, f.Path)
		} else if task.Output.Multi {
			at.name = entryName(v.Entry, at.name)
		}
		if err := o.show(at, v); err != nil {
			return err
		}
	}
	return nil
}

// entryName is the display name of an entry: the file that the task writes, with the entry's own name if it differs.
func entryName(entry, file string) string {
	if strings.TrimSuffix(file, path.Ext(file)) == entry {
		return file
	}
	return entry + ": " + file
}

// show reads a file according to the kind of its view.
func (o *outputs) show(f file, v *record.View) error {
	if f.size < 0 {
		n, err := o.b.s.Runs.Objects.Stat(o.b.ctx, f.hash)
		if err != nil {
			return err
		}
		f.size = n
	}
	if v.Kind == record.ViewMetrics {
		return o.readMetrics(f)
	}
	undrawn := ""
	if v.Kind == record.ViewPlot {
		var err error
		if undrawn, err = o.chart(o.b.ctx, f, v.Plot); undrawn == "" || err != nil {
			return err
		}
	}
	if len(o.page.Figures) >= maxFigures {
		o.left++
		return nil
	}
	fig, err := o.figure(f)
	if err != nil {
		return err
	}
	if fig.Text != "" && undrawn != "" {
		fig.Note = strings.TrimPrefix(fig.Note+"; not drawn: "+visible(undrawn), "; ")
	}
	o.page.Figures = append(o.page.Figures, fig)
	return nil
}

// Prose is the content of a text file: rendered if the name of the file says that it is Markdown.
func Prose(name, text string) Content {
	c := Content{Text: text}
	c.asProse(name)
	return c
}

func (c *Content) asProse(name string) {
	switch strings.ToLower(path.Ext(name)) {
	case ".md", ".markdown":
		c.Prose, c.Text = markdown.Render(c.Text), ""
	}
}

// Picture is a picture as an address that holds it.
func Picture(format string, data []byte) string {
	return "data:" + format + ";base64," + base64.StdEncoding.EncodeToString(data)
}

// figure converts a file to a figure.
func (o *outputs) figure(f file) (Figure, error) {
	fig := Figure{Task: f.task, Name: f.name, Size: f.size}
	if f.size > maxPicture || o.bytes+f.size > allFigures {
		fig.Note = "too large for this page"
		return fig, nil
	}
	data, err := objectstore.ReadAll(o.b.ctx, o.b.s.Runs.Objects, f.hash, maxPicture)
	if err != nil {
		return fig, err
	}
	fig.Size = int64(len(data))
	switch format := Sniff(data); {
	case strings.HasPrefix(format, "image/"):
		fig.Image = Picture(format, data)
		o.bytes += int64(len(fig.Image))
	case format == "text/html" && len(data) > maxFrame:
		fig.Note = "too large for this page"
	case format == "text/html":
		fig.Document = Harmless(string(data))
		o.bytes += int64(len(data))
	case format == "text/plain":
		fig.Text = Plain(data[:min(len(data), maxText)])
		if len(data) > maxText {
			fig.Note = fmt.Sprintf("its first %s", human.Bytes(maxText))
		}
		o.bytes += int64(len(fig.Text))
		fig.asProse(f.name)
	default:
		fig.Note = "a format that a page cannot show"
	}
	return fig, nil
}
