//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/internal/testing/testimage"
)

// debian returns a root file system of Debian's packages, with Python, as a tar archive. E3_TEST_ROOTFS names one that was
// made before. Making one takes one or two minutes, and needs root or, with newuidmap, a range of subordinate users.
func debian(t testing.TB) []byte {
	t.Helper()
	tar := os.Getenv("E3_TEST_ROOTFS")
	if tar == "" {
		if _, err := exec.LookPath("mmdebstrap"); err != nil {
			t.Skipf("install mmdebstrap, or name a root file system by E3_TEST_ROOTFS: %v", err)
		}
		tar = filepath.Join(t.TempDir(), "rootfs.tar")
		if out, err := exec.Command("mmdebstrap", "--variant=minbase", "--include=python3", "bookworm", tar).CombinedOutput(); err != nil {
			t.Skipf("packages of Debian cannot be had: %v\n%s", err, tail(string(out)))
		}
	}
	data, err := os.ReadFile(tar)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPythonInAnImage runs Python from an image of Debian's packages, and runs it again on a second machine: another user
// with another home, cache and repository, who has an export and no Python.
func TestPythonInAnImage(t *testing.T) {
	suite.Thorough(t)
	picture := testimage.Image{Layers: [][]byte{debian(t)}, Plain: true}
	t.Run("packages", func(t *testing.T) { testPackages(t, picture) })
	t.Run("machine learning", func(t *testing.T) { testLearning(t, picture) })
}

// writeImage puts an image beside the package file of a project.
func writeImage(t *testing.T, p *project, picture testimage.Image) {
	t.Helper()
	if err := testimage.WriteLayout(p.path("debian"), map[string]testimage.Image{"bookworm": picture}); err != nil {
		t.Fatal(err)
	}
}

// elsewhere imports a workspace with its images on a second machine.
func elsewhere(t *testing.T, p *project, workspace string) *project {
	t.Helper()
	other := newProject(t, nil)
	other.env = append(other.env, "PATH=/nowhere")
	zip := other.path("moved.zip")
	if r := p.e3("workspace", "export", ".", workspace, zip, "--images"); r.code != 0 {
		t.Fatal(r.text())
	}
	if os.Geteuid() == 0 {
		other.as(nobody)
	}
	for _, args := range [][]string{{"init", "."}, {"workspace", "import", ".", zip}} {
		if r := other.e3(args...); r.code != 0 {
			t.Fatalf("e3 %s: %s", strings.Join(args, " "), r.text())
		}
	}
	return other
}

// TestImageOfAnOrdinaryUser: a user without rights fetches an image, unpacks it, runs and enters tasks in it, and removes it.
func TestImageOfAnOrdinaryUser(t *testing.T) {
	first, err := testimage.Busybox("first")
	if err != nil {
		t.Skip(err)
	}
	host, end := testimage.Registry()
	defer end()
	name := host + "/box:1"
	if err := testimage.Push(name, first, true); err != nil {
		t.Fatal(err)
	}
	p := newProject(t, map[string]string{"e3.yaml": fmt.Sprintf(`e3: 1
name: demo
tasks:
  look:
    image: %s
    out: look.txt
    run: id -u > look.txt; cat /etc/motd >> look.txt; touch /tmp/x; touch /etc/motd 2> /dev/null || echo read-only >> look.txt
`, name)})
	uid := os.Geteuid()
	if uid == 0 {
		uid = nobody
		p.as(nobody)
	}
	expect := func(want string, args ...string) {
		t.Helper()
		if r := p.e3(args...); r.code != 0 || !strings.Contains(r.stdout+r.stderr, want) {
			t.Fatalf("e3 %s, want %q: %s", strings.Join(args, " "), want, r.text())
		}
	}
	expect("", "init", ".")
	expect("2 layers", "image", "pull", ".")
	expect("1 executed", "start", "-f", "e3.yaml", ".", "demo")
	expect(fmt.Sprintf("%d\nfirst", uid), "get", ".", "demo.look")
	expect("read-only", "get", ".", "demo.look")
	expect("first", "shell", ".", "demo.look", "--", "cat", "/etc/motd")
	if err := testimage.Push(name, testimage.Image{Layers: append(first.Layers[:1:1], testimage.Layer(testimage.File("etc/motd", "second", 0o644))), Env: first.Env}, true); err != nil {
		t.Fatal(err)
	}
	expect(", was sha256:", "image", "update", ".")
	expect("1 executed", "start", ".", "demo")
	expect("second", "get", ".", "demo.look")
	expect("used by workspace demo: look", "image", "list", ".")
	expect("", "workspace", "remove", ".", "demo")
	expect("", "gc", ".")
}

func testPackages(t *testing.T, picture testimage.Image) {
	p := newProject(t, map[string]string{
		"e3.yaml": `e3: 1
name: demo
image: oci:debian
inputs:
  table: {file: table.csv}
  script: {file: mean.py}
tasks:
  mean:
    in: [table, script]
    out: mean.json
    run: python3 "$script" "$table" > "$out"
  system:
    in: [mean]
    out: system.txt
    run: |
      . /etc/os-release
      echo "$ID $VERSION_CODENAME" > "$out"
      dpkg-query -W -f '${Package}\n' python3-minimal >> "$out"
      tr -d ' ' < "$mean" | sort >> "$out"
      ! touch /usr/x 2>/dev/null
`,
		"table.csv": "x,y\n1,2\n3,4\n",
		"mean.py": `import os, sys
names, *rows = [line.strip().split(",") for line in open(sys.argv[1])]
assert os.getuid() in [int(line.split(":")[2]) for line in open("/etc/passwd")]
mean = {n: sum(float(r[i]) for r in rows) / len(rows) for i, n in enumerate(names)}
print(str(mean).replace("'", '"'))
`,
	})
	writeImage(t, p, picture)
	p.start(0, ".", "demo")
	const want = "debian bookworm\npython3-minimal\n{\"x\":2.0,\"y\":3.0}\n"
	if got := p.output("system"); got != want {
		t.Errorf("the image has made %q, want %q", got, want)
	}
	other := elsewhere(t, p, "demo")
	if r := other.e3("start", ".", "demo", "--force"); r.code != 0 {
		t.Fatal(r.text())
	}
	if r := other.e3("get", ".", "demo.system"); r.stdout != want {
		t.Errorf("elsewhere the image has made %s", r.text())
	}
}

// testLearning runs examples/folds in an image: on the second machine everything is cached, comes out the same if it runs
// again, and goes on from there with another parameter.
func testLearning(t *testing.T, picture testimage.Image) {
	p := newProject(t, nil)
	for _, name := range []string{"e3.yaml", "params.yaml", "points.csv", "folds.csv", "fit.py"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "folds", name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "e3.yaml" {
			text = bytes.Replace(text, []byte("\nname: folds\n"), []byte("\nname: folds\nimage: oci:debian\n"), 1)
		}
		p.write(name, string(text))
	}
	writeImage(t, p, picture)
	p.start(0, ".", "folds")
	mean := p.e3("get", ".", "folds.mean.mean").stdout
	if !strings.Contains(mean, `"mean_error"`) {
		t.Fatalf("the example has made %q", mean)
	}
	other := elsewhere(t, p, "folds")
	tasks := len(p.all())
	for _, run := range []struct {
		args []string
		want string
		same bool
	}{
		{nil, fmt.Sprintf("%d cached", tasks), true},
		{[]string{"--force"}, fmt.Sprintf("%d executed", tasks), true},
		{[]string{"--set", "params.train.rounds=3"}, fmt.Sprintf("%d executed", tasks), false},
	} {
		r := other.e3(append([]string{"start", ".", "folds"}, run.args...)...)
		if r.code != 0 || !strings.Contains(r.text(), run.want) {
			t.Fatalf("elsewhere, e3 start %q, want %s:\n%s", run.args, run.want, r.text())
		}
		if !run.same {
			continue
		}
		if r := other.e3("get", ".", "folds.mean.mean"); r.stdout != mean {
			t.Errorf("elsewhere, after e3 start %q, the mean is %s, want %q", run.args, r.text(), mean)
		}
	}
}
