package explain_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/insight/explain"
	"e3/objectstore"
	"e3/refstore"
)

// whole checks that an explanation can be written as JSON, and is of a readable size.
func whole(t *testing.T, w *explain.Explanation) {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil || len(text) > 1<<20 {
		t.Errorf("as JSON it has %d bytes, %v", len(text), err)
	}
	if len(w.Sentence) > 4000 {
		t.Errorf("the sentence has %d bytes", len(w.Sentence))
	}
}

// Many paths lead from the change to the task: each execution is explained once.
func TestManyWays(t *testing.T) {
	h := newHouse(t, t.TempDir())
	defer h.Close()
	var b strings.Builder
	b.WriteString("e3: 1\nname: p\ninputs: {file: {file: data.txt}}\ntasks:\n  a0: {in: [file], out: a0, run: 'cat \"$file\" > \"$out\"'}\n  b0: {in: [file], out: b0, run: 'cat \"$file\" > \"$out\"'}\n")
	const levels = 25
	for i := 1; i < levels; i++ {
		for _, x := range "ab" {
			fmt.Fprintf(&b, "  %c%d: {in: [a%d, b%d], out: %c%d, run: 'cat \"$a%d\" \"$b%d\" | sha256sum | tee \"$out\"; echo %c >> \"$out\"'}\n", x, i, i-1, i-1, x, i, i-1, i-1, x)
		}
	}
	h.write("e3.yaml", b.String())
	h.write("data.txt", "1")
	h.deploy("w")
	h.start("w")
	h.write("data.txt", "2")
	h.start("w")
	w := h.why(fmt.Sprintf("w.a%d", levels-1))
	whole(t, w)
	if len(w.Roots) != 1 || w.Root.Kind != explain.Input || len(w.Chain) != levels {
		t.Errorf("got %+v by way of %q", w.Roots, w.Chain)
	}
	h.write("data.txt", "3")
	w = h.why(fmt.Sprintf("w.a%d", levels-1))
	whole(t, w)
	if w.State != explain.Waits || len(w.Roots) != 1 || w.Root.Kind != explain.Input {
		t.Errorf("got %s, %+v", w.State, w.Roots)
	}
}

// Foreign records, events and objects may hold anything.
func TestHostile(t *testing.T) {
	h := newHouse(t, t.TempDir())
	defer h.Close()
	h.write("data.txt", "1")
	h.write("e3.yaml", "e3: 1\nname: p\ninputs: {file: {file: data.txt}}\ntasks:\n"+two)
	h.deploy("w")
	h.start("w")
	e := h.latest("w", "clean")
	huge := strings.Repeat("\x1b]0;x\a", 1000)
	for i, stream := range [][]byte{
		[]byte("nonsense\n"),
		h.lines(events.Event{Run: h.id(0), Type: events.RunStarted, Data: &events.Data{PackageHash: strings.Repeat("0", 64), Package: huge}}),
		h.lines(events.Event{Run: h.id(0), Type: events.RunStarted},
			events.Event{Run: h.id(0), Type: events.TaskCompleted, Task: "clean", Execution: huge, Data: &events.Data{Key: e.Key.String(), Output: huge}},
			events.Event{Run: h.id(0), Type: events.TaskCompleted, Task: "clean", Execution: e.ExecutionID, Data: &events.Data{Key: huge, Output: e.OutputHash}},
			events.Event{Run: h.id(0), Type: events.TaskFailed, Task: "clean", Execution: h.id(0), Data: &events.Data{Key: e.Key.String(), Message: huge, Reason: "crashed"}}),
	} {
		id := h.id(0)
		h.must(h.Records.Append(t.Context(), refstore.Key{Partition: "EVENTS/w", Sort: id}, 0, []byte(strings.ReplaceAll(string(stream), "RUN", id))))
		for _, target := range []string{"w.clean", "w.raw"} {
			w := h.why(target)
			whole(t, w)
			if w.State != explain.Current {
				t.Errorf("stream %d: %s is %s: %s", i, target, w.State, w.Sentence)
			}
		}
	}

	// Executions whose records name invalid or too few inputs; the output of one is the input of the other.
	for i, inputs := range [][]string{nil, {"nonsense"}, {e.OutputHash, e.OutputHash}, {e.OutputHash}} {
		h.record(e, h.id(0), func(s *record.Status) { s.InputHashes = inputs })
		for _, target := range []string{"w.clean", "w.clean@" + h.made} {
			w := h.why(target)
			whole(t, w)
			if w.Root.Kind == explain.NoCause {
				t.Errorf("inputs %d: %s has no root: %s\n%+v", i, target, w.Sentence, w.Reason)
			}
		}
	}

	// A task object with as much of everything as fits, and names of control characters.
	big := &record.Task{Shell: huge, Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: huge, Kind: record.KindFile}}}}
	for i := range 20_000 {
		big.Env = append(big.Env, record.EnvVar{Name: fmt.Sprint(huge[:10], i), Value: huge[:20]})
	}
	data := big.Encode()
	hash, err := objectstore.PutBytes(t.Context(), h.Objects, data)
	h.must(err)
	e.Key.Task = hash
	h.record(e, h.id(-1e9), func(s *record.Status) {})
	h.must(h.Records.Append(t.Context(), refstore.Key{Partition: "EVENTS/w", Sort: h.id(0)}, 0, h.lines(
		events.Event{Run: h.id(0), Type: events.RunStarted},
		events.Event{Run: h.id(0), Type: events.TaskCompleted, Task: "clean", Execution: h.made, Data: &events.Data{Key: e.Key.String(), Output: e.OutputHash}})))
	w := h.why("w.clean@" + h.made)
	whole(t, w)
	h.edit("tac", "cat")
	whole(t, h.why("w.clean"))
}

