package report

import (
	"bytes"
	"context"
	"fmt"

	"e3/executions"
	"e3/internal/human"
	"e3/internal/insight/runview"
)

// Bounds of the logs in a page: the last lines of each stream, and the bytes of all streams together.
const (
	maxLines   = 200
	failedTail = 16 << 10
	quietTail  = 4 << 10
	allTails   = 3 << 20
	maxFailed  = 150 // failed tasks whose logs are read
	maxQuiet   = 250 // others
)

// Logs holds the ends of the tasks' logs.
type Logs struct {
	Failed, Quiet []TaskLog // of tasks that failed, and of others
	Note          string
}

// TaskLog holds the ends of one task's logs.
type TaskLog struct {
	*Row
	Streams []Tail
	Err     string // why it could not be read
}

// Tail is the end of a stream.
type Tail struct {
	Name  string
	Lines [][]byte // as the program has written them
	Cut   bool
	Whole int64 // bytes of the stream
}

// logs reads the ends of logs: first those of failed tasks, then of tasks that this run executed, then of cached ones.
func (b *builder) logs(rows []Row) (*Logs, error) {
	l := &Logs{}
	rest, failedLeft, quietLeft, quiet := int64(allTails), 0, 0, 0
	read := func(r *Row, most int64) (TaskLog, error) {
		text, err := b.taskLog(r, most)
		for _, s := range text.Streams {
			for _, line := range s.Lines {
				rest -= int64(len(line))
			}
		}
		return text, err
	}
	for i := range rows {
		r := &rows[i]
		if !bad(r.State) || r.ExecutionID == "" {
			continue
		}
		if len(l.Failed) == maxFailed || rest <= 0 {
			failedLeft++
			continue
		}
		text, err := read(r, failedTail)
		if err != nil {
			return nil, err
		}
		l.Failed = append(l.Failed, text)
	}
	for _, cached := range []bool{false, true} {
		for i := range rows {
			r := &rows[i]
			if bad(r.State) || r.ExecutionID == "" || (r.State == runview.TaskCached) != cached {
				continue
			}
			if quiet == maxQuiet || rest <= 0 {
				quietLeft++
				continue
			}
			quiet++
			text, err := read(r, quietTail)
			if err != nil {
				return nil, err
			}
			if len(text.Streams) > 0 || text.Err != "" {
				l.Quiet = append(l.Quiet, text)
			}
		}
	}
	if n := failedLeft + quietLeft; n > 0 {
		l.Note = fmt.Sprintf("The logs of %s are left out to keep the page small", human.Count(n, "more task"))
		if failedLeft > 0 {
			l.Note += fmt.Sprintf(", %d of which failed", failedLeft)
		}
		l.Note += "; see them with: e3 logs"
	}
	return l, nil
}

// bad reports whether a task's state makes its log worth reading.
func bad(s runview.TaskState) bool {
	return s == runview.TaskFailed || s == runview.TaskError || s == runview.TaskInterrupted || s == runview.TaskRetrying
}

// taskLog reads the end of both streams of a task. Its Err says why they cannot be read.
func (b *builder) taskLog(r *Row, most int64) (TaskLog, error) {
	t := TaskLog{Row: r}
	key, ok := executions.ParseKey(r.Key)
	if !ok {
		t.Err = "the execution is not in the repository"
		return t, nil
	}
	for _, s := range []struct {
		name   string
		stream executions.Stream
	}{{"standard output", executions.Stdout}, {"standard error", executions.Stderr}} {
		text, err := b.tail(key, r.ExecutionID, s.stream, most)
		if b.ctx.Err() != nil {
			return t, context.Cause(b.ctx)
		}
		if err != nil {
			t.Err = s.name + " cannot be read: " + visible(err.Error())
			continue
		}
		if text.Whole > 0 {
			text.Name = s.name
			t.Streams = append(t.Streams, text)
		}
	}
	return t, nil
}

// tail reads at most the last most bytes of a stream, and keeps a bounded number of whole lines.
func (b *builder) tail(key executions.Key, id string, stream executions.Stream, most int64) (Tail, error) {
	data, n, err := b.s.Executions.LogTail(b.ctx, key, id, stream, most)
	if err != nil || n == 0 {
		return Tail{}, err
	}
	t := Tail{Whole: n, Cut: n > most}
	t.Lines = bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	if n := len(t.Lines) - maxLines; n > 0 {
		t.Lines, t.Cut = t.Lines[n:], true
	}
	return t, nil
}
