//go:build amd64 || arm64

package runner_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// realPrograms are what people's tasks are made of. Files that hold times or process ids belong into $TMPDIR, which is not compared.
var realPrograms = map[string]string{
	"git": `cd "$TMPDIR"; export GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z
		git init -q r; cd r; git config user.email a@b; git config user.name n; echo x > f; git add f; git commit -qm m
		git clone -q . ../copy; git -C ../copy log --format=%H; git archive HEAD | sha256sum; git status --short; git fsck`,
	"tar":     `tar --sort=name --mtime=@0 -cf t.tar dir; tar xf t.tar -C "$TMPDIR"; tar tvf t.tar; ln dir/a dir/l; tar --sort=name --mtime=@0 -c dir | sha256sum; tar xzpf <(tar cz dir)`,
	"make":    "printf 'all: a b\\na:\\n\\techo a > a\\nb: a\\n\\tcp a b\\n' > Makefile; make -j4 --output-sync; make",
	"gcc":     `printf '#include <stdio.h>\n#include <math.h>\n#include <pthread.h>\nint main(){printf("%%.3f\\n", sin(1));}' > a.c; gcc -O2 -pthread -o "$TMPDIR/p" a.c -lm; "$TMPDIR/p"; gcc -print-file-name=libc.so.6; gcc -c a.c; gcc -E a.c | grep -c .`,
	"linking": `echo 'int f(){return 3;}' > l.c; echo 'int f();int main(){return f();}' > m.c; gcc -shared -fPIC -o libl.so l.c; gcc m.c -L. -ll -Wl,-rpath,'$ORIGIN' -o m; ./m || echo $?`,
	"awk":     `awk 'BEGIN{print ENVIRON["LANG"]; "date -d @0 +%Z" | getline z; print z; printf "%.2f %s\n", 3.14159, toupper("ab")}'`,
	"perl":    `perl -MPOSIX -MFile::Temp -MSocket -MEncode -e 'print setlocale(LC_ALL, ""), "\n"; my $f = File::Temp->new; print -e $f->filename ? 1 : 0; print scalar localtime(0), (getpwuid($<))[0,2,3], "\n"'`,
	"sqlite": `cd "$TMPDIR"; sqlite3 x.db 'create table t(a); insert into t values(1),(2); pragma journal_mode=wal; select sum(a) from t; vacuum;'
		echo '.mode csv' > "$HOME/.sqliterc"; sqlite3 x.db 'create index i on t(a); select * from t order by a desc; pragma integrity_check'`,
	"venv":       `cd "$TMPDIR"; python3 -m venv --without-pip v; v/bin/python -c 'import sys, ssl, sqlite3, ctypes.util; print(sys.prefix != sys.base_prefix, ctypes.util.find_library("c"))'`,
	"import":     `mkdir m; echo x=1 > m/__init__.py; python3 -B -c 'import m; print(m.x)'`,
	"python":     `python3 -c 'import pwd, os, getpass, zoneinfo, datetime as d, tempfile, uuid, multiprocessing as m; print(pwd.getpwuid(os.getuid())[:4], getpass.getuser(), d.datetime(2020, 7, 1, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo")), tempfile.mkdtemp() > "", m.Semaphore(2).acquire())'`,
	"shared":     `python3 -c 'from multiprocessing import shared_memory as s; m = s.SharedMemory(create=True, size=1 << 20); m.buf[0] = 7; print(m.buf[0]); m.close(); m.unlink()'; echo hi > /dev/shm/e3-$$; cat /dev/shm/e3-$$; rm /dev/shm/e3-$$; stat -c %a /dev/shm`,
	"sort":       `seq 20000 | sort -R --random-source=/usr/bin/env -S 100K -T "$TMPDIR" | sort -n -S 100K --parallel=4 | md5sum; printf 'b\nA\na\nB\n' | sort; ls "$TMPDIR"`,
	"ssh-keygen": `cd "$TMPDIR"; ssh-keygen -q -t ed25519 -N '' -f k; ssh-keygen -y -f k | cut -d' ' -f1; ssh-keygen -lf k.pub | cut -d' ' -f1,4; stat -c %a k`,
	"script":     `script -qec 'tty | cut -c1-9; stty size; echo x' /dev/null < /dev/null`,
	"stty":       `python3 -c 'import pty; pty.spawn(["stty", "-a"])' | grep -c speed`,
	"locale":     `locale; locale -a | head -3; LC_ALL=C.UTF-8 date -d @0 +%A; locale charmap; TZ=Europe/Berlin date -d @1700000000; cat /etc/timezone || true`,
	"home":       `mkdir -p ~/.config/x; echo 1 > ~/.config/x/y; cat ~/.config/x/y; [ "$HOME" = ~ ] && echo same; ls -A ~ | grep -c .config`,
	"users":      `id -un; id -gn; whoami; getent services http; getent protocols tcp; getent passwd "$(id -u)" | cut -d: -f1,3,4; [ -O . ] && echo mine`,
	"bash":       `diff <(seq 3) <(seq 4) || true; coproc C { cat; }; echo x >&${C[1]}; read -r l <&${C[0]}; echo "$l"; exec {fd}>f; echo y >&$fd; cat f; cat <<< here; echo x > /dev/stdout; echo y > /dev/fd/1; tty || true`,
	"sockets":    `python3 -c 'import socket; u = socket.socket(socket.AF_UNIX); u.bind("s"); s = socket.create_server(("localhost", 0)); print(socket.gethostbyname("localhost"))'; rm s`,
	"modes":      `touch f; chmod 600 f; stat -c %a f; install -m 755 f g; cp -p f h; cp -a g i; stat -c '%a %n' g h i; chown "$(id -u):$(id -g)" f; ln f k; stat -c %h k; umask 077; touch l`,
	"sparse":     `truncate -s 1G f; stat -c '%s %b' f; fallocate -l 1M g; cp --sparse=always f h; rm f h; cp --reflink=auto g i`,
	"processes":  `flock l true; timeout 0.1 sleep 5 || echo $?; nice -n 5 true; setsid true; nohup true; stdbuf -oL echo a; ps aux > /dev/null; pgrep -x no-such || true; free > /dev/null; cat /proc/sys/kernel/ostype; getconf PAGESIZE; lscpu > /dev/null; df . > /dev/null; df > /dev/null`,
	"openssl":    `cd "$TMPDIR"; openssl version; echo x | openssl dgst -sha256; openssl req -x509 -newkey rsa:1024 -nodes -keyout k -out c -subj /CN=x 2>/dev/null; openssl x509 -in c -noout -subject; openssl rand -hex 4 | wc -c`,
	"mktemp":     `f=$(mktemp); echo 1 > "$f"; mv "$f" here; d=$(mktemp -d -p /tmp); mv here "$d/"; mv "$d" there; rm -r there; mktemp -p /var/tmp | cut -d/ -f1-3`,
	"compress":   `seq 1000 > a; gzip -nk a; bzip2 -k a; xz -k a; split -n 3 a; cat xa? | cmp - a; md5sum a.*`,
	"editing":    `seq 5 > a; sed -i.bak 2d a; diff -u --label a --label b a.bak a > p || true; cp a.bak b; patch -s b < p; cmp a b; rm p; m4 <<< 'eval(1+2)'; bc <<< 2^70; vim -es -u /usr/share/vim/vimrc -c wq a; ex -sc '1d|wq' a`,
	"documents":  `file in.txt /dev/null; printf '.TH A 1\n.SH NAME\nx\n' | groff -man -Tascii | head -3; df -h . | wc -l`,
	"find":       `mkdir -p x/b; touch -d @1 x/b/c; find x -name c ! -newer in.txt; xargs -P4 -n1 echo < words.txt | sort; realpath --relative-to=. x; cpio -o < <(find dir -type f | sort) 2>/dev/null | wc -c`,
	"strace":     `strace -f -o "$TMPDIR/t" true && grep -c execve "$TMPDIR/t"`,
	"gdb":        `gdb -batch -ex run -ex 'info program' --args true 2>&1 | grep -c exited`,
	"java":       `cd "$TMPDIR"; echo 'public class A { public static void main(String[] a) throws Exception { System.out.println(java.nio.file.Files.getFileStore(java.nio.file.Path.of(".")).type() != null); System.out.println(java.util.TimeZone.getDefault().getID()); } }' > A.java; java A.java`,
	"node":       `node -e 'const os = require("os"); console.log(os.userInfo().username, os.cpus().length > 0, new Intl.NumberFormat("de").format(1e6)); new (require("worker_threads").Worker)("console.log(2)", {eval: true})'`,
	"R":          `R --vanilla -s -e 'cat(sum(1:10), Sys.timezone(), "\n"); f <- tempfile(); saveRDS(1, f); cat(readRDS(f))'`,
}

