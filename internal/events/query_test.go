package events_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/refstore"
	"e3/refstore/mem"
)

// put stores the bytes of a log.
func put(t interface{ Fatal(...any) }, s refstore.Streams, ws, run string, data []byte) {
	if err := s.Append(context.Background(), refstore.Key{Partition: "EVENTS/" + ws, Sort: run}, 0, data); err != nil {
		t.Fatal(err)
	}
}

// ask collects what a query yields: events, and errors.
func ask(s refstore.Streams, f events.Filter) (list []events.Event, errs []error) {
	for e, err := range events.Query(context.Background(), s, f) {
		if err != nil {
			errs = append(errs, err)
		} else {
			list = append(list, e)
		}
	}
	return list, errs
}

// lines makes a log of events, numbered.
func lines(t interface{ Fatal(...any) }, ws, run string, list ...events.Event) []byte {
	var b []byte
	for i, e := range list {
		e.Seq, e.Workspace, e.Run = int64(i+1), ws, run
		if e.Time.IsZero() {
			e.Time = epoch
		}
		var err error
		if b, err = events.AppendLine(b, &e); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// plain is the expected result of a query: it parses every line.
func plain(logs map[string][]byte, f events.Filter) []events.Event {
	var all []events.Event
	for _, run := range slices.Sorted(mapKeys(logs)) {
		all = append(all, plainRun(logs, run, f)...)
	}
	if f.Last > 0 {
		all = all[max(0, len(all)-f.Last):]
	}
	return all
}

func mapKeys(logs map[string][]byte) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range logs {
			if !yield(k) {
				return
			}
		}
	}
}

func plainRun(logs map[string][]byte, run string, f events.Filter) []events.Event {
	var list []events.Event
	var bulk *events.Event
	worker := ""
	named := false
	data := logs[run]
	for first := true; ; first = false {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			break
		}
		data = rest
		e, err := events.Parse(line)
		if err != nil {
			continue
		}
		if first && e.Type == events.RunStarted && e.Data != nil && e.Data.Process != nil && e.Data.Process.User != "" {
			worker = e.Data.Process.User + "@" + e.Data.Process.Host
		}
		by := e.Worker
		if by == "" {
			by = worker
		}
		rest1 := (len(f.Types) == 0 || slices.Contains(f.Types, e.Type)) && (f.Worker == "" || events.MatchWorker(f.Worker, by)) &&
			strings.HasPrefix(e.Execution, f.Execution) && (!f.Failed || e.Type == events.TaskFailed || e.Type == events.RunFailed) &&
			(f.Tasks == nil || f.Tasks[e.Task]) && e.Seq >= f.FromSeq && (f.Since.IsZero() || !e.Time.Before(f.Since)) && (f.Until.IsZero() || e.Time.Before(f.Until))
		exact := f.HasTask != nil && f.Task != "" && !events.IsPattern(f.Task)
		switch {
		case exact && e.Task == f.Task:
			named = true
		case exact:
			if bulk == nil && rest1 && e.Task == "" && e.Type == events.TaskCached && e.Data != nil && e.Data.As != "" && e.Data.Tasks > 0 &&
				bytes.Contains(line, []byte(`"type":"task.cached","data":{"tasks":`)) {
				bulk = e
			}
			continue
		case f.Task != "" && (e.Task == "" || !events.Match(f.Task, e.Task)):
			continue
		}
		if rest1 {
			list = append(list, *e)
		}
	}
	if !named && bulk != nil {
		if has, _ := f.HasTask(context.Background(), "", events.RunRef{Run: bulk.Data.As}); has {
			list = append(list, *bulk)
		}
	}
	return list
}

// hasIn answers as HasTask from logs, without shortcuts.
func hasIn(logs map[string][]byte, task string) func(context.Context, string, events.RunRef) (bool, error) {
	return func(_ context.Context, _ string, as events.RunRef) (bool, error) {
		return plainHas(logs, as.Run, task, map[string]bool{}), nil
	}
}

