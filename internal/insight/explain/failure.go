package explain

import (
	"context"
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
	data, _, err := x.Executions.LogTail(x.ctx, a.Key, a.ExecutionID, stream, tailBytes)
	if err != nil {
		return nil, x.passing(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" {
			lines = append(lines, truncate(line, maxText))
		}
	}
	return lines[max(0, len(lines)-maxTail):], nil
}
