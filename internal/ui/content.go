package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/human"
	"e3/internal/insight/figures"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// Bounds of previews.
const (
	maxPreview = 2 << 20  // bytes that are read
	maxShown   = 32 << 10 // bytes of text that are shown
	maxEntries = 200      // of a directory
	maxOpened  = 4        // outputs whose previews a page opens by itself
	maxImage   = 32 << 20
)

// item is an input or an output of an execution.
type item struct {
	Name, Kind string
	Path       string // in the task's folder
	From       string // what feeds an input
	FromURL    string
	Hash       string
	Size       int64 // -1: not known
	URL        string
	Open       bool
	Preview    *preview
	Views      []record.View // of an output: what people look at in it
	Seen       []*preview    // of files in a directory that views select
}

// view is what people see a file of the output as; rel is its path in a directory. It is nil for another file.
func (it *item) view(rel string) *record.View {
	i := slices.IndexFunc(it.Views, func(v record.View) bool { return rel == "" || figures.Covers(&v, rel) })
	if i < 0 {
		return nil
	}
	return &it.Views[i]
}

// isMetrics reports whether a view is of metrics.
func isMetrics(v *record.View) bool { return v != nil && v.Kind == record.ViewMetrics }

// preview shows content. One of its parts is set.
type preview struct {
	report.Content
	Name    string
	Frame   string // address of a document in which nothing runs
	Entries []entry
	Raw     string // address of the bytes
}

// entry is a file of a directory.
type entry struct {
	Name, Kind string
	Size       int64
	URL        string
}

// thing is content by its name.
type thing struct {
	hash objectstore.Hash
	kind record.Kind
	link bool
	size int64
}

// find resolves a part of an execution: an input or an output by name, and a path in it. Nothing else can be named.
func (s *Server) find(ctx context.Context, e *executions.Execution, task *record.Task, io, name, rel string) (thing, error) {
	t := thing{size: -1}
	text := ""
	switch io {
	case "in":
		for i := range task.Inputs {
			if task.Inputs[i].Name == name && i < len(e.InputHashes) {
				text, t.kind = e.InputHashes[i], task.Inputs[i].Kind
			}
		}
	case "out":
		for i := range task.Output.Entries {
			if task.Output.Entries[i].Name == name {
				text, t.kind = e.OutputHash, task.Output.Entries[i].Kind
			}
		}
		if task.Output.Multi {
			t.kind = record.KindDir
			rel = path.Join(name, rel)
		}
	}
	h, err := objectstore.ParseHash(text)
	if err != nil {
		return t, errAsked
	}
	t.hash = h
	if rel != "" && rel != "." {
		if t.kind != record.KindDir || !fs.ValidPath(rel) {
			return t, errAsked
		}
		found, err := tree.Lookup(ctx, s.stores.Objects, h, rel)
		if err != nil {
			return t, err
		}
		t = thing{hash: found.Hash, size: found.Size, kind: record.KindFile}
		switch found.Kind {
		case tree.KindDir:
			t.kind, t.size = record.KindDir, -1
		case tree.KindLink:
			t.link = true
		}
	}
	return t, nil
}

