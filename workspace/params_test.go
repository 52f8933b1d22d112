package workspace_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/format/record"
	"e3/workspace"
)

// trial is a workspace whose tasks read parameters, beside a model of it.
type trial struct {
	*place
	t     *rapid.T
	file  map[string]int // values in params.yaml, and of the input k
	set   map[string]int // by "e3 set"
	reads [][]string     // of each task: values, and earlier tasks
	made  map[string]bool
	shown map[string]string // outputs in the workspace's tree
}

const trialParams = "train.rate train.depth seed k"

// TestParamsModel draws runs with and without overrides, edits of the file, and set values. Each run answers as the values
// say and executes exactly what had not run with them before; a run with overrides leaves the workspace as it is.
func TestParamsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tr := newTrial(t, rt)
		for range rapid.IntRange(3, 10).Draw(rt, "steps") {
			rapid.SampledFrom([]func(){tr.edit, tr.setOne, tr.unsetOne, tr.plain, tr.plain, tr.overridden, tr.overridden, tr.overridden, tr.branch}).Draw(rt, "step")()
		}
		tr.plain()
	})
}

func newTrial(t *testing.T, rt *rapid.T) *trial {
	tr := &trial{place: newPlace(t), t: rt, file: map[string]int{}, set: map[string]int{}, made: map[string]bool{}, shown: map[string]string{}}
	tr.run = func(_ context.Context, script, dir string) int {
		var out strings.Builder
		for _, word := range strings.Fields(script) {
			if data, err := os.ReadFile(filepath.Join(dir, word)); err == nil {
				word = "(" + string(data) + ")"
			}
			out.WriteString(word + " ")
		}
		return code(os.WriteFile(filepath.Join(dir, "o"+script[1:2]), []byte(out.String()), 0o644))
	}
	for i, name := range strings.Fields(trialParams) {
		tr.file[name] = i
	}
	tr.save()
	lines := []string{"inputs:", "  params: {params: params.yaml}", "  k: {value: 3}", "tasks:"}
	for i := range rapid.IntRange(1, 5).Draw(rt, "tasks") {
		sources := strings.Fields(trialParams + " train")
		for j := range i {
			sources = append(sources, "t"+strconv.Itoa(j))
		}
		reads := rapid.SliceOfNDistinct(rapid.SampledFrom(sources), 1, 3, rapid.ID[string]).Draw(rt, "reads")
		tr.reads = append(tr.reads, reads)
		in, words := []string{}, []string{"t" + strconv.Itoa(i)}
		for k, source := range reads {
			name := fmt.Sprintf("i%d", k)
			words = append(words, "$"+name)
			if source != "k" && source[0] != 't' || strings.HasPrefix(source, "train") {
				source = "params." + source
			}
			in = append(in, name+": "+source)
		}
		lines = append(lines, fmt.Sprintf("  t%d: {out: o%d, in: {%s}, run: %q}", i, i, strings.Join(in, ", "), strings.Join(words, " ")))
	}
	tr.deploy(lines...)
	return tr
}

func (tr *trial) save() {
	tr.write("params.yaml", fmt.Sprintf("train: {rate: %d, depth: %d}\nseed: %d\n", tr.file["train.rate"], tr.file["train.depth"], tr.file["seed"]))
}

func (tr *trial) one() (name string, v int) {
	return rapid.SampledFrom(strings.Fields(trialParams)).Draw(tr.t, "name"), rapid.IntRange(0, 5).Draw(tr.t, "value")
}

func (tr *trial) edit() {
	if name, v := tr.one(); name != "k" {
		tr.file[name] = v
		tr.save()
	}
}

// input is the name of the input that holds a value.
func input(name string) string {
	if name == "k" {
		return name
	}
	return "params." + name
}

func (tr *trial) setOne() {
	name, v := tr.one()
	leaf, err := tr.ws.Datasets.PutValue(tr.ctx, int64(v))
	if err == nil {
		err = tr.ws.Datasets.Set(tr.ctx, "w", input(name), leaf)
	}
	tr.must(err)
	tr.set[name] = v
}

func (tr *trial) unsetOne() {
	name, _ := tr.one()
	_, err := tr.ws.Datasets.Unset(tr.ctx, "w", input(name))
	tr.must(err)
	delete(tr.set, name)
}

