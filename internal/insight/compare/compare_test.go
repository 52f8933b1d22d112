package compare_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/insight/compare"
	"e3/internal/insight/runview"
	"e3/workspace"
)

const project = `inputs:
  a: {file: a.txt}
  d: {dir: data}
  n: {value: 12}
tasks:
  first:  {in: [a, n], out: o, run: "join $a o"}
  second: {in: {x: first, d: d}, out: p, run: "join $x $d p"}
  score:  {in: [a], out: {metrics: {file: m.json, kind: metrics}, log: l}, run: "join $a m.json; join $a l"}
`

// The sides are the states before and after an edit: in each row the first run is prod@-1, the second prod@.
func TestCompare(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(p *place)
		a, b string // prod@-1 and prod@ unless they are given
		runs int    // after the edit; 1 unless it is given, -1 for none
		want []string
	}{
		{name: "nothing", edit: func(*place) {}},
		{name: "everything again", edit: func(p *place) { p.start("prod", func(o *workspace.StartOptions) { o.Force = true }) }, runs: -1},
		{
			name: "a file", edit: func(p *place) { p.write("a.txt", `{"acc": 0.5, "deep": {"n": [1, 3]}, "name": "y"}`) },
			want: []string{
				"input a changed: file 48 → file 48",
				"output first changed: file 48 → file 48",
				"output score changed: +0 -0 ~2 0 bytes; log changed; metrics changed",
				"output second changed: file 50 → file 50",
				"metric score.metrics acc changed: 0.25 → 0.5 +0.25 +100.0%",
				"metric score.metrics deep.n[1] changed: 2 → 3 +1 +50.0%",
				`metric score.metrics name changed: "x" → "y"`,
			},
		},
		{
			name: "metrics come and go", edit: func(p *place) { p.write("a.txt", `{"acc": 0.250, "deep": {"n": [1]}, "new": {}}`) },
			want: []string{
				"input a changed: file 48 → file 45",
				"output first changed: file 48 → file 45",
				"output score changed: +0 -0 ~2 -6 bytes; log changed; metrics changed",
				"output second changed: file 50 → file 47",
				"metric score.metrics deep.n[1] removed: 2 → ",
				`metric score.metrics name removed: "x" → `,
				"metric score.metrics new added:  → {}",
			},
		},
		{
			name: "no metrics", edit: func(p *place) { p.write("a.txt", `{"acc": 0.25,`) },
			want: []string{
				"input a changed: file 48 → file 13",
				"output first changed: file 48 → file 13",
				"output score changed: +0 -0 ~2 -70 bytes; log changed; metrics changed",
				"output second changed: file 50 → file 15",
				"metrics score.metrics: it is not JSON: unexpected EOF",
			},
		},
		{
			name: "files in a directory", edit: func(p *place) {
				p.write("data/deep/er/2.txt", "changed")
				p.write("data/new/3.txt", "new")
				p.remove("data/1.txt")
			},
			want: []string{
				"input d changed: +1 -1 ~1 8 bytes; 1.txt removed; deep/er/2.txt changed; new/3.txt added",
				"output second changed: file 50 → file 58",
			},
		},
		{
			name: "a value", edit: func(p *place) { p.define(strings.Replace(project, "12", "{w: [1, x]}", 1)) },
			want: []string{
				`input n changed: 12 → {"w":[1,"x"]}`,
				"task first changed; inputs n: value → value at .e3-values/n.json",
			},
		},
		{
			name: "a command", edit: func(p *place) { p.define(strings.Replace(project, "join $a o", "join $a $a o", 1)) },
			want: []string{
				"task first changed; command: join $a o → join $a $a o",
				"output first changed: file 48 → file 96",
				"output second changed: file 50 → file 98",
			},
		},
		{
			name: "what decides nothing", edit: func(p *place) {
				p.define(strings.Replace(project, "out: o, run: \"join $a o\"", "out: o, timeout: 5m, run: \"join $a o\"", 1))
			},
			want: []string{"task first changed; policy timeout:  → 5m0s"},
		},
		{
			name: "how a task is handled", edit: func(p *place) {
				p.define(strings.Replace(project, "out: o, run: \"join $a o\"", "out: o, run: \"join $a o\", approve: true, suspend: 75, queue: q, labels: [gpu, big], "+
					"retries: {max: 2, on: [oom, lost, 3], lost: 1}, resources: {memory: 1KiB}, on_oom: {memory: x1.5, max: 4KiB}", 1))
			},
			want: []string{"task first changed; policy approve:  → true; policy labels:  → gpu, big; policy memory:  → 1024 bytes; " +
				"policy on_oom:  → memory x1.5; policy on_oom max:  → 4096 bytes; policy queue:  → q; policy retries:  → 2; " +
				"policy retries on:  → oom, lost, 3; policy retries when lost:  → 1; policy suspend:  → exit code 75"},
		},
		{
			name: "every part", edit: func(p *place) {
				p.define(strings.Replace(project, `first:  {in: [a, n], out: o, run: "join $a o"}`,
					`first: {in: {a: d, m: n}, out: other, run: "join $a other", env: {T: "2"}, version: 7}`, 1))
			},
			want: []string{
				"task first changed; command: join $a o → join $a other; env T:  → 2; inputs a: file at a.txt → directory at data; " +
					"inputs m:  → value; inputs n: value → ; wiring a: input a → input d; wiring m:  → input n; " +
					"wiring n: input n → ; output: file at o → file at other; version:  → 7",
				"task second changed; inputs x: file at o → file at other",
				"output first changed: file 48 → file 2",
				"output second changed: file 50 → file 4",
			},
		},
		{
			name: "tasks and inputs come and go", edit: func(p *place) {
				p.define(strings.NewReplacer("score:", "rated:", "n: {value: 12}", "k: {value: 12}", "[a, n]", "[a]").Replace(project))
			},
			want: []string{
				"input k added: nothing → 12",
				"input n removed: 12 → nothing",
				"task first changed; inputs n: value → ; wiring n: input n → ",
				"task rated added",
				"task score removed",
				"output rated added: nothing → directory of 2 files 96",
				"output score removed: directory of 2 files 96 → nothing",
			},
		},
		{
			name: "a failure", edit: func(p *place) { p.define(strings.Replace(project, "join $a o", "fail 3", 1)) },
			want: []string{
				"task first changed; command: join $a o → fail 3; success → failed",
				"task second changed; success → skipped",
				"output first removed: file 48 → nothing",
				"output second removed: file 50 → nothing",
			},
		},
		{
			name: "a directory in place of a file", edit: func(p *place) {
				p.define(strings.NewReplacer("a: {file: a.txt}", "a: {dir: data}").Replace(project))
			},
			want: []string{
				"input a changed: file 48 → directory of 2 files 2",
				"task first changed; inputs a: file at a.txt → directory at data",
				"task score changed; inputs a: file at a.txt → directory at data",
				"output first changed: file 48 → file 2",
				"output score changed: +0 -0 ~2 -92 bytes; log changed; metrics changed",
				"output second changed: file 50 → file 4",
				"metric score.metrics  added:  → 12", // the document is a number
				"metric score.metrics acc removed: 0.25 → ",
				"metric score.metrics deep.n[0] removed: 1 → ",
				"metric score.metrics deep.n[1] removed: 2 → ",
				`metric score.metrics name removed: "x" → `,
			},
		},
		{
			name: "a run and the workspace now", edit: func(p *place) { p.set("prod", "a", "other") }, a: "prod@", b: "prod", runs: -1,
			want: []string{"input a changed: file 48 → file 5"},
		},
		{
			name: "a run and the next start", edit: func(p *place) {
				p.write("data/deep/er/2.txt", "changed")
				p.define(strings.NewReplacer("join $a m.json", "wait 1s; join $a m.json", "n: {value: 12}", "n: {value: 13}").Replace(project))
			}, a: "prod@", b: "@next", runs: -1,
			want: []string{
				"input d changed: +0 -0 ~1 6 bytes; deep/er/2.txt changed",
				"input n changed: 12 → 13",
				"task score changed; command: join $a m.json; join $a l → wait 1s; join $a m.json; join $a l",
				"output first changed: file 48 → open",
				"output score changed: directory of 2 files 96 → open",
				"output second changed: file 50 → open",
			},
		},
		{
			name: "nothing since", edit: func(*place) {}, a: "prod@", b: "@next", runs: -1,
		},
		{
			name: "two workspaces", edit: func(p *place) {
				p.define("inputs: {a: {file: a.txt}}\ntasks:\n  first: {in: [a], out: o, run: \"join $a o\"}\n")
				p.write("a.txt", "other")
				p.deploy("staging")
				p.start("staging")
			}, a: "prod", b: "staging", runs: -1,
			want: []string{
				"input a changed: file 48 → file 5",
				"input d removed: directory of 2 files 2 → nothing",
				"input n removed: 12 → nothing",
				"task first changed; inputs n: value → ; wiring n: input n → ",
				"task score removed",
				"task second removed",
				"output first changed: file 48 → file 5",
				"output score removed: directory of 2 files 96 → nothing",
				"output second removed: file 50 → nothing",
			},
		},
		{
			name: "results that are not published", edit: func(p *place) {
				p.write("a.txt", "other")
				p.start("prod", func(o *workspace.StartOptions) { o.Publish = workspace.Never })
			}, runs: -1,
			want: []string{
				"input a changed: file 48 → file 5",
				"output first changed: file 48 → file 5",
				"output score changed: +0 -0 ~2 -86 bytes; log changed; metrics changed",
				"output second changed: file 50 → file 7",
				"metrics score.metrics: it is not JSON: invalid character 'o' looking for beginning of value",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.write("a.txt", `{"acc": 0.25, "deep": {"n": [1,2]}, "name": "x"}`)
			p.write("data/1.txt", "1")
			p.write("data/deep/er/2.txt", "2")
			p.define(project)
			p.deploy("prod")
			p.start("prod")
			tt.edit(p)
			if tt.runs >= 0 {
				p.start("prod")
			}
			if tt.a == "" {
				tt.a, tt.b = "prod@-1", "prod@"
			}
			d := p.compare(tt.a, tt.b)
			if diff := cmp.Diff(tt.want, brief(d)); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
			if empty := len(tt.want) == 0; d.Differs == empty {
				t.Errorf("Differs says %t, want %t", d.Differs, !empty)
			}
		})
	}
}

