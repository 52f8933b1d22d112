//go:build linux

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"e3/internal/format/record"
)

const inputsGraph = `
e3: 1
name: inputs
inputs:
  a: {file: a.txt}
  d: {dir: data}
  g: {glob: "src/**/*.txt"}
tasks:
  hold: {in: [a], out: hold.txt, pass_env: [E2E_STATE], run: 'echo go >> "$E2E_STATE/holding"; for i in {1..2000}; do test -e "$E2E_STATE/release" && break; sleep 0.02; done; cp "$a" "$out"'}
  use: {in: [a, d, g, hold], out: use.txt, run: 'cat "$a" "$d"/* "$g"/* > "$out"'}
`

func inputsProject(t testing.TB) *project {
	return newProject(t, map[string]string{
		"e3.yaml": inputsGraph, "a.txt": "alpha\n", "data/one": "one\n", "src/two.txt": "two\n", "state/release": "",
	})
}

// TestBadInputs has inputs that cannot be taken in: the error names them, nothing runs, and
// once the cause is gone it goes on.
func TestBadInputs(t *testing.T) {
	for _, test := range []struct {
		name       string
		spoil, fix func(p *project) error
		code       int
		want       []string
	}{
		{
			"unreadable",
			func(p *project) error { return os.Chmod(p.path("a.txt"), 0) },
			func(p *project) error { return os.Chmod(p.path("a.txt"), 0o644) },
			1, []string{"input a", "a.txt", "permission denied"},
		},
		{
			"unreadable in a directory",
			func(p *project) error { return os.Chmod(p.path("data/one"), 0) },
			func(p *project) error { return os.Chmod(p.path("data/one"), 0o644) },
			1, []string{"input d", "one", "permission denied"},
		},
		{
			"closed directory",
			func(p *project) error { return os.Chmod(p.path("data"), 0) },
			func(p *project) error { return os.Chmod(p.path("data"), 0o755) },
			1, []string{"input d", "data", "permission denied"},
		},
		{
			"vanished",
			func(p *project) error { return os.Rename(p.path("a.txt"), p.path("elsewhere")) },
			func(p *project) error { return os.Rename(p.path("elsewhere"), p.path("a.txt")) },
			2, []string{"input a", "a.txt", "no such file"},
		},
		{
			"directory in place of a file",
			func(p *project) error {
				return errors.Join(os.Remove(p.path("a.txt")), os.Mkdir(p.path("a.txt"), 0o755))
			},
			func(p *project) error {
				return errors.Join(os.Remove(p.path("a.txt")), os.WriteFile(p.path("a.txt"), []byte("alpha\n"), 0o644))
			},
			2, []string{"input a", "a.txt", "a directory"},
		},
		{
			"file in place of a directory",
			func(p *project) error {
				return errors.Join(os.RemoveAll(p.path("data")), os.WriteFile(p.path("data"), nil, 0o644))
			},
			func(p *project) error {
				return errors.Join(os.Remove(p.path("data")), os.Mkdir(p.path("data"), 0o755), os.WriteFile(p.path("data/one"), []byte("one\n"), 0o644))
			},
			2, []string{"input d", "data", "not a directory"},
		},
		{
			"pipe in place of a file", // must not be waited for
			func(p *project) error {
				return errors.Join(os.Remove(p.path("a.txt")), syscall.Mkfifo(p.path("a.txt"), 0o666))
			},
			func(p *project) error {
				return errors.Join(os.Remove(p.path("a.txt")), os.WriteFile(p.path("a.txt"), []byte("alpha\n"), 0o644))
			},
			2, []string{"input a", "a.txt", "pipe"},
		},
		{
			"pipe in a directory",
			func(p *project) error { return syscall.Mkfifo(p.path("data/pipe"), 0o666) },
			func(p *project) error { return os.Remove(p.path("data/pipe")) },
			2, []string{"input d", "pipe"},
		},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "_"), func(t *testing.T) {
			p := inputsProject(t)
			if os.Geteuid() == 0 {
				p.as(nobody) // root may read everything
			}
			for _, round := range []string{"before the first run", "later"} {
				if err := test.spoil(p); err != nil {
					t.Fatal(err)
				}
				marks := len(p.marks("holding"))
				r := p.e3("start", "-f", "e3.yaml")
				if r.code != test.code {
					t.Errorf("%s: exit code %d, want %d\n%s", round, r.code, test.code, r.text())
				}
				for _, want := range test.want {
					if !strings.Contains(r.stderr, want) {
						t.Errorf("%s: the error does not say %q:\n%s", round, want, r.stderr)
					}
				}
				if now := len(p.marks("holding")); now != marks {
					t.Errorf("%s: a task ran", round)
				}
				if err := test.fix(p); err != nil {
					t.Fatal(err)
				}
				if r := p.e3("start", "-f", "e3.yaml"); r.code != 0 {
					t.Fatalf("%s: after the cause was gone: exit code %d\n%s", round, r.code, r.text())
				}
				check(t, p.repository())
			}
		})
	}
}

