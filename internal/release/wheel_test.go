package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"e3/internal/testing/built"
	"e3/internal/testing/suite"
)

func TestPythonVersion(t *testing.T) {
	for version, want := range map[string]string{
		"1.2.3": "1.2.3", "0.3.0-rc.1": "0.3.0rc1", "0.3.0-beta2": "0.3.0b2", "0.3.0-alpha": "0.3.0a0", "0.3.0-3-gab12": "0.3.0.dev0+3.gab12",
	} {
		if got := pythonVersion(version); got != want {
			t.Errorf("%s is %s, want %s", version, got, want)
		}
	}
}

// builtWheel is the wheel of a program for a system. Its folder is the working directory's, as of a release.
func builtWheel(t *testing.T, system string, program []byte) string {
	t.Helper()
	r := &release{version: "1.2.3", dir: t.TempDir()}
	name, err := r.wheel(system, program)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(r.dir, name)
}

// TestWheel: names and tags of each system, the sums of RECORD, the program's mode, and the same bytes each time.
func TestWheel(t *testing.T) {
	t.Chdir("../..")
	for system, want := range map[string]string{
		"linux/amd64":  "e3-1.2.3-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.musllinux_1_1_x86_64.whl",
		"linux/arm64":  "e3-1.2.3-py3-none-manylinux2014_aarch64.manylinux_2_17_aarch64.musllinux_1_1_aarch64.whl",
		"darwin/amd64": "e3-1.2.3-py3-none-macosx_12_0_x86_64.whl", "darwin/arm64": "e3-1.2.3-py3-none-macosx_12_0_arm64.whl",
	} {
		path := builtWheel(t, system, []byte("program"))
		if got := filepath.Base(path); got != want {
			t.Errorf("the wheel is %s, want %s", got, want)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		again, err := os.ReadFile(builtWheel(t, system, []byte("program")))
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%s: two wheels of one program differ (%v)", system, err)
		}
		checkWheel(t, data, strings.Split(strings.TrimSuffix(strings.TrimPrefix(want, "e3-1.2.3-py3-none-"), ".whl"), "."))
	}
}

func checkWheel(t *testing.T, data []byte, tags []string) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	have, record := map[string]string{}, ""
	for i, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		have[f.Name] = string(content)
		if i == len(z.File)-1 {
			record += f.Name + ",,\n"
			break
		}
		sum := sha256.Sum256(content)
		record += fmt.Sprintf("%s,sha256=%s,%d\n", f.Name, base64.RawURLEncoding.EncodeToString(sum[:]), len(content))
		if want := map[bool]os.FileMode{true: 0o755, false: 0o644}[f.Name == "e3-1.2.3.data/scripts/e3"]; f.Mode() != want {
			t.Errorf("%s has mode %v, want %v", f.Name, f.Mode(), want)
		}
	}
	if got := have["e3-1.2.3.dist-info/RECORD"]; got != record {
		t.Errorf("RECORD is\n%s\nwant\n%s", got, record)
	}
	for _, tag := range tags {
		if !strings.Contains(have["e3-1.2.3.dist-info/WHEEL"], "Tag: py3-none-"+tag+"\n") {
			t.Errorf("WHEEL lacks the tag %s", tag)
		}
	}
	for _, name := range []string{"e3/__init__.py", "e3/py.typed", "e3-1.2.3.data/scripts/e3", "e3-1.2.3.dist-info/METADATA", "e3-1.2.3.dist-info/LICENSE"} {
		if _, ok := have[name]; !ok {
			t.Errorf("the wheel lacks %s", name)
		}
	}
	if n := strings.Count(have["e3/__init__.py"], "\n"); n > 150 {
		t.Errorf("the module has %d lines, want at most 150", n)
	}
}

// python runs a script of testdata in a project, in a virtual environment with the wheel.
type python struct {
	t        *testing.T
	bin, dir string
	packages string // a folder with more packages
}

// installed makes a virtual environment with the wheel, without a network.
func installed(t *testing.T, interpreter string) *python {
	t.Helper()
	program, err := os.ReadFile(built.Program(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	wheel := builtWheel(t, runtime.GOOS+"/"+runtime.GOARCH, program)
	env, dir := t.TempDir(), t.TempDir()
	if out, err := exec.Command(interpreter, "-m", "venv", env).CombinedOutput(); err != nil {
		t.Skipf("needs venv of Python (on Debian: apt-get install python3-venv): %v\n%s", err, out)
	}
	p := &python{t: t, bin: filepath.Join(env, "bin"), dir: dir}
	p.run(filepath.Join(p.bin, "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel)
	return p
}

func (p *python) run(name string, args ...string) string {
	p.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "PATH="+p.bin+":"+os.Getenv("PATH"), "E3_REPO=", "PYTHONPATH="+p.packages, "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestPython installs the wheel as a user does, and reads results of each kind.
func TestPython(t *testing.T) {
	suite.Thorough(t)
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3, 3.9 or later, with venv (on Debian: apt-get install python3-venv)")
	}
	p := installed(t, interpreter)
	p.play()
	if got := p.run("sh", "-c", "command -v e3"); strings.TrimSpace(got) != filepath.Join(p.bin, "e3") {
		t.Errorf("the program e3 is %s, want that of the environment", got)
	}
}

// TestPandas plays the same where a Python has pandas: then tables are DataFrames.
func TestPandas(t *testing.T) {
	suite.Thorough(t)
	interpreter := os.Getenv("E3_TEST_PANDAS")
	if interpreter == "" {
		interpreter = "python3"
	}
	packages, err := exec.Command(interpreter, "-c", "import os, pandas; print(os.path.dirname(os.path.dirname(pandas.__file__)))").Output()
	if err != nil {
		t.Skip("needs a Python with pandas (pip install pandas), or E3_TEST_PANDAS, which names one")
	}
	p := installed(t, interpreter)
	p.packages = strings.TrimSpace(string(packages))
	p.play()
}

// play makes a project and runs testdata/results.py in it, which asserts what it reads.
func (p *python) play() {
	p.t.Helper()
	for _, name := range []string{"e3.yaml", "results.py"} {
		content, err := os.ReadFile(filepath.Join("internal", "release", "testdata", name))
		if err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p.dir, name), content, 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	p.run(filepath.Join(p.bin, "e3"), "init")
	p.run(filepath.Join(p.bin, "e3"), "start", "-f", "e3.yaml")
	if got := p.run(filepath.Join(p.bin, "python"), "-W", "error", "results.py"); !strings.HasSuffix(got, "all is well\n") {
		p.t.Errorf("the script says %q", got)
	}
}
