package ui

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"e3/executions"
)

// Bounds of the log in a page.
const (
	maxLogLines = 500
	maxLogRead  = 128 << 20 // bytes that are searched, and whose lines are counted
	maxLine     = 8 << 10   // bytes of a line that are shown
	maxHits     = 200
	lineMargin  = 20 // lines above the one that a link names
)

// logView is a part of a log. Fields: each is a name that the template uses.
type logView struct {
	Stream      string // stdout or stderr
	Tabs        []tab  // the streams
	Size        int64
	Lines       []logLine
	First, Last int // numbers of the lines shown
	Total       int // lines of the log
	Cut         bool
	Find        string
	Hits        []hit
	MoreHits    int
	Up, Down    string // addresses of the parts before and after
	Raw         string
	Err         string
}

// logLine is a line with its number.
type logLine struct {
	N        int
	URL      string
	Segments []segment
	Hit      bool
}

// hit is a line that has what is looked for.
type hit struct {
	N    int
	URL  string
	Text string
}

// readLog reads the part of a log that the address asks for: around a line, or the end.
func (s *Server) readLog(ctx context.Context, f *frame, e *executions.Execution) *logView {
	p := f.Place
	v := &logView{Stream: cmp.Or(p.get("log"), "stdout"), Find: p.get("find")}
	sizes := map[string]int64{}
	for _, name := range []string{"stdout", "stderr"} {
		sizes[name], _ = s.stores.Executions.LogSize(ctx, e.Key, e.ExecutionID, streamOf(name)) // reading says what is wrong
	}
	if p.get("log") == "" && sizes["stdout"] == 0 && sizes["stderr"] > 0 {
		v.Stream = "stderr"
	}
	for _, name := range []string{"stdout", "stderr"} {
		label := name
		if sizes[name] == 0 {
			label += " (empty)"
		}
		v.Tabs = append(v.Tabs, tab{label, f.With("log", name, "line", "", "find", ""), name == v.Stream})
	}
	v.Size = sizes[v.Stream]
	if !f.Static {
		v.Raw = "/log?" + at("", "k", e.Key.String(), "x", e.ExecutionID, "log", v.Stream).Query.Encode()
	}
	line, err := strconv.Atoi(cmp.Or(p.get("line"), "0"))
	if err != nil || line < 0 {
		v.Err = errAsked.Error()
		return v
	}
	if v.Size == 0 {
		return v
	}
	if err := s.scanLog(ctx, f, e, v, line); err != nil {
		v.Err = err.Error()
	}
	return v
}

func streamOf(name string) executions.Stream {
	if name == "stderr" {
		return executions.Stderr
	}
	return executions.Stdout
}

// scanLog reads a log up to the part that is shown. Memory is bounded by that part.
func (s *Server) scanLog(ctx context.Context, f *frame, e *executions.Execution, v *logView, line int) error {
	in, err := s.stores.Executions.OpenLog(ctx, e.Key, e.ExecutionID, streamOf(v.Stream), 0)
	if err != nil {
		return err
	}
	defer in.Close()
	r := bufio.NewReaderSize(io.LimitReader(in, maxLogRead), 64<<10)
	first := max(1, line-lineMargin)
	var window [][]byte // of the lines from v.First on
	v.First = 1
	find := []byte(strings.ToLower(v.Find))
	for n := 1; ; n++ {
		text, whole, err := shortLine(r)
		if len(text) == 0 && !whole && errors.Is(err, io.EOF) {
			break
		}
		v.Total = n
		switch {
		case line == 0 || n >= first && n < first+maxLogLines:
			window = append(window, text)
			if len(window) == 2*maxLogLines { // the end is shown
				window = append(window[:0], window[maxLogLines:]...)
			}
			if line > 0 && len(window) == 1 {
				v.First = n
			}
		}
		if len(find) > 0 && bytes.Contains(bytes.ToLower(text), find) {
			if len(v.Hits) < maxHits {
				v.Hits = append(v.Hits, hit{n, f.With("line", strconv.Itoa(n)) + "#L" + strconv.Itoa(n), printed(text)})
			} else {
				v.MoreHits++
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if line == 0 {
		window = window[max(0, len(window)-maxLogLines):]
		v.First = v.Total - len(window) + 1
	}
	v.Last = v.First + len(window) - 1
	v.Cut = v.Size > maxLogRead
	var p painter
	for i, text := range window {
		n := v.First + i
		v.Lines = append(v.Lines, logLine{
			N: n, URL: f.With("line", strconv.Itoa(n), "find", "") + "#L" + strconv.Itoa(n), Segments: p.line(text),
			Hit: n == line || len(find) > 0 && bytes.Contains(bytes.ToLower(text), find),
		})
	}
	if v.First > 1 {
		v.Up = f.With("line", strconv.Itoa(max(1, v.First-maxLogLines+lineMargin)))
	}
	if v.Last < v.Total {
		v.Down = f.With("line", strconv.Itoa(v.Last+1+lineMargin))
	}
	return nil
}

// shortLine reads a line without its end, of a long one only the beginning. whole says that it had an end.
func shortLine(r *bufio.Reader) (text []byte, whole bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		whole = err == nil
		part = bytes.TrimSuffix(part, []byte("\n"))
		if room := maxLine - len(text); room > 0 {
			text = append(text, part[:min(len(part), room)]...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, whole, err
		}
	}
}

// printed is a line as text alone.
func printed(line []byte) string {
	var p painter
	var b strings.Builder
	for _, s := range p.line(line) {
		b.WriteString(s.Text)
	}
	return b.String()
}

// rawLog serves the bytes of a log.
func (s *Server) rawLog(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	key, id, ok := executionOf(q)
	if !ok {
		http.NotFound(w, r)
		return
	}
	in, err := s.stores.Executions.OpenLog(r.Context(), key, id, streamOf(q.Get("log")), 0)
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	defer in.Close()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Security-Policy", foreignPolicy)
	w.Header().Set("Content-Disposition", fmt.Sprintf("inline; filename=%q", streamFile(q.Get("log"))))
	copyTo(w, in)
}

func streamFile(name string) string {
	if name == "stderr" {
		return "stderr.txt"
	}
	return "stdout.txt"
}

// executionOf is the execution that an address names by its key and whole id.
func executionOf(q url.Values) (key executions.Key, id string, ok bool) {
	key, ok = executions.ParseKey(q.Get("k"))
	id = q.Get("x")
	_, err := executions.ParseID(id)
	return key, id, ok && err == nil
}
