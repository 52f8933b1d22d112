//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tortureGraph is what owners run: everything but "noisy" is a function of what the owner has put in. Its inputs
// are drawn from few values, so that objects that just became garbage are needed again.
const tortureGraph = `
e3: 1
name: %[1]s
inputs:
  a: {file: a.txt}
  lib: {dir: lib}
  n: {value: %[2]d}
  noise: {value: 0}
tasks:
  copy: {in: [a], out: copy.txt, run: 'cat "$a" > "$out"; echo copy %[3]d >> "$out"'}
  tree: {in: [lib, n], out: tree/, run: 'mkdir "$out/d"; for f in "$lib"/*; do { cat "$f"; echo "$n"; } > "$out/d/${f##*/}"; done; echo "$n" > "$out/n"'}
  part: {in: [a], out: part.txt, matrix: {m: [1, 2, 3]}, run: 'cat "$a" > "$out"; echo "$m" >> "$out"'}
  pair: {in: [copy], out: {l: l.txt, r: r.txt}, run: 'wc -c < "$copy" > "$l"; echo "right %[3]d" > "$r"'}
  slow: {in: [n], out: slow.txt, run: 'echo begin; sleep 0.25; echo "slow $n" > "$out"'}
  noisy: {in: [noise], out: noisy.txt, run: 'seq 1 15000; echo "noise $noise" > "$out"; test "$noise" != 7'}
  join: {in: {p: "part[*]", t: tree, l: pair.l, s: slow}, out: join.txt, run: 'cat "$p"/* "$t"/d/* "$l" "$s" > "$out"'}
`

// inputs are what an owner's results are a function of.
type inputs struct {
	a   string
	lib string // one of libs
	n   int
}

var libs = []string{"one", "two", "three"}

// libFiles are the files of the lib of that name.
func libFiles(lib string) map[string]string {
	files := map[string]string{"same": "same\n", lib: lib + "\n"}
	for i := range 2 + len(lib) {
		files[fmt.Sprint(i)] = fmt.Sprintf("%s %d\n", lib, i%3)
	}
	return files
}

// results are what the tasks make of them, by version of the graph.
func (in inputs) results(version int) map[string]string {
	out := map[string]string{}
	out["copy"] = in.a + fmt.Sprintf("copy %d\n", version)
	out["pair.l"] = fmt.Sprintf("%d\n", len(out["copy"]))
	out["pair.r"] = fmt.Sprintf("right %d\n", version)
	out["slow"] = fmt.Sprintf("slow %d\n", in.n)
	out["tree/n"] = fmt.Sprintf("%d\n", in.n)
	var join strings.Builder
	for m := 1; m <= 3; m++ {
		out[fmt.Sprintf("part[%d]", m)] = fmt.Sprintf("%s%d\n", in.a, m)
		join.WriteString(out[fmt.Sprintf("part[%d]", m)])
	}
	files := libFiles(in.lib)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		out["tree/d/"+name] = fmt.Sprintf("%s%d\n", files[name], in.n)
		join.WriteString(out["tree/d/"+name])
	}
	out["join"] = join.String() + out["pair.l"] + out["slow"]
	return out
}

// An owner has a workspace that no other actor starts or changes, except for the noise in it.
type owner struct {
	tt       *torture
	ws       string
	there    bool     // the workspace exists and has a package
	follows  bool     // it follows the file, or else has a registered package
	disk     inputs   // what the files say
	version  int      // of the graph in the file
	deployed inputs   // what the registered package says
	built    int      // its version of the graph
	set      struct { // what was set
		a, lib bool
		n      bool
		inputs
	}
	serial int
}

func newOwner(tt *torture, ws string) *owner {
	o := &owner{tt: tt, ws: ws, disk: inputs{a: "alpha 0\n", lib: libs[0]}}
	for _, lib := range libs {
		for name, text := range libFiles(lib) {
			tt.p.write(filepath.Join("libs", lib, name), text)
		}
	}
	for i := range 4 {
		tt.p.write(fmt.Sprintf("as/%d", i), fmt.Sprintf("alpha %d\n", i))
	}
	o.writeAll()
	return o
}