// plainHas reports whether a run has a task: by an event of its own, or because its bulk event stands for the task.
func plainHas(logs map[string][]byte, run, task string, seen map[string]bool) bool {
	if seen[run] {
		return false
	}
	seen[run] = true
	as := ""
	for line := range bytes.Lines(logs[run]) {
		e, err := events.Parse(line)
		if err != nil || line[len(line)-1] != '\n' {
			continue
		}
		if e.Task == task {
			return true
		}
		if as == "" && e.Task == "" && e.Type == events.TaskCached && e.Data != nil && e.Data.Tasks > 0 && bytes.Contains(line, []byte(`"type":"task.cached","data":{"tasks":`)) {
			as = e.Data.As
		}
	}
	return as != "" && plainHas(logs, as, task, seen)
}

var oddNames = []string{"train", "tra", "train[4]", "é", "a\"b", `a\b`, "<x>", "\u2028", "\ufffd", "a\xffb", "日本", "t\tb"}

// anyLine is an event, written by e3 or in another style of JSON, or no event at all.
var anyLine = rapid.Custom(func(t *rapid.T) []byte {
	e := anyEvent.Draw(t, "event")
	e.Seq = rapid.Int64Range(1, 20).Draw(t, "seq")
	e.Time = epoch.Add(time.Duration(rapid.IntRange(-3000, 3000).Draw(t, "s")) * time.Second)
	e.Task = rapid.SampledFrom(append([]string{""}, oddNames...)).Draw(t, "name")
	e.Worker = rapid.SampledFrom([]string{"", "ann@lab", "bob@lab"}).Draw(t, "worker")
	e.Type = rapid.SampledFrom(events.Types()).Draw(t, "known type")
	e.Execution = rapid.SampledFrom([]string{"", "x1", "x2", "y"}).Draw(t, "execution")
	if e.Data != nil && e.Data.Process != nil {
		e.Data.Process.User, e.Data.Process.Host = rapid.SampledFrom([]string{"", "ann"}).Draw(t, "user"), "lab"
	}
	if e.Type == events.TaskCached && e.Data != nil {
		e.Data.As = rapid.SampledFrom([]string{"", "r1", "r2", "r3", "gone"}).Draw(t, "as")
	}
	line, err := events.Append(nil, &e)
	if err != nil {
		t.Fatal(err)
	}
	switch rapid.IntRange(0, 9).Draw(t, "habit") {
	case 0: // escapes where none are needed
		line = bytes.ReplaceAll(line, []byte("train"), []byte(`\u0074rain`))
	case 1:
		line = bytes.ReplaceAll(line, []byte(`"task":`), []byte(`"Task" : `))
	case 2:
		line = bytes.ReplaceAll(line, []byte("\ufffd"), []byte("\xfe"))
	case 3:
		line = append(line[:len(line)/2], '\n')
	case 4:
		line = bytes.Replace(line, []byte(`"type":`), []byte(`"task":"train","type":`), 1)
	}
	return []byte(eventstest.Summed(string(line)))
})

var anyFilter = rapid.Custom(func(t *rapid.T) events.Filter {
	f := events.Filter{
		Workspace: rapid.SampledFrom([]string{"", "w"}).Draw(t, "workspace"),
		Task:      rapid.SampledFrom(append([]string{"", "", "*", "tr*", "*[?]", "?", "*a*"}, oddNames...)).Draw(t, "task"),
		Worker:    rapid.SampledFrom([]string{"", "", "ann@lab", "bob@lab", "bob", "@lab", "lab", "b*", "?ob@*"}).Draw(t, "worker"),
		Execution: rapid.SampledFrom([]string{"", "", "x", "y"}).Draw(t, "execution"),
		Failed:    rapid.IntRange(0, 3).Draw(t, "failed") == 0,
		FromSeq:   rapid.Int64Range(0, 5).Draw(t, "from"),
		Last:      rapid.IntRange(0, 4).Draw(t, "last"),
	}
	if rapid.Bool().Draw(t, "by type") {
		f.Types = rapid.SliceOfN(rapid.SampledFrom(events.Types()), 0, 3).Draw(t, "types")
	}
	if rapid.IntRange(0, 3).Draw(t, "by names") == 0 {
		f.Tasks = map[string]bool{}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(oddNames), 0, 4).Draw(t, "names") {
			f.Tasks[name] = true
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "by time") == 0 {
		f.Since, f.Until = epoch.Add(-20*time.Minute), epoch.Add(20*time.Minute)
	}
	return f
})

