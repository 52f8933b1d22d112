//go:build linux

package e2e

import (
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// TestSharedGCBesideDeployment removes the workspace that a deployment on another machine takes the objects of, and collects, between
// the time when it decides not to put them and the time when it names them: they stay.
func TestSharedGCBesideDeployment(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	c := newCollected(t)
	c.set("word", "wanted\n")
	c.set("word", "second\n") // what was wanted is garbage, and as old as the package
	if n := c.gc(); n == 0 {
		t.Fatal("nothing was collected")
	}
	two := c.machine("two")
	two.project.dir = t.TempDir()
	two.write("e3.yaml", gcGraph+"  more: {in: [word], out: o.txt, run: 'cat \"$word\" > \"$out\"'}\n")
	two.write("word.txt", "first\n")
	two.write("other.txt", "other\n")
	c.objects.Faults(1, testserver.Rule{Op: "PutObject", Fault: testserver.Hang})
	x := two.spawn("start", "-f", "e3.yaml", c.repo, "v")
	eventually(t, patience, "it sends what is new", func() string {
		if c.objects.Struck()[testserver.Hang] == 0 {
			return "it does not"
		}
		return ""
	})
	c.must("workspace", "remove", c.repo, "w")
	eventually(t, patience, "it is collected", func() string {
		if r := c.e3("gc", c.repo); r.code != 0 {
			return r.text()
		}
		return ""
	})
	c.objects.Faults(0)
	if r := x.wait(); r.code != 0 || !strings.Contains(r.stdout, "2 executed") {
		t.Errorf("start: exit code %d\n%s", r.code, r.text())
	}
	c.sound()
}
