//go:build linux

package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"e3/internal/testing/suite"
)

// carried is a zip with the run of powerGraph, and what it said.
type carried struct {
	zip  string
	took time.Duration     // of an import
	want map[string]string // what is in a repository that has nothing else
}

// carry makes a zip outside of the volume whose power is cut.
func carry(t *testing.T) *carried {
	t.Helper()
	p := newProject(t, powerFiles)
	p.start(0)
	c := &carried{zip: p.path("out.zip")}
	p.must("workspace", "export", ".", "power", c.zip)
	fresh := newProject(t, nil)
	fresh.must("init")
	began := time.Now()
	fresh.must("workspace", "import", ".", c.zip)
	c.took = time.Since(began)
	c.want = contents(t, fresh.repository())
	return c
}

// arrived demands that a repository has all that was carried: a start has nothing to do.
func (c *carried) arrived(what string, p *project) {
	p.t.Helper()
	p.verified(p.repository())
	has := contents(p.t, p.repository())
	for path := range has {
		if _, ok := c.want[path]; !ok { // it was there before
			delete(has, path)
		}
	}
	if d := difference(has, c.want); d != "" {
		p.t.Errorf("%s: not all has arrived:\n  %s", what, d)
	}
	if ran := p.exits(0, "start", ".", "power", "--json").ran(p.t); len(ran) > 0 {
		p.t.Errorf("%s: a start ran %v", what, ran)
	}
	check(p.t, p.repository())
	if got, want := len(p.of("all")), 1; got != want {
		p.t.Errorf("%s: task all has %d executions, want %d", what, got, want)
	}
}

// TestPowerLossAfterImport cuts power the moment an import has returned: all of it stays.
func TestPowerLossAfterImport(t *testing.T) {
	suite.Thorough(t)
	powerCuts(t, func(t *testing.T, v *volume, journal bool) {
		c := carry(t)
		for i, args := range [][]string{
			{"workspace", "import", ".", c.zip},
			{"package", "import", ".", c.zip},
			{"package", "import", ".", c.zip, "--as", "other@2"},
		} {
			what := fmt.Sprintf("%s %s", args[0], args[1])
			p := v.project(fmt.Sprintf("project_%d", i), nil)
			p.must("init")
			syncFiles(t, p.dir)
			p.must(args...)
			before := contents(t, p.repository())
			v.cutPower(journal)
			v.restore()
			if d := difference(contents(t, p.repository()), before); d != "" {
				t.Errorf("%s: after the loss of power\n  %s", what, d)
			}
			p.verified(p.repository())
			if args[0] == "package" {
				p.must("workspace", "import", ".", c.zip)
			}
			c.arrived(what, p)
		}
	})
}

// TestPowerLossMidImport cuts power at any moment of an import: nothing that was there is lost, and when it is
// repeated all is there.
func TestPowerLossMidImport(t *testing.T) {
	suite.Thorough(t)
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	powerCuts(t, func(t *testing.T, v *volume, journal bool) {
		c := carry(t)
		rnd := random(t)
		cut := 0
		for i := range rounds {
			p := v.project(fmt.Sprintf("project_%d", i), map[string]string{"e3.yaml": readGraph, "a.txt": "alpha\n"})
			p.start(0)
			syncFiles(t, p.dir)
			before := rememberFinished(t, p.repository())
			x := p.spawn("workspace", "import", ".", c.zip)
			at := time.Duration(rnd.Int64N(int64(c.took) * 5 / 4))
			killPoint{delay: at}.at(x)
			v.cutPower(journal)
			x.kill(true)
			if x.result().code != 0 {
				cut++
			}
			v.restore()
			what := fmt.Sprintf("round %d, cut at %v", i, at)
			if i%2 == 0 { // a start that knows nothing of the import comes between
				p.start(0)
			}
			if r := p.e3("workspace", "import", ".", c.zip); r.code != 0 {
				t.Fatalf("%s: repeated: exit code %d\n%s", what, r.code, r.text())
			}
			before.unchanged(t, p.repository())
			c.arrived(what, p)
			p.reads()
			if t.Failed() {
				t.FailNow()
			}
		}
		if cut == 0 {
			t.Error("no import was cut off")
		}
	})
}

// TestPowerLossAfterExport cuts power the moment an export has returned: the zip is whole under its name.
func TestPowerLossAfterExport(t *testing.T) {
	suite.Thorough(t)
	powerCuts(t, func(t *testing.T, v *volume, journal bool) {
		c := carry(t)
		p := newProject(t, nil)
		p.must("init")
		p.must("workspace", "import", ".", c.zip)
		out := v.project("project", nil).path("out.zip")
		for _, force := range []string{"--force=false", "--force"} {
			before, err := os.ReadFile(out)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			p.must("workspace", "export", ".", "power", out, force)
			v.cutPower(journal)
			v.restore()
			if _, err := wholeZip(out); err != nil {
				t.Errorf("%s, instead of %d bytes: %v", force, len(before), err)
			}
			noHidden(t, v.dir+"/project")
		}
	})
}
