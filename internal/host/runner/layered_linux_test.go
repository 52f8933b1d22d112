//go:build amd64 || arm64

package runner_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/host/room"
	"e3/internal/host/runner"
)

// look runs a script, and then describes every file that it sees.
const look = `bash -euo pipefail -c "$SCRIPT"; echo "ended with $?"
	find . -mindepth 1 \( -type f -printf '%P %M %n %s\n' -o -printf '%P %M\n' \) | LC_ALL=C sort
	find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum`

// seen plays a script on some files, which lie in a folder, and returns what it prints and sees.
func seen(t *testing.T, s *runner.Supervisor, script string, spec runner.Spec, inputs string) string {
	t.Helper()
	for name, text := range map[string]string{
		"in.txt": strings.Repeat("alpha 1\nbeta 22\ngamma 333\n", 9), "words.txt": "one two three\nfour\n", "dir/a": "a\n", "dir/b": "b\n",
	} {
		path := filepath.Join(inputs, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tmp := room.Temp
	if spec.Closed == nil {
		tmp = t.TempDir()
	}
	spec.Env = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "TZ=UTC", "TMPDIR=" + tmp, "HOME=" + tmp, "SCRIPT=" + script, spec.Marker}
	return strings.ReplaceAll(output(t, s, spec), " SCRIPT="+script, "")
}

// TestLayersAgree: programs and pipelines do the same with inputs that lie below the folder of their command as in the open with
// inputs in it.
func TestLayersAgree(t *testing.T) {
	s := newSupervisor(t)
	compare := func(t *testing.T, name, script string) {
		t.Helper()
		open := t.TempDir()
		want := seen(t, s, script, shell(t, look, open), open)
		spec := inRoom(t, shell(t, look, ""))
		below := filepath.Join(spec.Closed.Base, "below")
		spec.Closed.Lower, spec.Closed.Scratch = []string{below}, filepath.Join(spec.Closed.Base, "scratch")
		if err := os.Mkdir(spec.Closed.Scratch, 0o700); err != nil {
			t.Fatal(err)
		}
		if got := seen(t, s, script, spec, filepath.Join(below, "work")); want != got {
			t.Errorf("%s\n%s\nin the open:\n%s\nin a closed room:\n%s", name, script, want, got)
		}
	}
	for name, script := range realPrograms {
		// Some do nothing with inputs. A new hard link to an input has another inode number, by which tar knows hard links.
		if !testing.Short() && !slices.Contains(strings.Fields("venv java R node gdb strace tar"), name) {
			compare(t, name, script)
		}
	}
	for name, script := range map[string]string{
		"in place":   `sed -i s/beta/BETA/ in.txt; perl -pi -e 's/o/0/' words.txt; printf x 1<>dir/a; truncate -s 1 dir/b; cat dir/*`,
		"names":      `mv in.txt dir/in; ln dir/a hard; stat -c %h hard dir/a; mv words.txt in.txt; rm dir/b; mv dir/in dir/b; cp -l dir/a dir/c`,
		"folders":    `mv dir other; mkdir dir; touch dir/new; rm -r other; mkdir -p deep/er; mv deep dir/deep; rmdir dir/deep/er`,
		"compressed": `gzip in.txt; gunzip in.txt.gz; bzip2 words.txt; xz dir/a; ls dir`,
		"modes":      `chmod 600 in.txt; chmod 700 dir; touch -d @7 words.txt; stat -c '%a %n' in.txt dir; stat -c %Y words.txt; test -w dir/a && echo w`,
		"executed":   `printf '#!/bin/sh\necho run\n' > in.txt; chmod +x in.txt; ./in.txt; exec 3<>dir/a; echo more >&3; cat dir/a`,
		"locks":      `flock in.txt cat words.txt; python3 -c 'import fcntl, mmap; f = open("in.txt", "r+b"); fcntl.lockf(f, fcntl.LOCK_EX); m = mmap.mmap(f.fileno(), 0); m[0:1] = b"X"; m.flush()'; head -1 in.txt`,
		"exchanged":  `python3 -c 'import os; os.replace("in.txt", "words.txt"); os.rename("dir/a", "dir/b"); os.symlink("dir/b", "in.txt"); print(open("in.txt").read(), os.stat("words.txt").st_nlink)'`,
	} {
		compare(t, name, script)
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for range rounds {
		compare(t, fmt.Sprint("seed ", seed), pipeline(r))
	}
}
