package explain_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/internal/insight/explain"
	"e3/internal/insight/runview"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/mem"
)

// logs is a store that counts the logs that are opened.
type logs struct {
	*mem.Store
	opened int
	fault  error
}

func (l *logs) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	if l.opened++; l.fault != nil {
		return nil, l.fault
	}
	return l.Store.Open(ctx, key, offset)
}

// ended is a task that has ended with this exit code, and said something.
func (l *logs) ended(t *testing.T, name string, code int64, stderr string) runview.TaskReport {
	t.Helper()
	id, err := executions.NewID()
	if err != nil {
		t.Fatal(err)
	}
	key := executions.Key{Task: objectstore.Sum([]byte(name)), Inputs: executions.InputsHash(nil)}
	rec := refstore.Record{Key: refstore.Key{Partition: "EXECUTION/" + key.String(), Sort: id}, Value: []byte("-"), Fields: []refstore.Field{
		{Name: string(executions.Stderr), Value: []byte(stderr)},
	}}
	if _, err := l.Put(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	return runview.TaskReport{Task: name, State: runview.TaskFailed, ExecutionID: id, Key: key.String(), ExitCode: code}
}

// told is a group in a line.
func told(f *explain.Failures) (list []string) {
	for i := range f.Groups {
		g := &f.Groups[i]
		list = append(list, fmt.Sprintf("%s: %s|%s|%s", g.Task, g.Ended(), g.Others(), strings.Join(g.Tail, "/")))
	}
	if f.More > 0 {
		list = append(list, fmt.Sprintf("%d more", f.More))
	}
	return list
}

func TestFailuresAreGrouped(t *testing.T) {
	l := &logs{Store: mem.New()}
	may := func(r runview.TaskReport) runview.TaskReport { r.MayFail = true; return r }
	cancelled := l.ended(t, "cancelled", 1, "stopped")
	cancelled.State, cancelled.Reason, cancelled.Message = runview.TaskError, string(executions.ReasonCancelled), "cancelled"
	left := l.ended(t, "fit[9]", 1, "broken\n")
	left.LeftOut = "report"
	fine := l.ended(t, "fine", 0, "")
	fine.State = runview.TaskSuccess
	for _, test := range []struct {
		name  string
		tasks []runview.TaskReport
		most  int
		want  []string
	}{
		{"none", []runview.TaskReport{fine, cancelled}, 3, nil},
		{"what fails the run is told first", []runview.TaskReport{may(l.ended(t, "soft", 3, "s")), left, l.ended(t, "hard", 4, "h")}, 3,
			[]string{"hard: exit code 4||h", "soft: exit code 3, allowed to fail||s", "fit[9]: exit code 1, left out of report||broken"}},
		{"a family that ended alike", []runview.TaskReport{l.ended(t, "a[1]", 1, "x\ny\n"), l.ended(t, "b", 1, "x\ny\n"), l.ended(t, "a[2]", 1, "x\ny"), l.ended(t, "a[3]", 1, "z")}, 3,
			[]string{"a[1]: exit code 1|the same in a[2]|x/y", "b: exit code 1||x/y", "a[3]: exit code 1||z"}},
		{"at most so many", []runview.TaskReport{l.ended(t, "a", 1, ""), l.ended(t, "b", 1, ""), l.ended(t, "c", 1, ""), l.ended(t, "d", 1, "")}, 2,
			[]string{"a: exit code 1||", "b: exit code 1||", "2 more"}},
		{"not begun", []runview.TaskReport{{Task: "a", State: runview.TaskError, Message: "no such input"}, {Task: "b", State: runview.TaskError, Message: "no such input"}}, 3,
			[]string{"a: no such input||", "b: no such input||"}},
		{"overwritten, empty and long lines", []runview.TaskReport{l.ended(t, "a", 1, "1 %\r2 %\r\n\n  \n"+strings.Repeat("x", 500)+"\r\n")}, 3,
			[]string{"a: exit code 1||2 %/" + strings.Repeat("x", 400) + "…"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &explain.FailureReader{Executions: executions.NewStore(l, nil)}
			if diff := cmp.Diff(test.want, told(r.Read(t.Context(), "w", test.tasks, test.most))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Of 100 failures ten logs are read, those of each family and end first, and none twice.
func TestFailuresReadFewLogs(t *testing.T) {
	l := &logs{Store: mem.New()}
	var tasks []runview.TaskReport
	for i := range 100 {
		tasks = append(tasks, l.ended(t, fmt.Sprintf("fit[%d]", i), 1, "no luck"))
	}
	tasks = append(tasks, l.ended(t, "last", 2, "bad luck"))
	asked := 0
	r := &explain.FailureReader{Executions: executions.NewStore(l, nil),
		Hints: func(context.Context, string, *runview.TaskReport, []string) []string {
			asked++
			return []string{"think"}
		}}
	f := r.Read(t.Context(), "w", tasks, 3)
	if l.opened != 10 || asked != 2 {
		t.Errorf("%d logs were read and %d hints asked for, want 10 and 2", l.opened, asked)
	}
	want := []string{
		"fit[0]: exit code 1|the same in fit[1], fit[2], fit[3], fit[4], fit[5], fit[6], fit[7], fit[8]; 91 more of fit ended with exit code 1; their logs were not read|no luck",
		"last: exit code 2||bad luck",
	}
	if diff := cmp.Diff(want, told(f)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if hints := slices.Concat(f.Groups[0].Hints, f.Groups[1].Hints); !slices.Equal(hints, []string{"think"}) {
		t.Errorf("hints %q, want each once", hints)
	}
	tasks = append(tasks, l.ended(t, "new", 1, "again"))
	if f = r.Read(t.Context(), "w", tasks, 3); l.opened != 11 || asked != 3 || len(f.Groups) != 3 {
		t.Errorf("after one more failure %d logs were read and %d hints asked for in %d groups, want 11, 3 and 3", l.opened, asked, len(f.Groups))
	}
}

// A log that cannot be read is said, and tried again.
func TestFailuresWithoutLog(t *testing.T) {
	l := &logs{Store: mem.New()}
	tasks := []runview.TaskReport{l.ended(t, "a", 1, "x")}
	r := &explain.FailureReader{Executions: executions.NewStore(l, nil)}
	l.fault = fmt.Errorf("the disk is on fire")
	if f := r.Read(t.Context(), "w", tasks, 3); !strings.Contains(f.Groups[0].Fault, "the disk is on fire") {
		t.Errorf("fault %q, want that of the disk", f.Groups[0].Fault)
	}
	l.fault = nil
	if f := r.Read(t.Context(), "w", tasks, 3); f.Groups[0].Fault != "" || f.Groups[0].Said() != "x" {
		t.Errorf("then %+v, want the log", f.Groups[0])
	}
}

// The end of a log begins with its traceback or paragraph if that is near, and names files as the command's folder has them: items whose
// folders alone differ have failed alike.
func TestEndsOfLogsAreWhole(t *testing.T) {
	lines := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format+"\n", i)
		}
		return b.String()
	}
	const folder = "/home/ann/.cache/e3/b957ec8e015454290aced9d6ce8096bf/scratch/tmp/session-29683-c1040dc9/w%d/room/work"
	trace := "Traceback (most recent call last):\n" + lines(20, "  frame %d") + "ValueError: no\n"
	l := &logs{Store: mem.New()}
	for _, test := range []struct {
		name, log, first string
		lines            int
	}{
		{"a traceback", lines(50, "epoch %d") + trace, "Traceback (most recent call last):", 22},
		{"nothing but a traceback", trace, "Traceback (most recent call last):", 22},
		{"a traceback that is long", lines(5, "epoch %d") + "Traceback (most recent call last):\n" + lines(60, "  frame %d"), "  frame 50", 10},
		{"a paragraph", lines(50, "epoch %d") + "\n" + lines(14, "so it is %d"), "so it is 0", 14},
		{"a short paragraph", lines(50, "epoch %d") + "\nbroken\n", "epoch 41", 10},
		{"neither", lines(50, "epoch %d"), "epoch 40", 10},
	} {
		r := &explain.FailureReader{Executions: executions.NewStore(l, nil)}
		g := r.Read(t.Context(), "w", []runview.TaskReport{l.ended(t, "a", 1, test.log)}, 3).Groups[0]
		if len(g.Tail) != test.lines || g.Tail[0] != test.first {
			t.Errorf("%s: %d lines from %q, want %d from %q", test.name, len(g.Tail), g.Tail[0], test.lines, test.first)
		}
	}
	var items []runview.TaskReport
	for i := range 2 {
		at := fmt.Sprintf(folder, i)
		items = append(items, l.ended(t, fmt.Sprintf("fit[%d]", i), 1, `  File "`+at+`/src/fit.py", line 7, in `+at+"\n"))
	}
	r := &explain.FailureReader{Executions: executions.NewStore(l, nil)}
	want := []string{`fit[0]: exit code 1|the same in fit[1]|  File "src/fit.py", line 7, in .`}
	if diff := cmp.Diff(want, told(r.Read(t.Context(), "w", items, 3))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