// A question writes nothing.
func TestReadOnly(t *testing.T) {
	h := newHouse(t, t.TempDir())
	defer h.Close()
	h.furnish()
	h.deploy("w")
	h.start("w")
	h.write("data.txt", "other")
	h.write("images/new", "new")
	h.edit("k: [1, 2]", "k: [1, 2, 3]")
	before := h.files()
	for _, task := range []string{"report", "pics", "sum", "sq[3]", "pick", "calc"} {
		h.why("w." + task)
	}
	if after := h.files(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

// files lists the repository without files of sessions.
func (h *house) files() string {
	h.Helper()
	var b strings.Builder
	h.must(filepath.WalkDir(h.Root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(h.Root, path)
		if info, err := d.Info(); err == nil && !strings.HasPrefix(rel, "tmp") && !strings.HasPrefix(rel, "locks") {
			fmt.Fprintln(&b, rel, info.Size(), info.ModTime().UnixNano())
		}
		return nil
	}))
	return b.String()
}

// Miss is cheap enough for a plan of many tasks.
func BenchmarkMiss(b *testing.B) {
	h := newHouse(b, b.TempDir())
	defer h.Close()
	const n = 1000
	var items []string
	for i := range n {
		items = append(items, fmt.Sprint(i))
	}
	h.write("e3.yaml", "e3: 1\nname: p\ntasks:\n  t: {matrix: {k: ["+strings.Join(items, ", ")+"]}, out: o, run: ['sh', '-c', 'echo 1 > o']}\n")
	h.deploy("w")
	h.start("w")
	h.edit("echo 1", "echo 2")
	next, err := h.Workspaces.Planner.Next(b.Context(), "w")
	h.must(err)
	plan, err := next.Planner.Plan(b.Context(), "")
	h.must(err)
	var tasks []string
	for i := range plan.Tasks {
		tasks = append(tasks, next.Package.Tasks[i].Name)
	}
	for b.Loop() {
		s := h.stores()
		s.Objects = next.Objects
		x := explain.New(s)
		h.must(x.Prefetch(b.Context(), "w", tasks))
		for i := range plan.Tasks {
			t := &plan.Tasks[i]
			c, err := x.Miss(b.Context(), "w", tasks[i], *t.Key, t.Inputs)
			h.must(err)
			if c.Kind != explain.Command {
				b.Fatalf("%s: %+v", tasks[i], c)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "µs/task")
}
