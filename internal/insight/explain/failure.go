package explain

import (
	"context"
	"errors"
	"io"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/insight/history"
)

// tailBytes is the number of bytes that are read at the end of a log.
const tailBytes = 8 << 10

// failure describes how an attempt ended, with the end of its log and whether its key ever had a success.
func (x *evidence) failure(a *history.Attempt) (*Failure, error) {
	f := x.failureOf(a)
	if a.Execution == nil {
		return f, nil
	}
	for _, stream := range []executions.Stream{executions.Stderr, executions.Stdout} {
		tail, err := x.tail(a, stream)
		if err != nil {
			return nil, err
		}
		if len(tail) > 0 {
			f.Log, f.Tail = strings.TrimSuffix(string(stream), ".txt"), tail
			break
		}
	}
	for e, err := range x.Executions.List(x.ctx, a.Key) {
		if x.ctx.Err() != nil {
			return nil, context.Cause(x.ctx)
		}
		if err == nil && e.State == record.Success && e.ExecutionID < a.ExecutionID {
			f.Succeeded = ref(history.Of(a.Workspace, a.Task, e))
			break
		}
	}
	return f, nil
}

// tail returns the last lines of a log that are not empty, each clipped.
func (x *evidence) tail(a *history.Attempt, stream executions.Stream) ([]string, error) {
	n, err := x.Executions.LogSize(x.ctx, a.Key, a.ExecutionID, stream)
	if err != nil || n == 0 {
		return nil, x.passing(err)
	}
	from := max(0, n-tailBytes)
	r, err := x.Executions.OpenLog(x.ctx, a.Key, a.ExecutionID, stream, from)
	if err != nil {
		return nil, x.passing(err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, tailBytes))
	if err != nil {
		return nil, x.passing(errors.Join(err))
	}
	text := string(data)
	if from > 0 { // skip a partial first line, if there is a whole one
		if _, rest, ok := strings.Cut(text, "\n"); ok && strings.TrimSpace(rest) != "" {
			text = rest
		}
	}
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" {
			lines = append(lines, truncate(line, maxText))
		}
	}
	return lines[max(0, len(lines)-maxTail):], nil
}
