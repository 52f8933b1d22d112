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
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/report"
)

// Bounds of the log in a page.
const (
	maxLogLines = 500
	maxLogRead  = 128 << 20 // bytes that are searched, and whose lines are counted
	maxLine     = 8 << 10   // shown bytes of a line
	maxHits     = 200
	lineMargin  = 20 // lines above the one that a link names
)

// logView is a part of a log.
type logView struct {
	Stream   string           // stdout or stderr
	Usual    string           // the stream that is shown unless the address names one
	Telling  bool             // the task failed, so that its stderr is what matters
	Sizes    map[string]int64 // of both
	Lines    []logLine
	First    int // number of the first line shown
	Total    int // lines of the log
	Find     string
	Hits     []hit
	MoreHits int
	Raw      string
	Err      string
}

// logLine is a line with its number.
type logLine struct {
	N        int
	Segments []report.Segment
	Rest     string // how much of a long line is not shown
	Hit      bool
}

// hit is a line that has what is looked for.
type hit struct {
	N    int
	Text string
}

// readLog reads the part of a log that the address asks for: the lines around a line, or the end.
func (s *Server) readLog(ctx context.Context, f *frame, e *executions.Execution) *logView {
	p := f.Place
	v := &logView{Usual: "stdout", Find: p.get("find"), Sizes: map[string]int64{}}
	for _, name := range streamNames {
		v.Sizes[name], _ = s.stores.Executions.LogSize(ctx, e.Key, e.ExecutionID, streamOf(name)) // reading says what is wrong
	}
	v.Telling = (e.State == record.Failed || e.State == record.Error) && v.Sizes["stderr"] > 0
	if v.Telling || v.Sizes["stdout"] == 0 && v.Sizes["stderr"] > 0 {
		v.Usual = "stderr"
	}
	v.Stream = cmp.Or(p.get("log"), v.Usual)
	if !f.Static {
		v.Raw = "/log?" + at("", "k", e.Key.String(), "x", e.ExecutionID, "log", v.Stream).Query.Encode()
	}
	line, err := strconv.Atoi(cmp.Or(p.get("line"), "0"))
	if err != nil || line < 0 {
		v.Err = errAsked.Error()
		return v
	}
	if v.Sizes[v.Stream] == 0 {
		return v
	}
	if err := s.scanLog(ctx, e, v, line); err != nil {
		v.Err = err.Error()
	}
	return v
}

var streamNames = []string{"stdout", "stderr"}

func streamOf(name string) executions.Stream {
	if name == "stderr" {
		return executions.Stderr
	}
	return executions.Stdout
}

// scanLog reads a log up to the part that is shown. Memory is bounded by that part.
func (s *Server) scanLog(ctx context.Context, e *executions.Execution, v *logView, line int) error {
	in, err := s.stores.Executions.OpenLog(ctx, e.Key, e.ExecutionID, streamOf(v.Stream), 0)
	if err != nil {
		return err
	}
	defer in.Close()
	r := bufio.NewReaderSize(io.LimitReader(in, maxLogRead), 64<<10)
	first := max(1, line-lineMargin)
	var window []logPart // the lines from v.First on
	v.First = 1
	find := finder{word: []byte(strings.ToLower(v.Find))}
	for n := 1; ; n++ {
		at, whole, err := shortLine(r, &find)
		if at.size == 0 && !whole && errors.Is(err, io.EOF) {
			break
		}
		v.Total = n
		switch {
		case line == 0 || n >= first && n < first+maxLogLines:
			window = append(window, at)
			if len(window) == 2*maxLogLines { // the end is shown
				window = append(window[:0], window[maxLogLines:]...)
			}
			if line > 0 && len(window) == 1 {
				v.First = n
			}
		}
		if at.hit {
			if len(v.Hits) < maxHits {
				v.Hits = append(v.Hits, hit{n, report.Plain(find.around)})
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
	var p report.Painter
	for i, at := range window {
		n := v.First + i
		l := logLine{N: n, Segments: p.Line(at.text), Hit: n == line || at.hit}
		if rest := at.size - int64(len(at.text)); rest > 0 {
			l.Rest = "… and " + human.Bytes(rest) + " more of this line"
		}
		v.Lines = append(v.Lines, l)
	}
	return nil
}

// logPart is a line. Long lines are not kept whole.
type logPart struct {
	text []byte // at most maxLine bytes of its visible text
	size int64  // bytes of its visible text
	hit  bool
}

// shortLine reads a line without its end, and looks for a word in all of it. Text that a carriage return overwrites, as in progress
// bars, is not seen. whole says that the line had an end.
func shortLine(r *bufio.Reader, find *finder) (at logPart, whole bool, err error) {
	find.begin()
	returned := false // the last byte so far is a carriage return
	for {
		data, err := r.ReadSlice('\n')
		whole = err == nil
		data = bytes.TrimSuffix(data, []byte("\n"))
		find.add(data)
		seen := bytes.TrimRight(data, "\r")
		if i := bytes.LastIndexByte(seen, '\r'); i >= 0 {
			at.text, at.size, data = at.text[:0], 0, data[i+1:]
		} else if returned && len(seen) > 0 {
			at.text, at.size = at.text[:0], 0
		}
		if len(data) > 0 {
			returned = data[len(data)-1] == '\r'
		}
		at.size += int64(len(data))
		if room := maxLine - len(at.text); room > 0 {
			at.text = append(at.text, data[:min(len(data), room)]...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			at.hit = find.found
			return at, whole, err
		}
	}
}

// finder looks for a word in the parts of a line, whatever the case of its letters.
type finder struct {
	word   []byte // in lower case; empty: none
	found  bool
	around []byte // the place where it was found
	tail   []byte // tail of the parts before
}

// Bytes of a line before and behind a word that was found.
const (
	aroundBefore = 80
	aroundBehind = 400
)

func (f *finder) begin() { f.found, f.around, f.tail = false, nil, f.tail[:0] }

func (f *finder) add(data []byte) {
	if len(f.word) == 0 || f.found {
		return
	}
	if len(f.tail) > 0 {
		data = append(f.tail, data...)
	}
	if i := bytes.Index(bytes.ToLower(data), f.word); i >= 0 {
		from, to := 0, min(len(data), i+aroundBehind)
		if i > 2*aroundBefore {
			from = min(i-aroundBefore, to)
		}
		f.found, f.around = true, bytes.Clone(data[from:to])
	}
	f.tail = append(f.tail[:0], data[max(0, len(data)-len(f.word)-aroundBefore):]...)
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