// The result says which parts are no longer here.
func TestCompareGone(t *testing.T) {
	for _, tt := range []struct {
		name string
		lose func(p *place, first string)
		want []string
	}{
		{
			"the inputs of a run", func(p *place, first string) { p.destroy(p.report(first).InputSnapshot) },
			[]string{"inputs: which inputs prod@-1 had is no longer here", "output first changed: file 1 → file 2", "output tree changed: +0 -0 ~1 1 bytes; f changed"},
		},
		{
			"its outputs, as far as the workspace knows", func(p *place, first string) { p.destroy(p.report(first).OutputSnapshot) },
			[]string{"input a changed: file 1 → file 2", "output first changed: file 1 → file 2", "output tree changed: +0 -0 ~1 1 bytes; f changed"},
		},
		{
			"its package", func(p *place, first string) { p.destroy(p.compare("prod@-1", "prod@").A.PackageHash) },
			[]string{"input a changed: file 1 → file 2", "tasks: the package of prod@-1 is no longer here", "output first changed: file 1 → file 2",
				"output tree changed: +0 -0 ~1 1 bytes; f changed"},
		},
		{
			"a directory", func(p *place, first string) {
				for _, c := range p.compare("prod@-1", "prod@").Outputs.Changes {
					if c.Files != nil {
						p.destroy(c.Was.Hash)
					}
				}
			},
			[]string{"input a changed: file 1 → file 2", "output first changed: file 1 → file 2",
				"output tree changed: +0 -0 ~0 0 bytes; a part of the directories is not in the store"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.write("a.txt", "1")
			p.define("inputs: {a: {file: a.txt}}\ntasks:\n  first: {in: [a], out: o, run: \"join $a o\"}\n  tree: {in: [a], out: o/, run: \"join $a o/f\"}\n")
			p.deploy("prod")
			first := p.start("prod")
			p.define("description: other\ninputs: {a: {file: a.txt}}\ntasks:\n  first: {in: [a], out: o, run: \"join $a o\"}\n  tree: {in: [a], out: o/, run: \"join $a o/f\"}\n")
			p.write("a.txt", "22")
			p.start("prod")
			tt.lose(p, first)
			d := p.compare("prod@-1", "prod@")
			if diff := cmp.Diff(tt.want, brief(d)); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
			if !d.Differs {
				t.Error("it is said to be empty")
			}
			for _, side := range []string{"prod@-1", "prod@", "prod", "prod@next"} {
				if d := p.compare(side, side); d.Differs {
					t.Errorf("%s differs from itself: %q", side, brief(d))
				}
			}
		})
	}
}

