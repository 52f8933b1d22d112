package ui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"e3/internal/insight/explain"
)

// Files receives the files of an export.
type Files interface {
	// Write writes one file, whose name has no folder.
	Write(name string, data []byte) error
}

// Exported says what an export holds.
type Exported struct {
	Pages, Tasks int
	Left         int // tasks without a page of their own
}

// maxExported is the number of tasks that have pages of their own in an export.
const maxExported = 2_000

// Export writes the pages of a workspace's run as files that open from disk and need no server: the run in its views, and each of its
// tasks. hidden names the inputs whose content is left out.
func (s *Server) Export(ctx context.Context, ws, run string, hidden map[string]bool, to Files) (*Exported, error) {
	s.models.hold = true
	m, err := s.models.run(ctx, ws, run)
	if err != nil {
		return nil, err
	}
	tasks, failed := make([]string, 0, len(m.report.Tasks)), map[string]bool{}
	for i := range m.report.Tasks {
		t := &m.report.Tasks[i]
		tasks = append(tasks, t.Task)
		if t.HasFailed() {
			failed[t.Task] = true
		}
	}
	m.mu.Unlock()
	x := &exporter{s: s, ws: ws, run: run, names: map[string]string{}, hidden: hidden}
	first := at(viewRun, "w", ws, "r", run)
	x.add(first, "index")
	for _, view := range []string{runTimeline, runGraph} {
		x.add(first.with("view", view), view)
	}
	x.add(first.with("by", "family"), "families")
	for n := maxRows; n < len(tasks); n += maxRows {
		x.add(first.with("page", itoa(n/maxRows+1)), fmt.Sprintf("tasks-%d", n/maxRows+1))
	}
	x.add(at(viewHistory, "w", ws), "history")
	out := &Exported{Tasks: len(tasks), Left: max(0, len(tasks)-maxExported)}
	tasks = tasks[:len(tasks)-out.Left]
	for i, task := range tasks {
		p := at(viewTask, "w", ws, "t", task, "r", run)
		x.add(p, fmt.Sprintf("task-%d", i+1))
		other := "stderr" // the stream that the page does not show by itself
		if failed[task] {
			other = "stdout"
		}
		x.add(p.with("log", other), fmt.Sprintf("task-%d-%s", i+1, other))
		for _, view := range []string{taskWhy, taskData, taskHistory} {
			x.add(p.with("view", view), fmt.Sprintf("task-%d-%s", i+1, view))
		}
	}
	for _, p := range x.places {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if p.View == viewTask && len(tasks) > 0 && p.get("t") == tasks[0] {
			next := tasks[:min(len(tasks), maxGathered)]
			if err := s.gather(ctx, ws, next); err != nil {
				return nil, err
			}
			tasks = tasks[len(next):]
		}
		text, err := s.renderFile(ctx, p, x)
		if err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			text = s.faultPage(s.fileFrame(p, x), err)
		}
		if err := to.Write(x.names[key(p)], text); err != nil {
			return nil, err
		}
		out.Pages++
	}
	return out, nil
}

// exporter knows which places have files.
type exporter struct {
	s       *Server
	ws, run string
	places  []Place
	names   map[string]string
	hidden  map[string]bool
}

func (x *exporter) add(p Place, name string) {
	x.places = append(x.places, p)
	x.names[key(p)] = name + ".html"
}

// key is a place as text. Parts that no file can hold are left out.
func key(p Place) string {
	var words []string
	for k, v := range p.Query {
		if len(v) > 0 && v[0] != "" {
			words = append(words, k+"="+v[0])
		}
	}
	sort.Strings(words)
	return p.View + "?" + strings.Join(words, "&")
}

// link is a linker of files. A link to the latest run leads to the exported run.
func (x *exporter) link(p Place) string {
	if (p.View == viewRun || p.View == viewTask) && p.get("w") == x.ws && p.get("r") == "" {
		p = p.with("r", x.run)
	}
	return x.names[key(p)]
}

// renderFile renders a place as a file.
func (s *Server) renderFile(ctx context.Context, p Place, x *exporter) ([]byte, error) {
	f := s.fileFrame(p, x)
	body, err := s.views()[p.View](ctx, f)
	if err != nil {
		return nil, err
	}
	return f.write(body), nil
}

func (s *Server) fileFrame(p Place, x *exporter) *frame {
	f := s.frame(p, x.link)
	f.seal("", false)
	f.hidden = x.hidden
	return f
}

// errHidden says that content is not to leave the repository.
var errHidden = errors.New("the package file marks it with export: false, so its content is not in these files")

// tellsHidden reports whether an explanation may reveal content of hidden inputs.
func tellsHidden(w *explain.Explanation, hidden map[string]bool) bool {
	for _, c := range append(append([]explain.Cause{w.Root}, w.Roots...), w.Changed...) {
		if hidden[c.Subject] {
			return true
		}
	}
	return reasonTells(w.Reason, hidden)
}

func reasonTells(r *explain.Reason, hidden map[string]bool) bool {
	if r == nil {
		return false
	}
	if hidden[r.Cause.Subject] || reasonTells(r.Before, hidden) {
		return true
	}
	for i := range r.Differences {
		if d := &r.Differences[i]; hidden[d.Input] || hidden[d.Name] {
			return true
		}
	}
	return slices.ContainsFunc(r.Upstream, func(up *explain.Reason) bool { return reasonTells(up, hidden) })
}
