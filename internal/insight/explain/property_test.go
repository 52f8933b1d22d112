package explain_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/insight/explain"
)

// A drawn package is a graph of tasks, each with a command, a variable, maybe a version, inputs of the package and of tasks before it.
type drawnTask struct {
	command, env, version int
	files, tasks          []int
}

type drawn struct {
	files []int // content
	tasks []drawnTask
}

func drawPackage(t *rapid.T) *drawn {
	p := &drawn{files: make([]int, rapid.IntRange(1, 3).Draw(t, "files"))}
	n := rapid.IntRange(1, 6).Draw(t, "tasks")
	for i := range n {
		task := drawnTask{}
		for f := range p.files {
			if rapid.Bool().Draw(t, "reads file") {
				task.files = append(task.files, f)
			}
		}
		for d := range i {
			if rapid.IntRange(0, 2).Draw(t, "reads task") == 0 {
				task.tasks = append(task.tasks, d)
			}
		}
		p.tasks = append(p.tasks, task)
	}
	return p
}

// write writes the project. The output of a task contains everything that it was made of, so that every change is
// visible downstream.
func (p *drawn) write(h *house) {
	h.Helper()
	var b strings.Builder
	b.WriteString("e3: 1\nname: p\ninputs:\n")
	for f, content := range p.files {
		fmt.Fprintf(&b, "  f%d: {dir: f%d}\n", f, f)
		h.write(fmt.Sprintf("f%d/deep/file", f), fmt.Sprint(f, " ", content))
		h.write(fmt.Sprintf("f%d/same", f), "same")
	}
	b.WriteString("tasks:\n")
	for i, t := range p.tasks {
		var in []string
		for _, f := range t.files {
			in = append(in, fmt.Sprintf("f%d", f))
		}
		for _, d := range t.tasks {
			in = append(in, fmt.Sprintf("t%d", d))
		}
		fmt.Fprintf(&b, "  t%d: {in: [%s], out: o%d, env: {V: \"%d\"}, version: \"%d\", run: '{ echo %d %d \"$V\" %d; find . -type f -not -name o%d | sort | xargs -r cat; } > \"$out\"'}\n",
			i, strings.Join(in, ", "), i, t.env, t.version, i, t.command, t.version, i)
	}
	h.write("e3.yaml", b.String())
}

// reaches are the tasks that see a change of a task, or of a file.
func (p *drawn) reaches(task, file int) []int {
	var list []int
	hit := map[int]bool{}
	for i, t := range p.tasks {
		if i == task {
			hit[i] = true
		}
		for _, f := range t.files {
			hit[i] = hit[i] || f == file
		}
		for _, d := range t.tasks {
			hit[i] = hit[i] || hit[d]
		}
		if hit[i] {
			list = append(list, i)
		}
	}
	return list
}

// One edit of a package is the only root of all tasks that run because of it.
func TestSingleEdits(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		if n++; testing.Short() && n > 10 || n > 40 {
			return // each case needs a repository, which is slow
		}
		at, err := os.MkdirTemp(dir, "")
		if err != nil {
			rt.Fatal(err)
		}
		h := newHouse(rt, at)
		defer h.Close()
		p := drawPackage(rt)
		p.write(h)
		h.deploy("w")
		h.start("w")
		task, file := -1, -1
		kind := rapid.SampledFrom([]explain.Kind{explain.Command, explain.Environment, explain.Version, explain.Input}).Draw(rt, "part")
		if kind == explain.Input {
			file = rapid.IntRange(0, len(p.files)-1).Draw(rt, "file")
			p.files[file]++
		} else {
			task = rapid.IntRange(0, len(p.tasks)-1).Draw(rt, "task")
			switch kind {
			case explain.Command:
				p.tasks[task].command++
			case explain.Environment:
				p.tasks[task].env++
			default:
				p.tasks[task].version++
			}
		}
		p.write(h)
		check := func(state string) {
			for _, i := range p.reaches(task, file) {
				name := fmt.Sprintf("t%d", i)
				w := h.why("w." + name)
				right := len(w.Roots) == 1 && w.Root.Kind == kind
				switch {
				case kind == explain.Version: // the script echoes it: both changed
					right = len(w.Roots) == 2 && w.Roots[1].Kind == kind && w.Root.Task == fmt.Sprintf("t%d", task)
				case task >= 0:
					right = right && w.Root.Task == fmt.Sprintf("t%d", task)
				default:
					right = right && w.Root.Subject == fmt.Sprintf("f%d", file) && w.Root.Path == "deep/file"
				}
				if !right {
					h.Errorf("%s: %s: got roots %+v, want %s of t%d or f%d\n%s", state, name, w.Roots, kind, task, file, w.Sentence)
				}
			}
		}
		check("before")
		h.misses(p, task, file, kind)
		h.start("w")
		check("after")
	})
}

// misses checks that Miss gives the same cause for the tasks that run first.
func (h *house) misses(p *drawn, task, file int, kind explain.Kind) {
	h.Helper()
	next, err := h.Workspaces.Planner.Next(h.Context(), "w")
	h.must(err)
	plan, err := next.Planner.Plan(h.Context(), "")
	h.must(err)
	s := h.stores()
	s.Objects = next.Objects
	x := explain.New(s)
	for i := range plan.Tasks {
		tp := &plan.Tasks[i]
		if tp.Key == nil || tp.Answer == nil {
			continue
		}
		c, err := x.Miss(h.Context(), "w", next.Package.Tasks[i].Name, *tp.Key, tp.Inputs)
		h.must(err)
		want := kind
		if kind == explain.Version {
			want = explain.Command
		}
		if c.Kind != want || c.String() == "" {
			h.Errorf("miss of %s: got %+v, want %s", next.Package.Tasks[i].Name, c, want)
		}
	}
}
