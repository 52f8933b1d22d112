//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
)

// holdGraph has a task that lasts until it is released.
const holdGraph = `
e3: 1
name: hold
inputs:
  a: {file: old.txt}
tasks:
  hold: {out: h.txt, pass_env: [E2E_STATE], run: 'echo go >> "$E2E_STATE/holding"; until test -e "$E2E_STATE/release"; do sleep 0.01; done; echo held > "$out"'}
`

// garbage makes some, and shows that garbage older than every running process goes, that nothing else does, and that
// all of it goes once no process runs.
func (tt *torture) garbage() {
	t, p := tt.t, tt.p
	for i := range 10 {
		p.write("old.txt", fmt.Sprintf("old %d\n", i))
		p.must("set", ".", "hold.a", "@old.txt")
	}
	p.must("prune", ".", "--max-size", "1B", "--no-gc")
	objects, needed := tt.look()
	var old []string
	for h := range objects {
		if !needed[h] {
			old = append(old, h)
		}
	}
	x := p.spawn("start", ".", "hold")
	p.holding(patience, 1)
	tt.countCollected(p.must("gc", ".", "--json"))
	left := 0
	for _, h := range old {
		if _, err := os.Lstat(filepath.Join(p.repository(), "objects", h[:2], h[2:])); err == nil {
			left++
		}
	}
	t.Logf("of %d objects %d were needed; %d of %d that were not are left beside a run that began later", len(objects), len(needed), left, len(old))
	if len(old) < 10 || 10*left > len(old) {
		t.Errorf("%d of %d unneeded objects, older than every session, are left, want none", left, len(old))
	}
	p.write("state/release", "")
	if r := x.wait(); r.code != 0 {
		t.Errorf("the run beside the collection: exit code %d\n%s", r.code, r.text())
	}
	for h := range needed {
		if _, err := os.Lstat(filepath.Join(p.repository(), "objects", h[:2], h[2:])); err != nil {
			t.Errorf("object %s is needed: %v", h, err)
		}
	}

	tt.countCollected(p.must("gc", ".", "--json"))
	objects, needed = tt.look()
	for h := range objects {
		if !needed[h] {
			t.Errorf("object %s is left, want it removed: it is not needed and no process runs", h)
		}
	}
	if left, err := leftovers(p.repository()); err != nil || len(left) > 0 {
		t.Errorf("tmp holds %v, %v", left, err)
	}
}

// look returns the objects that are there, and those that something names.
func (tt *torture) look() (objects, needed map[string]bool) {
	tt.t.Helper()
	return checkBut(tt.t, tt.p.repository(), tolerated{collected: true, pruning: true, killed: true})
}
