package exportimport_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// history is a package with a sequence of operations, and the executions that the other side has already.
type history struct {
	pkg     string
	steps   []func(*site)
	told    []string
	options exportimport.ExportOptions
	fails   bool
}

func (h *history) String() string {
	return h.pkg + strings.Join(h.told, ", ") + fmt.Sprintf("; all history %v, no data %v", h.options.AllHistory, h.options.NoData)
}

var histories = rapid.Custom(func(t *rapid.T) *history {
	h := &history{}
	var b strings.Builder
	b.WriteString("e3: 1\nname: p\nversion: 1.0.0\ninputs:\n")
	inputs := rapid.IntRange(1, 3).Draw(t, "inputs")
	for i := range inputs {
		fmt.Fprintf(&b, "  i%d: {file: i%d.txt, export: %v}\n", i, i, rapid.IntRange(0, 3).Draw(t, "export") > 0)
	}
	b.WriteString("  d: {dir: folder}\ntasks:\n")
	var whole []string // possible sources: name of a task, or of a task's entry
	for i := range rapid.IntRange(1, 5).Draw(t, "tasks") {
		in := fmt.Sprintf("x0: i%d", rapid.IntRange(0, inputs-1).Draw(t, "input"))
		read := "$x0."
		if rapid.IntRange(0, 2).Draw(t, "dir") == 0 {
			in += ", x1: d"
			read += " $x1."
		}
		if len(whole) > 0 && rapid.IntRange(0, 3).Draw(t, "up") > 0 {
			in += ", x2: " + rapid.SampledFrom(whole).Draw(t, "upstream")
			read += " $x2."
		}
		say := ""
		if rapid.Bool().Draw(t, "says") {
			say = `say task\n`
		}
		name := fmt.Sprintf("t%d", i)
		switch rapid.IntRange(0, 7).Draw(t, "kind") {
		case 0:
			h.fails = true
			fmt.Fprintf(&b, "  %s: {in: {%s}, out: o%d, run: \"%sfail\"}\n", name, in, i, say)
		case 1, 2:
			fmt.Fprintf(&b, "  %s: {in: {%s}, out: {a: {dir: a%d}, b: b%d}, run: \"%sdir $a. %s\\ncat $b. %s\"}\n", name, in, i, i, say, read, read)
			whole = append(whole, name+".a", name+".b")
		default:
			fmt.Fprintf(&b, "  %s: {in: {%s}, out: o%d, run: \"%scat $out. %s\"}\n", name, in, i, say, read)
			whole = append(whole, name)
		}
	}
	h.pkg = b.String()
	step := func(told string, do func(*site)) { h.steps, h.told = append(h.steps, do), append(h.told, told) }
	for range rapid.IntRange(0, 4).Draw(t, "steps") {
		switch rapid.IntRange(0, 3).Draw(t, "step") {
		case 0:
			force := rapid.Bool().Draw(t, "force")
			step(fmt.Sprint("start, force ", force), func(s *site) { s.start("w", func(o *workspace.StartOptions) { o.Force = force }) })
		default:
			input, text := fmt.Sprintf("i%d", rapid.IntRange(0, inputs-1).Draw(t, "which")), rapid.SampledFrom([]string{"u", "v", ""}).Draw(t, "text")
			step("set "+input+" "+text, func(s *site) { s.set("w", input, text) })
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "run at the end") > 0 {
		step("start", func(s *site) { s.start("w") })
	}
	h.options.AllHistory, h.options.NoData = rapid.Bool().Draw(t, "all history"), rapid.Bool().Draw(t, "no data")
	return h
})

// play executes the history on a site.
func (h *history) play(s *site) {
	for i := range 3 {
		s.write(fmt.Sprintf("i%d.txt", i), fmt.Sprint("input ", i))
	}
	s.write("folder/a", "in a folder")
	s.write("folder/below/b", "below")
	s.deploy("w", h.pkg)
	for _, do := range h.steps {
		do(s)
	}
}

// local is the state of an execution on the other side before the import.
type local int

const (
	localNone local = iota
	localSuccess
	localFailed
	localError
	localDead // on record as running, without a process
	locals
)

// collides is the table of doc/design.md.
func collides(incoming record.State, here local) executions.Outcome {
	switch {
	case here == localNone:
		return executions.Added
	case here == localSuccess:
		return executions.SkippedSuccess
	case incoming == record.Success:
		return executions.Overwritten
	}
	return executions.SkippedFailure
}

// plant records an execution in a given state.
func (s *site) plant(e *executions.Execution, l local) {
	s.t.Helper()
	if l == localNone {
		return
	}
	status := record.Status{
		State: record.Success, ExecutionID: e.ExecutionID, InputHashes: e.InputHashes, StartedAt: e.StartedAt, CompletedAt: e.StartedAt.Add(time.Hour),
	}
	switch l {
	case localSuccess:
		out, err := objectstore.PutBytes(s.ctx, s.repo.Objects, []byte("local output"))
		s.must(err)
		if status.OutputHash = e.OutputHash; status.OutputHash == "" {
			status.OutputHash = out.String()
		}
	case localFailed:
		status.State, status.ExitCode = record.Failed, 77
	case localError:
		status.State, status.Message = record.Error, "local error"
	case localDead:
		status.State, status.PID = record.Running, 1
	}
	fields := []refstore.Field{{Name: "stdout.txt", Value: []byte("local log\n")}}
	if l == localSuccess {
		fields = append(fields, refstore.Field{Name: "output", Value: []byte(status.OutputHash + "\n")})
	}
	_, err := s.repo.Records.Put(s.ctx, refstore.Record{
		Key: refstore.Key{Partition: "EXECUTION/" + e.Key.String(), Sort: e.ExecutionID}, Value: status.Encode(), Fields: fields})
	s.must(err)
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := histories.Draw(t, "history")
		dir := quickDir(t)
		defer os.RemoveAll(dir)
		a, b := openSite(t, dir+"/a", "ann@alpha"), openSite(t, dir+"/b", "bob@beta")
		defer a.close()
		defer b.close()
		h.play(a)
		zip, exported := a.export("w", h.options)
		sent := map[string]*executions.Execution{} // those in the zip
		_, content := entries(t, zip)
		for _, e := range a.all() {
			if _, ok := content["executions/"+e.Key.String()+"/"+e.ExecutionID+"/status.beast2"]; ok {
				sent[e.ExecutionID] = e
			}
		}
		if exported.Executions != len(sent) {
			t.Fatalf("%d executions are counted, %d are in the zip", exported.Executions, len(sent))
		}
		here := map[string]local{}
		want := map[executions.Outcome]int{}
		for out := executions.Added; out <= executions.SkippedUnfinished; out++ {
			want[out] = 0
		}
		collisions := rapid.Bool().Draw(t, "collisions")
		for _, id := range slices.Sorted(maps.Keys(sent)) {
			if collisions {
				here[id] = local(rapid.IntRange(0, int(locals)-1).Draw(t, "here"))
			}
			b.plant(sent[id], here[id])
			want[collides(sent[id].State, here[id])]++
		}
		b.now = time.Now().Add(time.Duration(rapid.IntRange(-1000, 1000).Draw(t, "the other clock, hours")) * time.Hour)
		wholeWorkspace := rapid.Bool().Draw(t, "workspace")
		plan := b.importZip(zip, exportimport.ImportOptions{NewWorkspace: wholeWorkspace, DryRun: true})
		res := b.importZip(zip, exportimport.ImportOptions{NewWorkspace: wholeWorkspace})
		if !maps.Equal(res.Outcomes, want) || !maps.Equal(plan.Outcomes, want) {
			t.Errorf("outcomes are %v, planned %v, want %v", res.Outcomes, plan.Outcomes, want)
		}
		b.checkImported(a, sent, here)

		// A second import changes nothing.
		before := b.all()
		if again := b.importZip(zip, exportimport.ImportOptions{NewWorkspace: wholeWorkspace}); again.Taken() != 0 || again.ObjectsAdded != 0 || again.RunAdded {
			t.Errorf("imported again: %+v", again)
		}
		if after := b.all(); len(after) != len(before) {
			t.Errorf("imported again there are %d executions, were %d", len(after), len(before))
		}
		if !wholeWorkspace {
			return
		}
		if res.Outcomes[executions.SkippedSuccess]+res.Outcomes[executions.SkippedFailure] == 0 {
			second, _ := b.export("w", h.options)
			sameBut(t, zip, second, "provenance.beast2")
		}
		ran := len(h.told) > 0 && h.told[len(h.told)-1] == "start"
		if ran && !h.fails && !(collisions && len(want) > 0) {
			if run := b.start("w"); b.ran.Load() != 0 || run.State != record.RunCompleted || run.Summary.Cached != run.Summary.Total {
				t.Errorf("a start runs %d commands: %+v", b.ran.Load(), run)
			}
		}
	})
}