// The scan finds the same as a reader that parses every line.
func TestQueryAgreesWithPlainReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := mem.New()
		logs := map[string][]byte{}
		for _, run := range []string{"r1", "r2", "r3"} {
			logs[run] = bytes.Join(rapid.SliceOfN(anyLine, 0, 12).Draw(t, run), nil)
			if rapid.Bool().Draw(t, "torn") {
				logs[run] = logs[run][:rapid.IntRange(0, len(logs[run])).Draw(t, "at")]
			}
			put(t, s, "w", run, logs[run])
		}
		f := anyFilter.Draw(t, "filter")
		if rapid.Bool().Draw(t, "in bulk") {
			f.HasTask = hasIn(logs, f.Task)
		}
		got, errs := ask(&crumbs{s}, f)
		for _, err := range errs {
			var damaged *events.DamagedError
			if !errors.As(err, &damaged) {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(plain(logs, f), got); diff != "" {
			t.Fatalf("filter %+v (-plain +query):\n%s", f, diff)
		}
	})
}

// crumbs is a store whose readers return a few bytes at a time.
type crumbs struct{ *mem.Store }

func (c *crumbs) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	r, err := c.Store.Open(ctx, key, offset)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{iotest.HalfReader(iotest.DataErrReader(r)), r}, nil
}

// The same for arbitrary bytes.
func FuzzQuery(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte, task, worker, execution string, how byte) {
		s := mem.New()
		put(t, s, "w", "r1", data)
		filter := events.Filter{Task: task, Worker: worker, Execution: execution, Failed: how&1 != 0, Last: int(how >> 1 & 3)}
		if how&8 != 0 {
			filter.Types = []events.Type{events.TaskCached, events.Type(task)}
		}
		logs := map[string][]byte{"r1": data}
		filter.HasTask = hasIn(logs, task)
		got, _ := ask(s, filter)
		want := plain(logs, filter)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("filter %+v (-plain +query):\n%s", filter, diff)
		}
	})
}