// expect returns the outputs of tasks on values, and how many of them were never made.
func (tr *trial) expect(values map[string]int) (outputs map[string]string, fresh int) {
	outputs = map[string]string{}
	for i, reads := range tr.reads {
		task := "t" + strconv.Itoa(i)
		text := task + " "
		for _, source := range reads {
			switch made, isTask := outputs[source]; {
			case isTask:
				text += "(" + made + ") "
			case source == "train":
				text += fmt.Sprintf("({\"rate\":%d,\"depth\":%d}\n) ", values["train.rate"], values["train.depth"])
			default:
				text += strconv.Itoa(values[source]) + " "
			}
		}
		if outputs[task] = text; !tr.made[text] {
			tr.made[text] = true
			fresh++
		}
	}
	return outputs, fresh
}

func (tr *trial) values(over map[string]int) map[string]int {
	values := maps.Clone(tr.file)
	maps.Copy(values, tr.set)
	maps.Copy(values, over)
	return values
}

// check compares a run with what the model expects, and the workspace's outputs with those that it should show.
func (tr *trial) check(ws string, res *workspace.RunResult, values map[string]int, publishes bool) {
	tr.t.Helper()
	want, fresh := tr.expect(values)
	if s := res.Run.Summary; s.Total != int64(len(want)) || s.Completed != s.Total || s.Completed-s.Cached != int64(fresh) {
		tr.t.Fatalf("with %v: %+v, want %d of %d executed", values, s, fresh, len(want))
	}
	if res.Outcome != nil {
		for _, c := range res.Outcome.Results(res.Graph, true) {
			if got := tr.content(c.Leaf); got != want[c.Task] {
				tr.t.Fatalf("%s with %v: %q, want %q", c.Task, values, got, want[c.Task])
			}
		}
	}
	if ws != "w" {
		return
	}
	if publishes {
		tr.shown = want
	}
	for name, want := range tr.shown {
		d, err := tr.ws.Datasets.Dataset(tr.ctx, "w", workspace.DatasetPath{Name: name})
		tr.must(err)
		if got := tr.content(d.Leaf); got != want {
			tr.t.Fatalf("the workspace shows %s as %q, want %q", name, got, want)
		}
	}
}

func (tr *trial) content(leaf record.Leaf) string {
	data, err := os.ReadFile(filepath.Join(tr.repo.Root, "objects", leaf.Hash[:2], leaf.Hash[2:]))
	tr.must(err)
	return string(data)
}

func (tr *trial) plain() {
	tr.check("w", tr.start(), tr.values(nil), true)
}

// some draws overrides.
func (tr *trial) some() (over map[string]int, set []workspace.Override) {
	over = map[string]int{}
	for range rapid.IntRange(1, 3).Draw(tr.t, "overrides") {
		name, v := tr.one()
		over[name] = v
	}
	for _, name := range slices.Sorted(maps.Keys(over)) {
		set = append(set, workspace.Override{Name: name, Value: int64(over[name]), Text: strconv.Itoa(over[name])})
	}
	return over, set
}

func (tr *trial) overridden() {
	if len(tr.shown) == 0 {
		tr.plain()
	}
	over, set := tr.some()
	res := tr.start(func(o *workspace.StartOptions) { o.Set = set })
	tr.check("w", res, tr.values(over), false)
	for _, name := range strings.Fields(trialParams) {
		path := workspace.DatasetPath{Name: name}
		if name != "k" {
			path = workspace.DatasetPath{Name: "params", Entry: name}
		}
		d, err := tr.ws.Datasets.Dataset(tr.ctx, "w", path)
		tr.must(err)
		want, err := tr.ws.Datasets.PutValue(tr.ctx, int64(tr.values(nil)[name]))
		tr.must(err)
		if d.Leaf != want {
			tr.t.Fatalf("after a run with %v, %s of the workspace is another than before", over, name)
		}
	}
}

func (tr *trial) branch() {
	over, set := tr.some()
	_, _, err := tr.ws.Deployer.Branch(tr.ctx, "w", "exp", set)
	tr.must(err)
	o := workspace.StartOptions{Concurrency: 2, Durability: workspace.None, Executor: tr.executor}
	for range 2 { // the values stay
		res, err := tr.ws.Runner.Start(tr.ctx, "exp", o)
		tr.must(err)
		tr.check("exp", res, tr.values(over), false)
	}
}