func (p *place) report(run string) *runview.Report {
	p.t.Helper()
	r, err := p.repo.Workspaces.Runs.Report(p.ctx, "prod", run)
	if err != nil {
		p.t.Fatal(err)
	}
	return r
}

func TestDurations(t *testing.T) {
	p := newPlace(t)
	p.write("a.txt", "1")
	define := func(first, second string) {
		p.define("inputs: {a: {file: a.txt}}\ntasks:\n  first: {in: [a], out: f, run: \"wait " + first + "; join $a f\"}\n" +
			// The tasks run one after the other, since they share the clock.
			"  second: {in: [a, first], out: s, run: \"wait " + second + "; join $a s\"}\n  third: {in: [a, second], out: o, run: \"join $a o\"}\n")
	}
	define("10s", "5s")
	p.deploy("prod")
	p.start("prod", func(o *workspace.StartOptions) { o.Concurrency = 1 })
	define("30s", "5.1s")
	p.start("prod", func(o *workspace.StartOptions) { o.Concurrency = 1 })
	d := p.compare("prod@-1", "prod@").Durations
	var names []string
	for _, x := range d.Tasks {
		names = append(names, x.Task)
	}
	if want := []string{"first", "second"}; !slices.Equal(names, want) { // the third has the same execution
		t.Fatalf("durations of %v, want %v", names, want)
	}
	near := func(got, want int64) bool { return got >= want && got < want+5000 }
	if x := d.Tasks[0]; !near(x.WasMs, 10_000) || !near(x.IsMs, 30_000) || !x.Notable || x.Ratio < 2 {
		t.Errorf("first: %+v", x)
	}
	if x := d.Tasks[1]; !near(x.WasMs, 5000) || !near(x.IsMs, 5100) || x.Notable && x.IsMs-x.WasMs < 1000 {
		t.Errorf("second: %+v", x)
	}
	if !near(d.WasMs, 15_000) || !near(d.IsMs, 35_100) || !near(d.RunWasMs, 15_000) || !near(d.RunIsMs, 35_100) {
		t.Errorf("in all: %+v", d)
	}
}