// quickDir makes a folder in memory, if possible, because imports sync and this test makes hundreds.
func quickDir(t failer) string {
	for _, parent := range []string{"/dev/shm", ""} {
		if dir, err := os.MkdirTemp(parent, "e3-exportimport-"); err == nil {
			return dir
		}
	}
	t.Fatalf("there is no folder for temporary files")
	return ""
}

// checkImported compares the records with the table.
func (s *site) checkImported(from *site, sent map[string]*executions.Execution, here map[string]local) {
	s.t.Helper()
	found := map[string]*executions.Execution{}
	for _, e := range s.all() {
		found[e.ExecutionID] = e
	}
	if len(found) != len(sent) {
		s.t.Errorf("%d executions are on record, %d were sent", len(found), len(sent))
	}
	for id, e := range sent {
		got := found[id]
		out := collides(e.State, here[id])
		switch {
		case got == nil:
			s.t.Errorf("execution %s is not on record (%v)", id, out)
		case out.Skipped() && (got.Provenance != nil || s.log(got, executions.Stdout) != "local log\n" || got.State == record.Running):
			s.t.Errorf("execution %s was to be skipped; it is %+v", id, got)
		case !out.Skipped():
			if got.Provenance == nil || got.State != e.State || got.OutputHash != e.OutputHash || got.ExitCode != e.ExitCode || !got.CompletedAt.Equal(e.CompletedAt) {
				s.t.Errorf("execution %s (%v) is %+v, was %+v", id, out, got, e)
			}
			if log, was := s.log(got, executions.Stdout), from.log(e, executions.Stdout); log != was {
				s.t.Errorf("the log of execution %s (%v) is %q, was %q", id, out, log, was)
			}
		}
	}
}
