//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/internal/testing/testimage"
)

// debian returns a root file system of Debian's packages, with Python, as a tar archive. E3_TEST_ROOTFS names one that was
// made before.
func debian(t testing.TB) []byte {
	t.Helper()
	tar := os.Getenv("E3_TEST_ROOTFS")
	if tar == "" {
		if _, err := exec.LookPath("mmdebstrap"); err != nil {
			t.Skipf("install mmdebstrap, or name a root file system by E3_TEST_ROOTFS: %v", err)
		}
		needRoot(t)
		tar = filepath.Join(t.TempDir(), "rootfs.tar")
		if out, err := exec.Command("mmdebstrap", "--variant=minbase", "--include=python3-minimal", "bookworm", tar).CombinedOutput(); err != nil {
			t.Skipf("packages of Debian cannot be had: %v\n%s", err, tail(string(out)))
		}
	}
	data, err := os.ReadFile(tar)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestPythonInAnImage runs Python from an image of Debian's packages, and runs it again from an export, in another
// repository, with a PATH on which there is no Python.
func TestPythonInAnImage(t *testing.T) {
	suite.Thorough(t)
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
	picture := testimage.Image{Layers: [][]byte{debian(t)}, Plain: true}
	if err := testimage.WriteLayout(p.path("debian"), map[string]testimage.Image{"bookworm": picture}); err != nil {
		t.Fatal(err)
	}
	p.start(0, ".", "demo")
	const want = "debian bookworm\npython3-minimal\n{\"x\":2.0,\"y\":3.0}\n"
	if got := p.output("system"); got != want {
		t.Errorf("the image has made %q, want %q", got, want)
	}
	zip := filepath.Join(t.TempDir(), "demo.zip")
	if r := p.e3("workspace", "export", ".", "demo", zip, "--images"); r.code != 0 {
		t.Fatal(r.text())
	}
	other := newProject(t, nil)
	other.env = append(other.env, "PATH=/nowhere")
	for _, args := range [][]string{{"init", "."}, {"workspace", "import", ".", zip}, {"start", ".", "demo", "--force"}} {
		if r := other.e3(args...); r.code != 0 {
			t.Fatalf("e3 %s: %s", strings.Join(args, " "), r.text())
		}
	}
	if r := other.e3("get", ".", "demo.system"); r.stdout != want {
		t.Errorf("elsewhere the image has made %s", r.text())
	}
}