func TestParseSide(t *testing.T) {
	for _, tt := range []struct {
		text string
		want compare.Side
	}{
		{"prod", compare.Side{Workspace: "prod"}},
		{"prod@", compare.Side{Workspace: "prod", What: compare.Earlier}},
		{"prod@-0", compare.Side{Workspace: "prod", What: compare.Earlier}},
		{"prod@-2", compare.Side{Workspace: "prod", What: compare.Earlier, Back: 2}},
		{"prod@~12", compare.Side{Workspace: "prod", What: compare.Earlier, Back: 12}},
		{"prod@018F-3b", compare.Side{Workspace: "prod", What: compare.Run, Run: "018F-3b"}},
		{"prod@next", compare.Side{Workspace: "prod", What: compare.Next}},
		{"@", compare.Side{Workspace: "here", What: compare.Earlier}},
		{"@-1", compare.Side{Workspace: "here", What: compare.Earlier, Back: 1}},
		{"@018f", compare.Side{Workspace: "here", What: compare.Run, Run: "018f"}},
		{"a@b@1", compare.Side{Workspace: "a@b", What: compare.Run, Run: "1"}},
	} {
		got, err := compare.ParseSide(tt.text, "here")
		if err != nil || got != tt.want {
			t.Errorf("%q: got %+v, %v, want %+v", tt.text, got, err, tt.want)
		}
		if again, err := compare.ParseSide(got.String(), ""); err != nil || again != got {
			t.Errorf("%q is written as %q, which is %+v, %v", tt.text, got, again, err)
		}
	}
	for _, text := range []string{"prod@-", "prod@-x", "prod@--1", "prod@~-1", "prod@-99999999999", "prod@later", "prod@01 8f", "prod@@latest"} {
		if s, err := compare.ParseSide(text, ""); !errors.Is(err, compare.ErrSyntax) {
			t.Errorf("%q: got %+v, %v", text, s, err)
		}
	}
	if _, err := compare.ParseSide("0194fdc1-fa2f-7cc0", ""); !errors.Is(err, compare.ErrSyntax) || !strings.Contains(err.Error(), "write <workspace>@0194fdc1-fa2f-7cc0") {
		t.Errorf("a bare run without a workspace: %v, want how to write it", err)
	}
	if s, err := compare.ParseSide("0194fdc1-fa2f-7cc0", "here"); err != nil || s.String() != "here@0194fdc1-fa2f-7cc0" {
		t.Errorf("a bare run: %s, %v, want here@0194fdc1-fa2f-7cc0", s, err)
	}
	if _, err := compare.ParseSide("@-1", ""); !errors.Is(err, compare.ErrSyntax) {
		t.Errorf("a side without a workspace: %v", err)
	}
}

func TestCompareUnknown(t *testing.T) {
	p := newPlace(t)
	p.define("tasks: {t: {out: o, run: \"fail 1\"}}\n")
	for _, tt := range []struct {
		name, a string
		before  func()
		want    error
	}{
		{"no such workspace", "prod", func() {}, workspace.ErrNotFound},
		{"no run of one that is nowhere", "prod@018f", func() {}, workspace.ErrNotFound},
		{"nothing deployed", "prod", func() {
			if err := p.repo.Workspaces.Create(p.ctx, "prod"); err != nil {
				t.Fatal(err)
			}
		}, workspace.ErrNotDeployed},
		{"no run yet", "prod@", func() { p.deploy("prod") }, runview.ErrNoRun},
		{"no run before", "prod@-1", func() { p.start("prod") }, workspace.ErrNotFound},
		{"no such run", "prod@0bad", func() {}, workspace.ErrNotFound},
	} {
		tt.before()
		side, err := compare.ParseSide(tt.a, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := compare.Compare(p.ctx, p.stores(), side, side); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
}