func (o *owner) file(name string) string { return filepath.Join(o.ws, name) }

// writeAll makes the files what they should be.
func (o *owner) writeAll() {
	o.tt.p.write(o.file("e3.yaml"), fmt.Sprintf(tortureGraph, o.ws, o.disk.n, o.version))
	o.tt.p.write(o.file("a.txt"), o.disk.a)
	o.writeLib()
}

func (o *owner) writeLib() {
	dir := o.tt.p.path(o.file("lib"))
	want := libFiles(o.disk.lib)
	have, _ := os.ReadDir(dir)
	for _, e := range have {
		if _, ok := want[e.Name()]; !ok {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	for name, text := range want {
		o.tt.p.write(o.file("lib/"+name), text)
	}
}

// inputs are what the next run will work on.
func (o *owner) inputs() (inputs, int) {
	in, version := o.disk, o.version
	if !o.follows {
		in, version = o.deployed, o.built
	}
	if o.set.a {
		in.a = o.set.inputs.a
	}
	if o.set.lib {
		in.lib = o.set.inputs.lib
	}
	if o.set.n {
		in.n = o.set.inputs.n
	}
	return in, version
}

// act does one thing.
func (o *owner) act(a *actor) {
	if !o.there {
		o.make(a)
	}
	switch a.rnd.IntN(16) {
	case 0, 1:
		o.disk.a = fmt.Sprintf("alpha %d\n", a.rnd.IntN(4))
		a.p.write(o.file("a.txt"), o.disk.a)
	case 2:
		o.disk.lib = libs[a.rnd.IntN(len(libs))]
		o.writeLib()
	case 3:
		o.version, o.disk.n = a.rnd.IntN(3), a.rnd.IntN(3)
		a.p.write(o.file("e3.yaml"), fmt.Sprintf(tortureGraph, o.ws, o.disk.n, o.version))
	case 4:
		o.set.n, o.set.inputs.n = true, a.rnd.IntN(4)
		a.must(none, "set", ".", o.ws+".n", strconv.Itoa(o.set.inputs.n))
	case 5:
		i := a.rnd.IntN(4)
		o.set.a, o.set.inputs.a = true, fmt.Sprintf("alpha %d\n", i)
		a.must(none, "set", ".", o.ws+".a", fmt.Sprintf("@as/%d", i))
	case 6:
		o.set.lib, o.set.inputs.lib = true, libs[a.rnd.IntN(len(libs))]
		a.must(none, "set", ".", o.ws+".lib", "@libs/"+o.set.inputs.lib)
	case 7:
		a.must(none, "unset", ".", o.ws+".a")
		o.set.a = false
		a.run(false, none, "get", ".", o.ws+".a")
	case 8:
		a.must(none, "unset", ".", o.ws+".lib")
		o.set.lib = false
		a.run(false, none, "get", ".", o.ws+".lib", "-o", o.file("out"), "--force")
		a.must(none, "unset", ".", o.ws+".n")
		o.set.n = false
	case 9:
		o.register(a)
	case 10:
		o.follow(a)
	case 11:
		a.must(mistaken, "workspace", "remove", ".", o.ws)
		o.there, o.set.a, o.set.lib, o.set.n = false, false, false, false
		return
	case 12:
		o.start(a, "--force")
		return
	}
	if o.start(a) && a.rnd.IntN(3) == 0 {
		o.exportImport(a)
	}
}

// make makes the workspace.
func (o *owner) make(a *actor) {
	a.must(mistaken, "workspace", "create", ".", o.ws) // it is there if that was killed too late
	o.follow(a)
	o.there = true
}

// follow has the workspace follow the file.
func (o *owner) follow(a *actor) {
	a.must(none, "workspace", "deploy", ".", o.ws, o.file("e3.yaml"))
	o.follows = true
}

// register makes a package and deploys that; it is forgotten at once, so that only the workspace names it.
func (o *owner) register(a *actor) {
	o.serial++
	ref := fmt.Sprintf("%s@0.%d", o.ws, o.serial)
	a.must(none, "package", "build", ".", o.file("e3.yaml"), "--as", ref)
	a.must(none, "workspace", "deploy", ".", o.ws, ref)
	o.follows, o.deployed, o.built = false, o.disk, o.version
	if a.rnd.IntN(3) > 0 {
		a.must(mistaken, "package", "remove", ".", ref)
	}
}

// start runs the workspace and looks at what came of it.
func (o *owner) start(a *actor, args ...string) bool {
	args = append([]string{"start", ".", o.ws, "--json", "--durability", []string{"none", "batch"}[min(1, a.rnd.IntN(8))]}, args...)
	if a.rnd.IntN(4) == 0 {
		args = append(args, "--publish", "final")
	}
	if a.rnd.IntN(6) == 0 {
		o.setWhileRunning(a, args)
	}
	r := a.must(failing, args...)
	if a.gone || r.code != 0 && r.code != 1 || r.fault() != "" {
		if r.fault() != "" {
			a.failf("start: %s\n%s", r.fault(), r.text())
		}
		return false
	}
	in, version := o.inputs()
	return o.has(a, o.ws, in.results(version), 3)
}

// setWhileRunning starts the workspace and sets a value meanwhile.
func (o *owner) setWhileRunning(a *actor, args []string) {
	n := a.rnd.IntN(4)
	x := a.p.spawn(args...)
	killPoint{delay: time.Duration(a.rnd.Int64N(int64(100 * time.Millisecond)))}.at(x)
	o.set.n, o.set.inputs.n = true, n
	a.must(none, "set", ".", o.ws+".n", strconv.Itoa(n))
	if r := x.wait(); r.code > 1 || r.fault() != "" {
		a.failf("start with a set meanwhile: exit code %d\n%s", r.code, r.text())
	}
}

// has looks at some of a workspace's results.
func (o *owner) has(a *actor, ws string, want map[string]string, some int) bool {
	names := slices.Sorted(maps.Keys(want))
	names = slices.DeleteFunc(names, func(s string) bool { return s == "join" })
	a.rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range append(names[:some], "join") {
		r := a.run(false, none, "get", ".", ws+"."+strings.Replace(name, "tree/", "tree.", 1))
		if r.code == 0 && r.stdout != want[name] {
			a.failf("%s.%s is %q, want %q", ws, name, r.stdout, want[name])
		}
		if r.code != 0 {
			return false
		}
	}
	return true
}

// exportImport takes the workspace elsewhere and back, as it is now.
func (o *owner) exportImport(a *actor) {
	in, version := o.inputs()
	o.serial++
	file := fmt.Sprintf("%s-%d.zip", o.ws, o.serial)
	defer os.Remove(a.p.path(file))
	args := []string{"workspace", "export", ".", o.ws, file, "--force"}
	if a.rnd.IntN(3) == 0 {
		args = append(args, "--all-history")
	}
	a.must(none, args...)
	if a.over() {
		return
	}
	if _, err := wholeZip(a.p.path(file)); err != nil {
		a.failf("export: %v", err)
		return
	}
	copyOf := fmt.Sprintf("%s-%d", o.ws, o.serial)
	r := a.must(none, "workspace", "import", ".", file, copyOf)
	if r.code != 0 || a.gone {
		return
	}
	o.has(a, copyOf, in.results(version), 2)
	if a.rnd.IntN(2) == 0 {
		if r := a.must(failing, "start", ".", copyOf, "--json"); r.fault() != "" {
			a.failf("start of an import: %s", r.fault())
		}
		o.has(a, copyOf, in.results(version), 2)
	}
	a.must(mistaken, "workspace", "remove", ".", copyOf)
}

// settle brings the workspace to its end once all is quiet.
func (o *owner) settle(a *actor) {
	if !o.there {
		o.make(a)
	}
	r := a.p.e3("start", ".", o.ws, "--json")
	if r.code > 1 || r.fault() != "" {
		a.t.Errorf("%s: exit code %d\n%s", o.ws, r.code, r.text())
	}
	in, version := o.inputs()
	want := in.results(version)
	o.has(a, o.ws, want, len(want)-1)
}

// A foreignZip is an export of another repository.
type foreignZip struct {
	path string
	want map[string]string
}

// newForeignZips makes a repository with some states and exports each.
func newForeignZips(t *testing.T) []foreignZip {
	tt := &torture{t: t, p: newProjectBelow(t, inMemory(), nil), counts: map[string]map[int]int{}}
	p := tt.p
	p.must("init")
	o := newOwner(tt, "far")
	p.must("workspace", "create", ".", "far")
	p.must("workspace", "deploy", ".", "far", o.file("e3.yaml"))
	var zips []foreignZip
	for i := range 4 {
		in := inputs{a: fmt.Sprintf("alpha %d\n", i), lib: libs[i%len(libs)], n: i}
		p.must("set", ".", "far.a", fmt.Sprintf("@as/%d", i))
		p.must("set", ".", "far.lib", "@libs/"+in.lib)
		p.must("set", ".", "far.n", strconv.Itoa(i))
		p.must("set", ".", "far.noise", strconv.Itoa(6+i)) // one of which fails
		if r := p.e3("start", ".", "far"); r.code != 0 && i != 1 || r.code > 1 {
			t.Fatalf("start: exit code %d\n%s", r.code, r.text())
		}
		path := p.path(fmt.Sprintf("far-%d.zip", i))
		p.must("workspace", "export", ".", "far", path)
		zips = append(zips, foreignZip{path, in.results(0)})
	}
	return zips
}

// importSome takes in what another repository has made.
func importSome(a *actor) {
	z := a.foreign[a.rnd.IntN(len(a.foreign))]
	o := &owner{tt: a.torture}
	switch a.rnd.IntN(4) {
	case 0:
		r := a.must(none, "package", "import", ".", z.path, "--json")
		if r.code == 0 && !a.gone && a.rnd.IntN(2) == 0 {
			a.removeSomePackage()
		}
	case 1:
		a.must(mistaken, "package", "import", ".", z.path, "--as", fmt.Sprintf("other@%d", a.rnd.IntN(3)))
	default:
		ws := fmt.Sprintf("far%d", a.rnd.IntN(1000))
		if r := a.must(none, "workspace", "import", ".", z.path, ws); r.code != 0 || a.gone {
			return
		}
		o.has(a, ws, z.want, 2)
		if r := a.must(failing, "start", ".", ws, "--json"); r.fault() != "" {
			a.failf("start of an import: %s", r.fault())
		}
		o.has(a, ws, z.want, 2)
		a.must(mistaken, "workspace", "remove", ".", ws)
	}
}

// removeSomePackage takes a package out of the register that only importers put there.
func (a *actor) removeSomePackage() {
	found, _ := filepath.Glob(filepath.Join(a.p.repository(), "packages", "far", "*"))
	if len(found) > 0 {
		a.run(true, mistaken, "package", "remove", ".", "far@"+filepath.Base(found[a.rnd.IntN(len(found))]))
	}
}

// exportSome exports a workspace in which another actor works, and sometimes imports the zip.
func exportSome(a *actor) {
	ws := fmt.Sprintf("w%d", a.rnd.IntN(4))
	file := a.p.path("some.zip")
	defer os.Remove(file)
	r := a.run(true, mistaken, "workspace", "export", ".", ws, file)
	if _, err := os.Lstat(file); err != nil {
		if r.code == 0 {
			a.failf("export of %s has made nothing", ws)
		}
		return
	}
	if _, err := wholeZip(file); err != nil {
		a.failf("export of %s: %v", ws, err)
		return
	}
	switch a.rnd.IntN(3) {
	case 0:
		a.must(mistaken, "package", "import", ".", file) // the name may be taken
	case 1:
		name := fmt.Sprintf("some%d", a.rnd.IntN(1000))
		a.must(none, "workspace", "import", ".", file, name)
		a.must(mistaken, "workspace", "remove", ".", name)
	}
}
