package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/testing/suite"
	"e3/refstore"
	"e3/workspace"
)

// pairOfTeam deploys ann's package file over bob's, and sets the input b.
func pairOfTeam(t *testing.T) (ann, bob *colleague) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "team")
	if err != nil {
		t.Fatal(err)
	}
	tm := newTeam(t, dir)
	for _, c := range []**colleague{&ann, &bob} {
		name := map[bool]string{true: "ann", false: "bob"}[c == &ann]
		*c = tm.colleague(name)
		(*c).write("a.txt", name)
		(*c).write("b.txt", name)
		(*c).write("other.txt", name+"'s other")
		(*c).project(name)
	}
	for _, c := range []*colleague{bob, ann} {
		if _, err := c.process(nil).deploy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := bob.process(nil).set(t.Context(), "b", "set"); err != nil {
		t.Fatal(err)
	}
	return ann, bob
}

// stands prints what each machine sees of the workspace.
func (tm *team) stands(ctx context.Context, machines ...*colleague) string {
	var b strings.Builder
	for _, c := range machines {
		p := c.process(nil)
		inputs, err := p.inputs(ctx)
		marked, markedErr := p.marked(ctx)
		file, linkErr := p.ws.Deployer.LinkedTo(ctx, "w")
		fmt.Fprintf(&b, "%s: %v, set %v, follows %q", c.name, inputs, marked, filepath.Base(file))
		if err := errors.Join(err, markedErr, linkErr); err != nil {
			fmt.Fprintf(&b, ", %v", err)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// A command may die at any call of the stores. After its machine has started the workspace again, the workspace is as
// before or as after the command, and further starts on any machine keep it so.
func TestTeamCrash(t *testing.T) {
	suite.Thorough(t)
	for _, test := range []struct {
		name string
		want string // what one of the machines sees at the end
		bob  bool   // bob runs it, not ann
		edit func(c *colleague)
		do   func(ctx context.Context, p *colleagueProcess) error
	}{
		{name: "start after an edit", want: "a:ann has edited this b:set n:ann], set [b], follows \"ann.yaml\"", edit: func(c *colleague) { c.write("a.txt", "ann has edited this") },
			do: func(ctx context.Context, p *colleagueProcess) error { _, err := p.start(ctx); return err }},
		{name: "start after an edit of the package file", want: "a:ann b:set n:edited], set [b], follows \"ann.yaml\"", edit: func(c *colleague) { c.project("edited") },
			do: func(ctx context.Context, p *colleagueProcess) error { _, err := p.start(ctx); return err }},
		{name: "start of what is not followed", want: "a:ann b:set n:ann], set [b], follows \"ann.yaml\"", bob: true,
			do: func(ctx context.Context, p *colleagueProcess) error { _, err := p.start(ctx); return err }},
		{name: "deploy once more", want: "a:ann b:set n:edited], set [b], follows \"ann.yaml\"", edit: func(c *colleague) { c.project("edited") },
			do: func(ctx context.Context, p *colleagueProcess) error { _, err := p.deploy(ctx); return err }},
		{name: "deploy of another's", want: "bob: map[a:bob b:set n:bob], set [b], follows \"bob.yaml\"", bob: true,
			do: func(ctx context.Context, p *colleagueProcess) error { _, err := p.deploy(ctx); return err }},
		{name: "deploy of another file", want: "a:ann's other b:set n:other], set [b], follows \"other.yaml\"", edit: func(c *colleague) {
			c.write("other.yaml", "e3: 1\nname: p\ninputs: {a: {file: other.txt}, b: {file: b.txt}, n: {value: other}}\n"+
				"tasks: {t: {in: [a, b], out: o, run: cat $a $b}}\n")
		}, do: func(ctx context.Context, p *colleagueProcess) error {
			_, err := p.ws.Deployer.DeployFile(ctx, "w", filepath.Join(p.dir, "other.yaml"))
			return err
		}},
		{name: "deploy of a package", want: "ann: map[a:ann b:set n:ann], set [b], follows \".\"", do: func(ctx context.Context, p *colleagueProcess) error { return p.register(ctx) }},
		{name: "deploy of a package over another's file", want: "bob: map[a:bob b:set n:bob], set [b], follows \".\"", bob: true, do: func(ctx context.Context, p *colleagueProcess) error { return p.register(ctx) }},
		{name: "set", want: "a:also set b:set n:ann], set [a b], follows \"ann.yaml\"", bob: true, do: func(ctx context.Context, p *colleagueProcess) error { return p.set(ctx, "a", "also set") }},
		{name: "unset", want: "a:ann b:ann n:ann], set [], follows \"ann.yaml\"", do: func(ctx context.Context, p *colleagueProcess) error {
			_, err := p.ws.Datasets.Unset(ctx, "w", "b")
			return err
		}},
		{name: "unset of another's", want: "a:ann b:ann n:ann], set [], follows \"ann.yaml\"", bob: true, do: func(ctx context.Context, p *colleagueProcess) error {
			_, err := p.ws.Datasets.Unset(ctx, "w", "b")
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := t.Context()
			// play runs the command in a process with a fuse; then another process starts the workspace.
			play := func(f *fuse) (stands string, err error) {
				ann, bob := pairOfTeam(t)
				who := map[bool]*colleague{false: ann, true: bob}[test.bob]
				if test.edit != nil {
					test.edit(who)
				}
				p := who.process(f)
				if f.at >= 0 {
					err = test.do(ctx, p)
				}
				p.session.expire()
				p.session.notice()
				for i, c := range []*colleague{who, ann, bob, who} {
					if _, err := c.process(nil).start(ctx); err != nil {
						t.Errorf("call %d, %s, taken: %v: start on %s: %v", f.at, f.last, f.after, c.name, err)
					}
					switch now := ann.team.stands(ctx, ann, bob); {
					case i == 0:
						stands = now
					case now != stands && !(test.bob && c == ann): // her own start may read her file again
						t.Errorf("call %d, %s, taken: %v: a start on %s has made\n%s of\n%s", f.at, f.last, f.after, c.name, now, stands)
					}
				}
				return ann.team.stands(ctx, ann, bob), err
			}
			before, _ := play(&fuse{at: -1})
			whole := &fuse{}
			after, err := play(whole)
			if err != nil || !strings.Contains(after, test.want) {
				t.Fatalf("undisturbed the workspace stands at\n%s, %v, want %s", after, err, test.want)
			}
			seen := map[string]int{}
			for at := 1; at <= whole.calls; at++ {
				for _, takes := range []bool{false, true} {
					f := &fuse{at: at, after: takes}
					got, _ := play(f)
					if got != before && got != after {
						t.Errorf("call %d, %s, taken: %v: the workspace stands at\n%swant what was before\n%sor what should be\n%s", at, f.last, takes, got, before, after)
					}
					seen[got]++
				}
			}
			if before != after && (seen[before] == 0 || seen[after] == 0) {
				t.Errorf("of all ends, %d were as before and %d as should be", seen[before], seen[after])
			}
		})
	}
}

// After a removal, a new workspace of the same name follows no file, on any machine.
func TestTeamRemove(t *testing.T) {
	ctx := t.Context()
	ann, bob := pairOfTeam(t)
	if err := bob.process(nil).ws.Cleaner.Remove(ctx, "w"); err != nil {
		t.Fatal(err)
	}
	p := bob.process(nil)
	if err := p.ws.Create(ctx, "w"); err != nil {
		t.Fatal(err)
	}
	if file, err := ann.process(nil).ws.Deployer.LinkedTo(ctx, "w"); file != "" || err != nil {
		t.Errorf("an empty workspace follows %q, %v", file, err)
	}
	if _, err := p.deploy(ctx); err != nil {
		t.Fatal(err)
	}
	info, err := ann.process(nil).start(ctx)
	if err != nil || info.Elsewhere == nil || info.Elsewhere.By != "bob@bob" || info.Elsewhere.File != "bob.yaml" || info.Elsewhere.Mine != ann.file() {
		t.Errorf("ann's start reports %+v, %v", info, err)
	}
	got, err := p.inputs(ctx)
	if want := map[string]string{"a": "bob", "b": "bob", "n": "bob"}; fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
		t.Errorf("inputs are %v, %v, want %v: nothing is set in a new workspace", got, err, want)
	}
	if err := p.ws.Cleaner.Remove(ctx, "w"); err != nil {
		t.Fatal(err)
	}
	for rec, err := range bob.local.List(ctx, refstore.Query{Partition: "INDEX/deployments/w"}) {
		t.Errorf("bob's machine still knows %s, %v", rec.Key, err)
	}
}

// An adopted state follows no file, and has no marks.
func TestTeamAdopt(t *testing.T) {
	ctx := t.Context()
	ann, bob := pairOfTeam(t)
	state, err := ann.process(nil).ws.State(ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	if err := ann.process(nil).ws.Cleaner.Remove(ctx, "w"); err != nil {
		t.Fatal(err)
	}
	if err := bob.process(nil).ws.Deployer.Adopt(ctx, "w", &state.WorkspaceState); err != nil {
		t.Fatal(err)
	}
	ann.write("a.txt", "edited")
	st, err := ann.process(nil).ws.Planner.Status(ctx, "w")
	if err != nil || st.File != "" || st.Elsewhere == nil || st.Elsewhere.By != "bob@bob" || st.Elsewhere.File != "" || st.Elsewhere.Package != "p@0.0.0" {
		t.Fatalf("the status is %+v, elsewhere %+v, %v", st, st.Elsewhere, err)
	}
	var set []string
	for i := range st.Datasets {
		if st.Datasets[i].Set {
			set = append(set, st.Datasets[i].Name)
		}
	}
	if !slices.Equal(set, []string{"b"}) { // it differs from the package's default
		t.Errorf("set are %v, want b", set)
	}
}

// A workspace that the command does not name is not taken over, not even by its former owner.
func TestTeamDeployNew(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	tm := newTeam(t, dir)
	ann, bob := tm.colleague("ann"), tm.colleague("bob")
	for _, c := range []*colleague{ann, bob} {
		c.write("a.txt", c.name)
		c.write("b.txt", c.name)
		c.project(c.name)
	}
	deploy := func(c *colleague, ws string) (string, *workspace.Built, error) {
		return c.process(nil).ws.Deployer.DeployNew(ctx, ws, c.file(), nil)
	}
	if ws, built, err := deploy(ann, ""); ws != "p" || err != nil || built.Over != nil {
		t.Fatalf("ann deploys in %q, %+v, %v", ws, built, err)
	}
	if ws, built, err := deploy(bob, ""); ws != "p-2" || err != nil || built.Instead == nil || built.Instead.By != "ann@ann" {
		t.Errorf("bob deploys without a name in %q, %+v, %v, want one of his own", ws, built, err)
	}
	began := time.Now()
	if ws, built, err := deploy(bob, "p"); ws != "p" || err != nil || built.Over == nil || built.Over.By != "ann@ann" || built.Over.Since.Before(began) {
		t.Errorf("bob deploys by name in %q, %+v, %v", ws, built, err)
	}
	if ws, err := ann.process(nil).ws.Deployer.WorkspaceFor(ctx, ann.file()); ws != "" || err != nil {
		t.Errorf("made for ann's file is %q, %v", ws, err)
	}
	if ws, built, err := deploy(ann, ""); ws != "p-3" || err != nil || built.Instead == nil || built.Instead.By != "bob@bob" {
		t.Errorf("ann deploys without a name in %q, %+v, %v", ws, built, err)
	}
	if ws, built, err := deploy(ann, "p"); ws != "p" || err != nil || built.Over == nil || built.Over.By != "bob@bob" {
		t.Errorf("ann deploys again in %q, %+v, %v", ws, built, err)
	}
	if file, err := bob.process(nil).ws.Deployer.LinkedTo(ctx, "p"); file != "" || err != nil {
		t.Errorf("bob follows %q, %v", file, err)
	}
	since := func() time.Time {
		t.Helper()
		st, err := bob.process(nil).ws.Planner.Status(ctx, "p")
		if err != nil || st.Elsewhere == nil || st.Elsewhere.By != "ann@ann" || st.Elsewhere.Mine != bob.file() {
			t.Fatalf("bob sees %+v, %v", st, err)
		}
		return st.Elsewhere.Since.Time
	}
	before := since()
	tm.later += time.Minute
	ann.project("edited")
	if _, _, err := deploy(ann, "p"); err != nil {
		t.Fatal(err)
	}
	if now := since(); !now.Equal(before) {
		t.Errorf("ann has the workspace since %v, and an edit later since %v", before, now)
	}
}

// A workspace whose deployment is unreadable follows no file, and the next deployment repairs it.
func TestTeamUnreadable(t *testing.T) {
	ctx := t.Context()
	ann, bob := pairOfTeam(t)
	key := refstore.Key{Partition: "WORKSPACE", Sort: "w"}
	for name, data := range map[string][]byte{
		"torn":     []byte("\x89East"),
		"other":    (&record.Pin{}).Encode(),
		"empty":    {},
		"no id":    (&record.WorkspaceDeployment{File: "ann.yaml"}).Encode(),
		"wrong id": (&record.WorkspaceDeployment{File: "ann.yaml", ID: "../../x\xff"}).Encode(),
	} {
		rec, err := ann.team.records.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		rec.Fields = []refstore.Field{{Name: "deployment.beast2", Value: data}}
		if _, err := ann.team.records.Put(ctx, rec); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*colleague{ann, bob} {
			p := c.process(nil)
			if file, err := p.ws.Deployer.LinkedTo(ctx, "w"); file != "" || err != nil {
				t.Errorf("%s: %s follows %q, %v", name, c.name, file, err)
			}
			if _, err := p.start(ctx); err != nil && !strings.Contains(err.Error(), "deploy the package file again") {
				t.Errorf("%s: %s starts: %v, want what to do", name, c.name, err)
			}
			if err := p.set(ctx, "a", "x"); err != nil {
				t.Errorf("%s: %s sets: %v", name, c.name, err)
			}
		}
		_, err = ann.process(nil).deploy(ctx)
		var values *workspace.LostValuesError
		if errors.As(err, &values) { // the set inputs are lost
			if !slices.Contains(values.Inputs, "a") {
				t.Errorf("%s: deployed again: %v, want a to be named", name, err)
			}
			for _, input := range values.Inputs {
				if _, err := ann.process(nil).ws.Datasets.Unset(ctx, "w", input); err != nil {
					t.Errorf("%s: unset %s: %v", name, input, err)
				}
			}
			_, err = ann.process(nil).deploy(ctx)
		}
		if err != nil {
			t.Errorf("%s: deployed again: %v", name, err)
		}
		if file, err := ann.process(nil).ws.Deployer.LinkedTo(ctx, "w"); file != ann.file() || err != nil {
			t.Errorf("%s: then it follows %q, %v", name, file, err)
		}
	}
}