// preview reads the beginning of content.
func (s *Server) preview(ctx context.Context, f *frame, e *executions.Execution, task *record.Task, it *item, io, rel string) *preview {
	p := &preview{Name: it.Name}
	if rel != "" {
		p.Name += "/" + rel
	}
	fail := func(err error) *preview {
		switch {
		case errors.Is(err, objectstore.ErrNotFound):
			p.Note = "its content is not in the repository any more, or was never exported"
		case errors.Is(err, errHidden):
			p.Note = err.Error()
		case errors.Is(err, errAsked):
			p.Note = "there is nothing of that name"
		default:
			p.Note = err.Error()
		}
		return p
	}
	if io == "in" && f.hidden[strings.TrimPrefix(it.From, "input ")] {
		return fail(errHidden)
	}
	t, err := s.find(ctx, e, task, io, it.Name, rel)
	if err != nil {
		return fail(err)
	}
	if t.link {
		p.Note = "a link"
		return p
	}
	if t.kind == record.KindDir {
		list, err := tree.Read(ctx, s.stores.Objects, t.hash)
		if err != nil {
			return fail(err)
		}
		for _, en := range list[:min(len(list), maxEntries)] {
			x := entry{Name: en.Name, Kind: map[tree.Kind]string{tree.KindDir: "directory", tree.KindLink: "link"}[en.Kind], Size: en.Size}
			if en.Kind != tree.KindLink {
				x.URL = f.With("view", "data", "io", io, "n", it.Name, "path", path.Join(rel, en.Name))
			}
			p.Entries = append(p.Entries, x)
		}
		if n := len(list) - maxEntries; n > 0 {
			p.Note = "and " + human.Count(n, "more entry")
		}
		return p
	}
	if !f.Static {
		p.Raw = "/content?" + at("", "k", e.Key.String(), "x", e.ExecutionID, "io", io, "n", it.Name, "path", rel).Query.Encode()
	}
	if t.size < 0 {
		if t.size, err = s.stores.Objects.Stat(ctx, t.hash); err != nil {
			return fail(err)
		}
	}
	if t.size > maxPreview {
		if err := s.beginning(ctx, p, t, cmp.Or(rel, it.Path), isMetrics(it.view(rel)) || isTable(it, rel)); err != nil {
			return fail(err)
		}
		return p
	}
	data, err := objectstore.ReadAll(ctx, s.stores.Objects, t.hash, maxPreview)
	if err != nil {
		return fail(err)
	}
	p.show(data, t.kind, shownAs{cmp.Or(rel, it.Path), it.view(rel), isTable(it, rel)})
	return p
}

// beginning shows the first lines of content that is too large to read for a page. The browser itself reads pictures
// and documents.
func (s *Server) beginning(ctx context.Context, p *preview, t thing, name string, table bool) error {
	p.Note = human.Bytes(t.size) + " are too large to show here"
	if t.kind == record.KindValue || t.kind == record.KindVariable {
		return nil
	}
	in, err := s.stores.Objects.Open(ctx, t.hash)
	if err != nil {
		return err
	}
	defer in.Close()
	head := make([]byte, maxShown)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = wholeRunes(head[:n])
	format := report.Sniff(head)
	drawn := p.Raw != "" && t.size <= maxImage
	switch {
	case strings.HasPrefix(format, "image/") && drawn:
		p.Image, p.Note = p.Raw, ""
	case format == "text/html" && drawn:
		p.Frame, p.Note = p.Raw, ""
	case strings.HasPrefix(format, "text/"):
		if i := bytes.LastIndexByte(head, '\n'); i >= 0 {
			head = head[:i+1]
		}
		p.Note = fmt.Sprintf("its first %s of %s", human.Bytes(int64(len(head))), human.Bytes(t.size))
		if m := report.TableOf(name, head); table && len(m.Head) > 0 {
			p.Table = &m
			return nil
		}
		p.Text = report.Plain(head)
	}
	return nil
}

// isTable reports whether a file, or a file in a directory, is a table by its name.
func isTable(it *item, rel string) bool {
	name := strings.ToLower(cmp.Or(rel, it.Path, it.Name))
	return strings.HasSuffix(name, ".csv") || strings.HasSuffix(name, ".tsv")
}

// wholeRunes cuts off the beginning of a character at the end of a part of a text.
func wholeRunes(data []byte) []byte {
	for cut := 1; cut < utf8.UTFMax && cut <= len(data); cut++ {
		if at := data[len(data)-cut:]; utf8.RuneStart(at[0]) {
			if !utf8.FullRune(at) {
				return data[:len(data)-cut]
			}
			break
		}
	}
	return data
}

// viewed returns the paths of some files in a directory that views select.
func (s *Server) viewed(ctx context.Context, e *executions.Execution, task *record.Task, it *item) []string {
	output, err := objectstore.ParseHash(e.OutputHash)
	if err != nil || it.Kind != record.KindDir.String() {
		return nil
	}
	var list []string
	for i := range it.Views {
		files, _, err := figures.Find(ctx, s.stores.Objects, &it.Views[i], output, true, maxOpened)
		for _, f := range files {
			if err == nil && f.Inner && len(list) < maxOpened && !slices.Contains(list, f.Path) {
				list = append(list, f.Path)
			}
		}
	}
	return list
}

// shownAs says how a file is seen: its name with the ending, and the view that selects it.
type shownAs struct {
	name  string
	view  *record.View
	table bool
}