// TestInputVanishes removes the inputs while a run uses them: their content is stored, so the
// run does not care; the next start says what is missing.
func TestInputVanishes(t *testing.T) {
	p := inputsProject(t)
	if err := os.Remove(p.path("state/release")); err != nil {
		t.Fatal(err)
	}
	x := p.spawn("start", "-f", "e3.yaml")
	eventually(t, patience, "the first task", func() string {
		if len(p.marks("holding")) == 0 {
			return "does not run"
		}
		return ""
	})
	for _, name := range []string{"a.txt", "data", "src"} {
		if err := os.RemoveAll(p.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	p.write("state/release", "")
	if r := x.wait(); r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.text())
	}
	if got := p.output("use"); got != "alpha\none\ntwo\n" {
		t.Errorf("output: %q", got)
	}
	r := p.e3("start", "-f", "e3.yaml")
	if r.code != 2 || !strings.Contains(r.stderr, "a.txt") || !strings.Contains(r.stderr, "data") || !strings.Contains(r.stderr, "no such file") {
		t.Errorf("exit code %d, want 2 and the names of what is missing\n%s", r.code, r.text())
	}
	check(t, p.repository())
}

// A scribbler writes a file of its size over and over: each version is one byte repeated, so
// that a mixture shows.
type scribbler struct {
	stop chan struct{}
	done sync.WaitGroup
	err  error
}

const (
	scribbleSize = 64 << 20
	appendSize   = 64 << 10
)

// scribble starts one. The pauses are of a length that lets some readings succeed.
func scribble(path string, grow bool, rnd *rand.Rand) *scribbler {
	s := &scribbler{stop: make(chan struct{})}
	s.done.Go(func() {
		for version := byte(1); s.err == nil; version++ {
			if grow {
				s.err = appendTo(path, bytes.Repeat([]byte{version}, appendSize))
			} else {
				s.err = overwrite(path, version)
			}
			select {
			case <-s.stop:
				return
			case <-time.After(time.Duration(rnd.Int64N(int64(400 * time.Millisecond)))):
			}
		}
	})
	return s
}

func (s *scribbler) end() error {
	close(s.stop)
	s.done.Wait()
	return s.err
}

// overwrite writes a version in place, a piece at a time.
func overwrite(path string, version byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	piece := bytes.Repeat([]byte{version}, 1<<20)
	for off := int64(0); off < scribbleSize; off += int64(len(piece)) {
		if _, err := f.WriteAt(piece, off); err != nil {
			return err
		}
	}
	return nil
}

func appendTo(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

const editedGraph = `
e3: 1
name: edited
inputs:
  big: {file: big.bin}
tasks:
  small: {out: small.txt, run: 'echo small > "$out"'}
`

// TestInputEditedDuringIntake edits a large input while e3 takes it in. What is stored is a
// version that the file once was, under its own hash, or e3 refuses; when the file has come to
// rest the workspace holds what it holds.
func TestInputEditedDuringIntake(t *testing.T) {
	for _, grow := range []bool{false, true} {
		t.Run(map[bool]string{false: "rewritten", true: "appended"}[grow], func(t *testing.T) {
			p := newProject(t, map[string]string{"e3.yaml": editedGraph, "big.bin": ""})
			if err := overwrite(p.path("big.bin"), 0); err != nil {
				t.Fatal(err)
			}
			s := scribble(p.path("big.bin"), grow, random(t))
			rounds, refused := 8, 0
			if testing.Short() {
				rounds = 2
			}
			for range rounds {
				r := p.e3("start", "-f", "e3.yaml")
				switch {
				case r.code == 0:
					p.isOneVersion(grow)
				case r.code == 1 && strings.Contains(r.stderr, "input big") && strings.Contains(r.stderr, "changed while it was read"):
					refused++
				default:
					t.Errorf("exit code %d\n%s", r.code, r.text())
				}
			}
			if err := s.end(); err != nil {
				t.Fatal(err)
			}
			t.Logf("refused %d of %d times", refused, rounds)
			p.start(0)
			f, err := os.Open(p.path("big.bin"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			h := sha256.New()
			if _, err := io.Copy(h, f); err != nil {
				t.Fatal(err)
			}
			if got, want := p.input("edited", "big").Hash, hex.EncodeToString(h.Sum(nil)); got != want {
				t.Errorf("the workspace holds %s, the file %s", got, want)
			}
			check(t, p.repository())
		})
	}
}

// input is a dataset of the workspace's inputs.
func (p *project) input(ws, name string) record.Leaf {
	p.t.Helper()
	r := p.open()
	defer r.Close()
	s, err := r.Workspaces.State(context.Background(), ws)
	if err != nil {
		p.t.Fatal(err)
	}
	root, err := record.DecodeNode([]byte(p.object(s.RootHash)))
	if err != nil {
		p.t.Fatal(err)
	}
	inputs, _ := root.Get("inputs")
	node, err := record.DecodeNode([]byte(p.object(inputs.Hash)))
	if err != nil {
		p.t.Fatal(err)
	}
	leaf, _ := node.Get(name)
	return leaf
}

// isOneVersion demands that what the workspace holds of big is a version that the file was.
func (p *project) isOneVersion(grow bool) {
	p.t.Helper()
	leaf := p.input("edited", "big")
	data := p.object(leaf.Hash)
	if int64(len(data)) != leaf.Size {
		p.t.Errorf("the workspace says %d bytes, the object has %d", leaf.Size, len(data))
	}
	if grow {
		if len(data)%appendSize != 0 {
			p.t.Errorf("%d bytes were stored: a part of an append", len(data))
		}
		return
	}
	if n := strings.Count(data, data[:1]); n != len(data) || n != scribbleSize {
		p.t.Errorf("a mixture of versions was stored: %d of %d bytes are %d", n, len(data), data[0])
	}
}
