package compare_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"e3/internal/insight/compare"
)

// Whatever was edited between runs, a side does not differ from itself, and swapped sides give the mirrored difference.
func TestCompareProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newPlace(t)
		edit := func(round int) {
			names := []string{"a", "b", "c"}
			inputs, tasks := "inputs:\n", "tasks:\n"
			p.remove("dir")
			p.write("dir/always", "x")
			for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"1", "sub/2", "sub/3", "other/deep/4"}), rapid.ID).Draw(rt, "files") {
				p.write("dir/"+name, fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "content")))
			}
			for _, name := range names {
				switch rapid.IntRange(0, 3).Draw(rt, "input "+name) {
				case 0:
					inputs += "  " + name + ": {dir: dir}\n"
				case 1:
					inputs += fmt.Sprintf("  %s: {value: %d}\n", name, rapid.IntRange(0, 2).Draw(rt, "value"))
				default:
					p.write(name+".json", fmt.Sprintf(`{"k": %d, "m": {"n": %d}}`, rapid.IntRange(0, 2).Draw(rt, "k"), rapid.IntRange(0, 2).Draw(rt, "n")))
					inputs += fmt.Sprintf("  %s: {file: %s.json}\n", name, name)
				}
			}
			for i := range rapid.IntRange(1, 3).Draw(rt, "tasks") {
				script := rapid.SampledFrom([]string{"join $x m; join $x l", "join $x $x m; join $x l", "fail 2"}).Draw(rt, "script")
				if strings.Contains(inputs, "  "+names[i]+": {value") {
					script = strings.NewReplacer("join $x $x m; join $x l", "join e3 m", "join $x m; join $x l", "join e3 m").Replace(script)
					script = strings.ReplaceAll(script, "join e3 m", "fail 3")
				}
				tasks += fmt.Sprintf("  t%d: {in: {x: %s}, out: {m: {file: m, kind: metrics}, l: l}, run: \"%s\"}\n", i, names[i], script)
			}
			p.define(inputs + tasks)
			if round == 0 {
				p.deploy("prod")
			}
		}
		for round := range 3 {
			edit(round)
			p.start("prod")
		}
		edit(3) // not started
		sides := []string{"prod@", "prod@-1", "prod@-2", "prod", "prod@next"}
		for i, a := range sides {
			for _, b := range sides[i:] {
				d := p.compare(a, b)
				if a == b && (d.Differs || len(d.Durations.Tasks) > 0) {
					rt.Fatalf("%s differs from itself: %q", a, brief(d))
				}
				if _, err := json.Marshal(d); err != nil {
					rt.Fatal(err)
				}
				// Percentages have another base after a swap.
				numbers := cmpopts.IgnoreFields(compare.Metric{}, "Percent")
				ratios := cmpopts.IgnoreFields(compare.Duration{}, "Ratio")
				sides := cmpopts.IgnoreFields(compare.Difference{}, "A", "B")
				if diff := cmp.Diff(mirror(d), p.compare(b, a), numbers, ratios, sides, cmpopts.EquateEmpty()); diff != "" {
					rt.Fatalf("%s against %s is no mirror of the other way round (-mirror +got):\n%s", b, a, diff)
				}
			}
		}
	})
}

// mirror is the difference with swapped sides.
func mirror(d *compare.Difference) *compare.Difference {
	m := &compare.Difference{Differs: d.Differs, Tasks: compare.Tasks{Same: d.Tasks.Same, Unknown: d.Tasks.Unknown}}
	turn := func(c compare.Change) compare.Change {
		switch c {
		case compare.Added:
			return compare.Removed
		case compare.Removed:
			return compare.Added
		}
		return c
	}
	metrics := func(list []compare.Metric) (out []compare.Metric) {
		for _, c := range list {
			c.Change, c.Was, c.Is = turn(c.Change), c.Is, c.Was
			if c.Delta != nil {
				delta := -*c.Delta
				c.Delta = &delta
			}
			out = append(out, c)
		}
		return out
	}
	datasets := func(list compare.Datasets) compare.Datasets {
		out := compare.Datasets{Same: list.Same, Unknown: list.Unknown}
		for _, c := range list.Changes {
			c.Change, c.Was, c.Is = turn(c.Change), c.Is, c.Was
			if f := c.Files; f != nil {
				files := *f
				files.Added, files.Removed, files.Bytes, files.Changes = f.Removed, f.Added, -f.Bytes, nil
				for _, x := range f.Changes {
					x.Change, x.Was, x.Is = turn(x.Change), x.Is, x.Was
					files.Changes = append(files.Changes, x)
				}
				c.Files = &files
			}
			if v := c.Values; v != nil {
				c.Values = &compare.Values{Changes: metrics(v.Changes), Same: v.Same, More: v.More}
			}
			out.Changes = append(out.Changes, c)
		}
		return out
	}
	m.Inputs, m.Outputs = datasets(d.Inputs), datasets(d.Outputs)
	for _, c := range d.Tasks.Changes {
		parts := c.Parts
		c.Change, c.Was, c.Is, c.Parts = turn(c.Change), c.Is, c.Was, nil
		for _, part := range parts {
			part.Change, part.Was, part.Is = turn(part.Change), part.Is, part.Was
			c.Parts = append(c.Parts, part)
		}
		m.Tasks.Changes = append(m.Tasks.Changes, c)
	}
	for _, x := range d.Metrics {
		x.Changes = metrics(x.Changes)
		m.Metrics = append(m.Metrics, x)
	}
	m.Durations = compare.Durations{
		WasMs: d.Durations.IsMs, IsMs: d.Durations.WasMs, RunWasMs: d.Durations.RunIsMs, RunIsMs: d.Durations.RunWasMs,
	}
	for _, x := range d.Durations.Tasks {
		x.WasMs, x.IsMs = x.IsMs, x.WasMs
		m.Durations.Tasks = append(m.Durations.Tasks, x)
	}
	return m
}