// show chooses how content is seen.
func (p *preview) show(data []byte, kind record.Kind, as shownAs) {
	if kind == record.KindValue || kind == record.KindVariable {
		v, err := value.Decode(data)
		if err == nil {
			var text []byte
			if text, err = v.JSONWithin(maxShown); err == nil {
				p.Text = indented(text)
				return
			}
		}
		p.Note = "a value that cannot be shown: " + err.Error()
		return
	}
	format := report.Sniff(data)
	switch {
	case strings.HasPrefix(format, "image/"):
		p.Image = p.Raw
		if p.Raw == "" {
			p.Image = report.Picture(format, data)
		}
	case format == "text/html":
		p.Frame = p.Raw
		if p.Raw == "" {
			p.Text = clipped(data, p)
		}
	case format == "text/plain" && as.view != nil && as.view.Kind == record.ViewPlot && p.chart(as, data):
	case format == "text/plain" && (isMetrics(as.view) || as.table):
		if t := report.TableOf(as.name, data); len(t.Head) > 0 {
			p.Table = &t
			return
		}
		p.Text = clipped(data, p)
	case format == "text/plain":
		if json.Valid(data) && len(data) < maxShown {
			p.Text = indented(data)
			return
		}
		shown := report.Prose(as.name, clipped(data, p))
		p.Text, p.Prose = shown.Text, shown.Prose
	default:
		p.Note = human.Bytes(int64(len(data))) + " in a format that cannot be shown"
	}
}

// chart shows a table as a chart, if it is one that can be drawn.
func (p *preview) chart(as shownAs, data []byte) bool {
	list, reason := report.ChartsOf(report.Plotted{Name: as.name, Plot: as.view.Plot}, data)
	if len(list) > 0 {
		p.Chart = h.Map(list, func(c report.Chart) h.Node { return c.Drawing(report.Look{}) })
	}
	if reason != "" {
		p.Note = "not drawn: " + reason
	}
	return len(list) > 0
}

func indented(data []byte) string {
	var v json.RawMessage = data
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil || len(text) > maxShown {
		text = data[:min(len(data), maxShown)]
	}
	return report.Plain(text)
}

func clipped(data []byte, p *preview) string {
	if len(data) > maxShown {
		p.Note = "its first " + human.Bytes(maxShown)
		data = wholeRunes(data[:maxShown])
	}
	return report.Plain(data)
}

// content serves the bytes of an input or output. A browser shows some formats, and runs nothing in them.
func (s *Server) content(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	ctx := r.Context()
	key, id, ok := executionOf(q)
	if !ok {
		http.NotFound(w, r)
		return
	}
	fail := func(err error) { http.Error(w, err.Error(), statusOf(err)) }
	e, err := s.stores.Executions.Get(ctx, key, id)
	if err != nil {
		fail(err)
		return
	}
	task, err := executions.LoadTask(ctx, s.stores.Objects, key.Task)
	if err != nil {
		fail(err)
		return
	}
	t, err := s.find(ctx, e, task, q.Get("io"), q.Get("n"), q.Get("path"))
	if err == nil && (t.kind == record.KindDir || t.link) {
		err = errAsked
	}
	if err != nil {
		fail(err)
		return
	}
	in, err := s.stores.Objects.Open(ctx, t.hash)
	if err != nil {
		fail(err)
		return
	}
	defer in.Close()
	head := make([]byte, 4<<10)
	n, err := io.ReadFull(in, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		fail(err)
		return
	}
	kind := cmp.Or(report.Sniff(wholeRunes(head[:n])), "application/octet-stream")
	h := w.Header()
	h.Set("Content-Security-Policy", foreignPolicy)
	if strings.HasPrefix(kind, "text/") {
		kind += "; charset=utf-8"
	}
	h.Set("Content-Type", kind)
	if kind == "application/octet-stream" || q.Get("save") != "" {
		h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", fileName(q.Get("n"), q.Get("path"))))
	}
	copyTo(w, io.MultiReader(strings.NewReader(string(head[:n])), in))
}

// fileName is a name under which a browser keeps content.
func fileName(name, rel string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`/\"`, r) {
			return '_'
		}
		return r
	}, path.Base(path.Join(name, rel)))
}

// copyTo sends content. The client must take each part in time.
func copyTo(w http.ResponseWriter, in io.Reader) {
	out := http.NewResponseController(w)
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			_ = out.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