// TestProgramsAgree: real programs print and write the same in a closed room as in the open. A script is played without the
// programs that are not installed, and its test is then skipped by their names.
func TestProgramsAgree(t *testing.T) {
	s := newSupervisor(t)
	for name, script := range realPrograms {
		if testing.Short() && slices.Contains(strings.Fields("venv java R node gdb strace openssl"), name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			report := filepath.Join(t.TempDir(), "absent")
			script := namingAbsent(report) + script
			want, got := played(t, s, shell(t, script, t.TempDir())), played(t, s, inRoom(t, shell(t, script, "")))
			if want != got {
				t.Errorf("%s\nin the open:\n%s\nin a closed room:\n%s", script, want, got)
			}
			if absent := absentPrograms(t, report); len(absent) > 0 && !t.Failed() {
				t.Skipf("played without what is not installed: install %s", strings.Join(absent, ", "))
			}
		})
	}
}

// namingAbsent is the head of a script that appends the names of programs that bash does not find to a file, which only
// exists in the open.
func namingAbsent(report string) string {
	return fmt.Sprintf(`command_not_found_handle() { { echo "$1" >> '%s'; } 2> /dev/null || true; echo "$1: command not found" >&2; return 127; }`+"\n", report)
}

func absentPrograms(t *testing.T, report string) []string {
	t.Helper()
	text, err := os.ReadFile(report)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	names := strings.Fields(string(text))
	slices.Sort(names)
	return slices.Compact(names)
}

// TestAbsentIsNamed: a program that is not installed does not go unnoticed, wherever its message goes.
func TestAbsentIsNamed(t *testing.T) {
	report := filepath.Join(t.TempDir(), "absent")
	script := namingAbsent(report) + "no-such-a 2> /dev/null | cat; (no-such-b || true) 2>&1; true"
	played(t, newSupervisor(t), shell(t, script, t.TempDir()))
	if got := absentPrograms(t, report); !slices.Equal(got, []string{"no-such-a", "no-such-b"}) {
		t.Errorf("absent: %q", got)
	}
}
