//go:build amd64 || arm64

package runner_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"e3/internal/host/room"
	"e3/internal/host/runner"
)

// Parts of random pipelines. Sources begin them, filters follow, and effects make files.
var (
	sources = []string{
		"cat in.txt", "tac in.txt", "seq 1 500", "find . -type f ! -name copy.txt | sort", "tar -c dir | tar -t | sort", "cat dir/*",
		"python3 -c 'import sys, os; print(sorted(os.listdir(\".\"))); print(sys.byteorder)'", "printf '%s\\n' */*",
		"perl -ne 'print scalar reverse' in.txt", "awk 'BEGIN { srand(7); for (i = 0; i < 99; i++) print int(rand() * 1000) }'",
		"env | grep -v -e '^PWD=' -e '^E3_' -e '^HOME=' -e '^TMPDIR=' -e '^OLDPWD=' | sort", "ls -l dir | cut -c1-10", "id -un", "id -u", "umask",
		"xargs -P 3 -n 1 echo < words.txt | sort", "diff in.txt words.txt || true", "ulimit -n", "cat missing.txt 2>&1 || true",
		"(cd dir && sha256sum *)", "dd if=/dev/zero bs=1k count=3 2>/dev/null | od", "stat -c '%a %s %F' in.txt dir", "test -w . && echo yes",
		"getent passwd root | cut -d: -f1,3", "getent hosts localhost | wc -l", "date -d @0", "locale | head -1", "nproc",
	}
	filters = []string{
		"sort", "sort -rn", "uniq -c", "tr a-z A-Z", "sed 's/[aeiou]/./g'", "grep -v e", "head -20", "tail -5", "cut -c1-12", "wc",
		"awk '{ print NR, $1 }'", "rev", "gzip -n | gunzip", "base64", "md5sum", "tee copy.txt", "python3 -c 'import sys; print(len(sys.stdin.read()))'",
		"bash -c 'while read -r l; do echo \"<$l>\"; done'", "paste - -", "nl", "perl -pe 's/\\d+/$&*2/ge'", "cat -A", "xz | xz -d", "sort -u -T \"$TMPDIR\"",
	}
	effects = []string{
		"mkdir -p made/deep; echo x > made/deep/x", "ln -s in.txt link; cat link", "cp -r dir dir2; rm dir2/a", "chmod 755 words.txt",
		"f=$(mktemp); echo t > \"$f\"; mv \"$f\" moved", "echo more >> in.txt", "(echo bg > bg.txt) & wait", "mkfifo p; (echo f > p &); cat p; rm p",
		"python3 -c 'import multiprocessing as m; q = m.Pool(2); print(q.map(abs, range(-3, 3)))'", "touch -d @1000 old; stat -c %Y old",
		"python3 -c 'import socket as s; a = s.socket(); a.bind((\"127.0.0.1\", 0)); a.listen(); b = s.create_connection(a.getsockname()); c = a.accept()[0]; b.send(b\"hi\"); print(c.recv(9))'",
		"ln in.txt hard; stat -c %h hard", "truncate -s 1M sparse", "echo a | (setsid cat)", "exit 3", "false", "kill -TERM $$", "script -qc 'echo tty' /dev/null",
	}
)

// pipeline draws a script.
func pipeline(r *rand.Rand) string {
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	var script strings.Builder
	for range 1 + r.IntN(3) {
		script.WriteString(pick(sources))
		for range r.IntN(4) {
			script.WriteString(" | " + pick(filters))
		}
		script.WriteString("\n")
		if r.IntN(2) == 0 {
			script.WriteString(pick(effects) + "\n")
		}
	}
	return script.String()
}

// TestRoomsAgree: pipelines of real programs print and write the same, and end in the same way, in a closed room and in
// the open.
func TestRoomsAgree(t *testing.T) {
	rounds := 80
	if testing.Short() {
		rounds = 25
	}
	seed := rand.Uint64()
	if text := os.Getenv("E3_ROOM_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	s := newSupervisor(t)
	r := rand.New(rand.NewPCG(seed, 1))
	for range rounds {
		script := pipeline(r)
		open, closed := shell(t, script, t.TempDir()), inRoom(t, shell(t, script, ""))
		want, got := played(t, s, open), played(t, s, closed)
		if want != got {
			t.Fatalf("E3_ROOM_SEED=%d\n%s\nin the open:\n%s\nin a closed room:\n%s", seed, script, want, got)
		}
	}
}

// played runs a spec on some files and describes everything that it did.
func played(t *testing.T, s *runner.Supervisor, spec runner.Spec) string {
	t.Helper()
	for name, text := range map[string]string{
		"in.txt": strings.Repeat("alpha 1\nbeta 22\ngamma 333\n", 9), "words.txt": "one two three\nfour\n", "dir/a": "a\n", "dir/b": "b\n",
	} {
		path := filepath.Join(spec.Dir, name)
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
	spec.Env = []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "TZ=UTC", "TMPDIR=" + tmp, "HOME=" + tmp, spec.Marker}
	out, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	spec.Stdout, spec.Stderr = out, out
	result, err := s.Run(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	did := fmt.Sprintf("exit %d signal %v\n%s", result.ExitCode, result.Signal, text)
	err = filepath.WalkDir(spec.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == spec.Dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		did += fmt.Sprintf("%s %v", strings.TrimPrefix(path, spec.Dir), info.Mode())
		if d.Type().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			did += fmt.Sprintf(" %d bytes %x", len(content), sha256.Sum256(content))
		}
		did += "\n"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return did
}
