package examples_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// wheel makes a wheel with one module, and returns its name and content. Its bytes are the same each time.
func wheel(t *testing.T, name, version, module string) (string, []byte) {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	info := name + "-" + version + ".dist-info/"
	files := []struct{ name, text string }{
		{name + ".py", module},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: e3\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", name + ".py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	}
	for _, f := range files {
		out, err := w.Create(f.name)
		if err == nil {
			_, err = out.Write([]byte(f.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return name + "-" + version + "-py3-none-any.whl", b.Bytes()
}

// TestEnvironmentFromLock: packages of Python come from a lock file, are installed once for each lock file, and a wheel with another
// hash is refused. The wheels are made here: nothing is downloaded.
func TestEnvironmentFromLock(t *testing.T) {
	suite.Thorough(t) // pip takes its time
	if out, err := exec.Command("python3", "-m", "pip", "--version").CombinedOutput(); err != nil {
		t.Skipf("the example needs python3 with pip (Debian: apt-get install python3-pip): %v, %s", err, out)
	}
	p := newProject(t, "folds", "python3")
	wheels := t.TempDir()
	t.Setenv("PIP_NO_INDEX", "1")
	t.Setenv("PIP_FIND_LINKS", wheels)
	lock := func(version, module string) string {
		name, data := wheel(t, "tabulate", version, module)
		if err := os.WriteFile(filepath.Join(wheels, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("tabulate==%s --hash=sha256:%x\n", version, sha256.Sum256(data))
	}
	first := lock("1.0", "def tabulate(rows, headers): return 'one: %d rows' % len(list(rows))\n")
	p.edit("requirements.lock", func(string) string { return first })
	p.starts("0 cached, 2 executed", "-f", "env.yaml")
	p.has("results/table.txt", "one: ")
	p.edit("points.csv", appended("99,99\n"))
	p.starts("1 cached, 1 executed", ".", "folds-env")
	second := lock("2.0", "def tabulate(rows, headers): return 'two'\n")
	p.edit("requirements.lock", func(string) string { return second })
	p.starts("0 cached, 2 executed", ".", "folds-env")
	p.has("results/table.txt", "two")
	p.edit("requirements.lock", func(string) string { return first })
	p.starts("2 cached, 0 executed", ".", "folds-env")
	p.edit("requirements.lock", func(string) string { return "tabulate==2.0 --hash=sha256:" + fmt.Sprintf("%064d", 0) + "\n" })
	if out, err := p.try("start", ".", "folds-env"); err == nil {
		t.Errorf("a wheel of another hash is installed:\n%s", out)
	}
}

// TestUV: a lock file of uv runs what uses its environment, and nothing else. The wheels are made here: nothing is
// downloaded but uv.
func TestUV(t *testing.T) {
	suite.Thorough(t) // uv may have to be installed
	uv, err := testserver.UV()
	if err != nil {
		t.Skipf("the example needs uv: %v", err)
	}
	t.Setenv("PATH", filepath.Dir(uv)+string(os.PathListSeparator)+os.Getenv("PATH"))
	wheels := t.TempDir()
	for name, value := range map[string]string{
		"UV_OFFLINE": "1", "UV_FIND_LINKS": wheels, "UV_CACHE_DIR": t.TempDir(), "E3_CACHE_DIR": t.TempDir(),
	} {
		t.Setenv(name, value)
	}
	p := newProject(t, "uv", "python3")
	lock := func(version, module string) {
		t.Helper()
		name, data := wheel(t, "tabulate", version, module)
		err := os.WriteFile(filepath.Join(wheels, name), data, 0o600)
		cmd := exec.Command(uv, "lock", "--upgrade")
		cmd.Dir = p.dir
		out, failed := cmd.CombinedOutput()
		if err := errors.Join(err, failed); err != nil {
			t.Fatalf("uv lock: %v\n%s", err, out)
		}
	}
	lock("1.0", "def tabulate(rows, headers): return 'one: %r' % list(rows)\n")
	p.starts("0 cached, 2 executed", "-f", "e3.yaml")
	p.has("table.txt", "one: [('north', 4.9), ('south', 6.55)]")
	p.like("uv", "Debian: apt-get install make", []string{"make", "-s", "-f", "peers/Makefile"}, "uv.lock")
	lock("2.0", "def tabulate(rows, headers): return 'two'\n")
	p.starts("1 cached, 1 executed")
	p.has("table.txt", "two")
	if out := p.e3("why", ".", "yields.table"); !strings.Contains(out, "uv.lock changed") {
		t.Errorf("e3 why printed:\n%s\nwant that uv.lock changed", out)
	}
}