func TestQueryOrder(t *testing.T) {
	s := mem.New()
	const n = 300 // more than are scanned at once
	for i := range n {
		w := fmt.Sprintf("w%d", i%3)
		run := fmt.Sprintf("r%04d", (i*7)%n)
		list := make([]events.Event, 1+i%600)
		for k := range list {
			list[k].Type = events.TaskStarted
		}
		put(t, s, w, run, lines(t, w, run, list...))
	}
	var last events.Event
	total := 0
	got, errs := ask(s, events.Filter{})
	for _, e := range got {
		if e.Run < last.Run || e.Run == last.Run && e.Seq != last.Seq+1 || e.Run > last.Run && e.Seq != 1 {
			t.Fatalf("event %d of run %s came after event %d of run %s", e.Seq, e.Run, last.Seq, last.Run)
		}
		last = e
		total++
	}
	if want := n * (1 + 300) / 2; total < want || len(errs) > 0 {
		t.Errorf("%d events, errors %v", total, errs)
	}
	one, _ := ask(s, events.Filter{Workspace: "w1"})
	for _, e := range one {
		if e.Workspace != "w1" {
			t.Fatalf("an event of workspace %s", e.Workspace)
		}
	}
	tail, _ := ask(s, events.Filter{Last: 1000})
	if diff := cmp.Diff(got[len(got)-1000:], tail); diff != "" {
		t.Errorf("the last 1000 (-want +got):\n%.2000s", diff)
	}
	// A reader that stops early leaves nothing open.
	for range events.Query(t.Context(), s, events.Filter{}) {
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var fault error
	for _, err := range events.Query(ctx, s, events.Filter{}) {
		cancel()
		if err != nil {
			fault = err
		}
	}
	if !errors.Is(fault, context.Canceled) {
		t.Errorf("a cancelled query: %v", fault)
	}
}

func TestQueryDamage(t *testing.T) {
	s := mem.New()
	good := lines(t, "w", "r1", events.Event{Type: events.RunStarted}, events.Event{Type: events.TaskFailed, Task: "a"})
	put(t, s, "w", "r1", slices.Concat(good, []byte("oops\n"), []byte("again\n"), good, []byte(`{"seq":5,`)))
	put(t, s, "w", "r2", good)
	put(t, s, "w", "r3", slices.Concat([]byte(strings.Repeat("x", 1<<20)), good, []byte(strings.Repeat(" ", 3<<20))))
	put(t, s, "w", "r4", nil)
	got, errs := ask(s, events.Filter{})
	var damaged *events.DamagedError
	if len(got) != 4+2+1 || len(errs) != 2 || !errors.As(errs[0], &damaged) || damaged.Run != "r1" || damaged.Workspace != "w" {
		t.Errorf("%d events, errors %v; want 7 events, and the first damage of r1 and r3", len(got), errs)
	}
	// The first line of r3 has too many bytes; its second is complete.
	if errs[1].Error() != "events of run r3: line ending at byte 1048685: the line has more than 1 MiB" {
		t.Errorf("got %v", errs[1])
	}
	if got, errs := ask(s, events.Filter{Task: "a"}); len(got) != 4 || len(errs) != 1 {
		t.Errorf("by task: %d events, errors %v; want 4 and the line that is too long", len(got), errs)
	}
	broken := errors.New("input/output error")
	got, errs = ask(&unreadable{Store: s, err: broken}, events.Filter{})
	if len(got) != 0 || len(errs) != 4 || !errors.Is(errs[0], broken) {
		t.Errorf("of a store that cannot be read: %d events, errors %v; want one for each run", len(got), errs)
	}
}

func TestQueryBulk(t *testing.T) {
	s := mem.New()
	bulk := func(as string) events.Event {
		return events.Event{Type: events.TaskCached, Data: &events.Data{Tasks: 200, As: as}}
	}
	started := func(pkg string) events.Event {
		return events.Event{Type: events.RunStarted, Data: &events.Data{PackageHash: pkg}}
	}
	done := func(task string) events.Event { return events.Event{Type: events.TaskCompleted, Task: task} }
	logs := map[string][]byte{}
	for run, list := range map[string][]events.Event{
		"r1": {started("p"), done("a"), done("b")},
		"r2": {started("p"), bulk("r1")},
		"r3": {started("p"), bulk("r2"), done("b")},
		"r4": {started("p"), bulk("r3")},
		"r5": {started("p"), bulk("r6")}, // a cycle
		"r6": {started("p"), bulk("r5")},
		"r7": {started("p"), bulk("r0")}, // a removed run
		"r8": {started("q"), bulk("r4")},
	} {
		logs[run] = lines(t, "w", run, list...)
		put(t, s, "w", run, logs[run])
	}
	runs := func(f events.Filter) string {
		list, errs := ask(s, f)
		if len(errs) > 0 {
			t.Error(errs)
		}
		var names []string
		for _, e := range list {
			names = append(names, e.Run)
		}
		return strings.Join(names, " ")
	}
	byEvents := func(f events.Filter) events.Filter {
		f.HasTask = hasIn(logs, f.Task)
		return f
	}
	byPackage := func(_ context.Context, pkg string, _ events.RunRef) (bool, error) { return pkg == "p", nil }
	for _, test := range []struct {
		name string
		f    events.Filter
		want string
	}{
		{"by events", byEvents(events.Filter{Task: "a"}), "r1 r2 r3 r4 r8"},
		{"an event of its own", byEvents(events.Filter{Task: "b"}), "r1 r2 r3 r4 r8"},
		{"no run has it", byEvents(events.Filter{Task: "c"}), ""},
		{"by package", events.Filter{Task: "a", HasTask: byPackage}, "r1 r2 r3 r4 r5 r6 r7"},
		{"not in bulk", events.Filter{Task: "b"}, "r1 r3"},
		{"a pattern", byEvents(events.Filter{Task: "a*"}), "r1"},
		{"a type", byEvents(events.Filter{Task: "b", Types: []events.Type{events.TaskCached}}), "r2 r4 r8"},
		{"another type", byEvents(events.Filter{Task: "a", Types: []events.Type{events.TaskCompleted}}), "r1"},
		{"one run", byEvents(events.Filter{Task: "a", Run: "r4"}), "r4"},
		{"the last", byEvents(events.Filter{Task: "a", Last: 2}), "r4 r8"},
	} {
		if got := runs(test.f); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// runAt is the id of a run that began at a time.
func runAt(at time.Time) string {
	ms := fmt.Sprintf("%012x", at.UnixMilli())
	return ms[:8] + "-" + ms[8:] + "-7abc-8def-0123456789ab"
}

// counting is a store that counts the logs that are opened.
type counting struct {
	*mem.Store
	mu     sync.Mutex
	opened map[string]int
}

func (c *counting) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	if offset == 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.opened[key.Sort]++
	}
	return c.Store.Open(ctx, key, offset)
}

// Runs whose id or end proves that they cannot match are skipped.
func TestQueryTime(t *testing.T) {
	s := &counting{Store: mem.New(), opened: map[string]int{}}
	var ids []string
	for i := range 10 { // one a day; each takes an hour
		at := epoch.AddDate(0, 0, i)
		id := runAt(at)
		ids = append(ids, id)
		list := []events.Event{{Time: at, Type: events.RunStarted}}
		for k := range 100 {
			list = append(list, events.Event{Time: at.Add(time.Duration(k) * 36 * time.Second), Type: events.TaskStarted, Data: &events.Data{Message: "so that the log is longer than its tail"}})
		}
		list = append(list, events.Event{Time: at.Add(time.Hour), Type: events.RunCompleted})
		put(t, s, "w", id, lines(t, "w", id, list...))
	}
	got, errs := ask(s, events.Filter{Since: epoch.AddDate(0, 0, 4).Add(30 * time.Minute), Until: epoch.AddDate(0, 0, 5).Add(30 * time.Minute)})
	if len(errs) > 0 || len(got) != 50+1+51 || got[0].Run != ids[4] || got[len(got)-1].Run != ids[5] {
		t.Errorf("%d events, errors %v; want the second half of the fourth run and the first half of the fifth", len(got), errs)
	}
	for i, id := range ids {
		if want := i == 4 || i == 5; (s.opened[id] > 0) != want {
			t.Errorf("run %d was opened %d times, want any: %v", i, s.opened[id], want)
		}
	}
	if at, ok := events.Began(ids[3]); !ok || !at.Equal(epoch.AddDate(0, 0, 3)) {
		t.Errorf("run %s began at %v, %v", ids[3], at, ok)
	}
	for _, id := range []string{"", "r1", strings.ToUpper(ids[3]), ids[3] + "0", strings.Replace(ids[3], "-7", "-4", 1), strings.Replace(ids[3], "-", "x", 1)} {
		if at, ok := events.Began(id); ok {
			t.Errorf("run %q began at %v", id, at)
		}
	}
}

func TestWorkspacesAndRuns(t *testing.T) {
	s := mem.New()
	for _, ref := range []events.RunRef{{"b", "r2"}, {"a", "r3"}, {"a", "r1"}, {"b", "r1"}} {
		put(t, s, ref.Workspace, ref.Run, nil)
	}
	if names, err := events.Workspaces(t.Context(), s); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("workspaces: %q, %v", names, err)
	}
	runs, err := events.Runs(t.Context(), s, "")
	if want := []events.RunRef{{"a", "r1"}, {"b", "r1"}, {"b", "r2"}, {"a", "r3"}}; err != nil || !slices.Equal(runs, want) {
		t.Errorf("runs: %v, %v, want %v", runs, err, want)
	}
	runs, err = events.Runs(t.Context(), s, "a")
	if want := []events.RunRef{{"a", "r1"}, {"a", "r3"}}; err != nil || !slices.Equal(runs, want) {
		t.Errorf("runs of a: %v, %v, want %v", runs, err, want)
	}
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"*", "", true}, {"**", "a", true}, {"?", "é", true}, {"?", "ab", false},
		{"tr*n", "train", true}, {"tr*n", "trainer", false}, {"*a*b*", "xaxbx", true}, {"*ab", "aab", true}, {"train[?]", "train[4]", true},
		{"a?c", "abc", true}, {"日*", "日本", true}, {"*é", "caf\u00e9", true}, {"a*?", "a", false},
	} {
		if got := events.Match(test.pattern, test.name); got != test.want {
			t.Errorf("Match(%q, %q) is %v", test.pattern, test.name, got)
		}
	}
}
