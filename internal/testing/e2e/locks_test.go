//go:build linux

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"e3/internal/format/record"
	"e3/internal/repo"
	"e3/refstore"
)

// holderVariable has this program hold locks on all that it can open below a folder.
const holderVariable = "E3_E2E_HOLDER"

// holdEverything opens all files and folders below a folder that this process can open, in each way that it can, and takes on each
// all kinds of locks. It does the same with what appears later, until it is killed. After the first round it tells how many it has
// opened to read, and how many to write.
func holdEverything(root string) {
	var opened [2]int
	held := map[string]bool{}
	for first := true; ; first = false {
		filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if d == nil || held[path] {
				return nil
			}
			if d.IsDir() && err != nil {
				return fs.SkipDir
			}
			for i, flags := range []int{unix.O_RDONLY, unix.O_RDWR} {
				f, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
				if err != nil {
					continue
				}
				held[path] = true
				opened[i]++
				unix.Flock(f, unix.LOCK_EX|unix.LOCK_NB) // it may be taken: the next kind, or the next file
				for _, how := range []int{unix.F_OFD_SETLK, unix.F_SETLK} {
					for _, typ := range []int16{unix.F_RDLCK, unix.F_WRLCK} {
						unix.FcntlFlock(uintptr(f), how, &unix.Flock_t{Type: typ})
					}
				}
			}
			return nil
		})
		if first {
			fmt.Println(opened[0], opened[1])
		}
		time.Sleep(time.Millisecond)
	}
}

// TestReadersBlockNobody has a user who may only read a repository hold locks on all that he can open in it: the commands of its
// users go on as if he were not there.
func TestReadersBlockNobody(t *testing.T) {
	const limit = 20 * time.Second // of a command; without another user it takes less than one
	p, as := newGroupProject(t, map[string]string{"a.txt": "alpha\n", "b.txt": "beta\n", "e3.yaml": `
e3: 1
name: read
inputs:
  a: {file: a.txt}
tasks:
  one: {in: [a], out: one.txt, run: 'echo log; cp "$a" "$out"'}
  two: {in: {x: one}, out: tree/, run: 'for i in 1 2 3; do cp "$x" "$out/$i"; done'}
`, "slow.yaml": `
e3: 1
name: slow
tasks:
  slow: {out: o, pass_env: [E2E_STATE], run: 'touch "$E2E_STATE/slow"; sleep 1000'}
`})
	e3 := func(args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		cmd := as(ann, program, args...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stuck := context.AfterFunc(ctx, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		err := cmd.Wait()
		stuck()
		if err != nil || strings.Contains(said.String(), "has locked") {
			t.Errorf("e3 %q: %v\n%s", args, err, tail(said.String()))
		}
	}
	e3("init", "--shared=world")
	e3("start", "-f", "e3.yaml")
	e3("package", "build", ".", "e3.yaml")
	e3("start", ".", "read", "--force")
	e3("workspace", "export", ".", "read", "read.zip")
	e3("gc", ".")

	holder := as(eve, "/proc/self/exe")
	holder.Env = append(holder.Env, holderVariable+"="+p.repository())
	holder.Stderr = os.Stderr
	out, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		holder.Process.Kill()
		holder.Wait()
	}()
	var toRead, toWrite int
	if _, err := fmt.Fscan(out, &toRead, &toWrite); err != nil || toRead < 50 || toWrite > 0 {
		t.Fatalf("another user opens %d files and folders to read and %d to write, %v; want many and none", toRead, toWrite, err)
	}
	for _, args := range [][]string{
		{"start", ".", "read", "--force"}, {"start", "-f", "e3.yaml"}, {"workspace", "create", ".", "w"}, {"workspace", "deploy", ".", "w", "read"},
		{"set", ".", "w.a", "@b.txt"}, {"start", ".", "w"}, {"pin", "add", ".", "w.one"}, {"settings", ".", "events-retention", "5d"},
		{"workspace", "import", ".", "read.zip", "there"}, {"start", ".", "there"}, {"prune", ".", "--keep-last", "1"},
		{"workspace", "remove", ".", "w"}, {"gc", "."}, {"verify", ".", "--repair"}, {"status", ".", "read"},
	} {
		e3(args...)
	}
	if t.Failed() {
		return
	}
	worker := as(ann, program, "worker", ".", "--idle", "1s")
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	e3("start", ".", "there", "--force", "--workers")
	if err := worker.Wait(); err != nil {
		t.Errorf("a worker: %v", err)
	}
	slow := as(ann, program, "start", "-f", "slow.yaml")
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "slow runs", func() string {
		if _, err := os.Lstat(p.path("state/slow")); err != nil {
			return err.Error()
		}
		return ""
	})
	e3("cancel", ".", "slow")
	if slow.Wait(); slow.ProcessState.ExitCode() != 130 {
		t.Errorf("a start that was cancelled: exit code %d, want 130", slow.ProcessState.ExitCode())
	}
	e3("gc", ".")
}

// crowdOfAGroup is how many commands two members of a group have under way.
const crowdOfAGroup = 20

// TestCrowdOfAGroup has twenty processes of two members of a group at work in one repository, all the time: none ends but as it
// should, or because another has what it needs. Each begins and ends a session, and sweeps those of others.
func TestCrowdOfAGroup(t *testing.T) {
	commands := 780
	if testing.Short() {
		commands = 80
	}
	p, as := newGroupProject(t, map[string]string{"a.txt": "alpha\n", "e3.yaml": `
e3: 1
name: read
inputs:
  a: {file: a.txt}
tasks:
  one: {in: [a], out: one.txt, run: 'echo log; cp "$a" "$out"'}
  two: {in: {x: one}, out: tree/, run: 'for i in 1 2 3; do cp "$x" "$out/$i"; done'}
`})
	root := p.repository() // which is named, so it need not be trusted
	for _, args := range [][]string{{"init", "--shared"}, {"start", "-f", "e3.yaml"}, {"package", "build", root, "e3.yaml"}} {
		if out, err := as(ann, program, args...).CombinedOutput(); err != nil {
			t.Fatalf("e3 %q: %v\n%s", args, err, out)
		}
	}
	rnd := random(t)
	turns := make(chan uint64, commands)
	for range commands {
		turns <- rnd.Uint64()
	}
	close(turns)
	var mu sync.Mutex
	counts := map[string]int{}
	var all sync.WaitGroup
	for i := range crowdOfAGroup {
		all.Go(func() {
			uid, own, made := []int{ann, bob}[i%2], fmt.Sprint("w", i), 0
			for seed := range turns {
				var args []string
				busy := false // another process may have what it needs
				switch rand.New(rand.NewPCG(seed, 0)).IntN(6) {
				case 0:
					args, busy = []string{"start", root, "read"}, true
				case 1:
					args = []string{"status", root, "read"}
				case 2:
					args = []string{"list", root}
				case 3:
					args, busy = []string{"gc", root}, true
				default: // a workspace of its own is made, filled, run and removed
					args = [][]string{{"workspace", "create", root, own}, {"workspace", "deploy", root, own, "read"}, {"start", root, own}, {"workspace", "remove", root, own}}[made]
					made = (made + 1) % 4
				}
				cmd := as(uid, program, args...)
				stuck := time.AfterFunc(patience, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT) })
				out, _ := cmd.CombinedOutput()
				stuck.Stop()
				code := cmd.ProcessState.ExitCode()
				mu.Lock()
				counts[fmt.Sprint(args[0], " ", code)]++
				mu.Unlock()
				if code != 0 && (code != 11 || !busy) {
					t.Errorf("user %d: e3 %q: exit code %d\n%s", uid, args, code, tail(string(out)))
				}
			}
		})
	}
	all.Wait()
	t.Logf("%v", counts)
	for _, uid := range []int{ann, bob} {
		if out, err := as(uid, program, "gc", root).CombinedOutput(); err != nil {
			t.Errorf("user %d: e3 gc: %v\n%s", uid, err, out)
		}
	}
	if left, err := leftovers(root); err != nil || len(left) > 0 {
		t.Errorf("tmp holds %v, %v", left, err)
	}
	check(t, root)
}

// TestWaitsForLocks has this process, or another start, hold each kind of lock that a command may wait for. The command says after a
// second for whom it waits, ends at SIGINT, and leaves nothing behind.
func TestWaitsForLocks(t *testing.T) {
	lock := func(t *testing.T, path string) (release func()) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() { f.Close() }
	}
	// session is one that began before the machine was started, and that another process sweeps.
	// mender has the lock of a sweeper that mends what a loss of power may have damaged, as a session of another boot shows.
	mender := func(t *testing.T, store string) (release func()) {
		t.Helper()
		path := filepath.Join(store, "locks", "named", "mend.lock")
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		for name, text := range map[string]string{path: "", filepath.Join(store, "tmp", "session-1-00000001.lock"): repo.Host() + " another-boot"} {
			if err == nil {
				err = os.WriteFile(name, []byte(text), 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return lock(t, path)
	}
	claims := func(t *testing.T, p *project) (release func()) {
		t.Helper()
		f, err := os.OpenFile(p.path(".e3/locks/claims"), os.O_RDWR, 0)
		if err == nil {
			err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		}
		if err != nil {
			t.Fatal(err)
		}
		return func() { f.Close() }
	}
	me := fmt.Sprintf("which process %d (", os.Getpid())
	for _, c := range []struct {
		name string
		args []string
		hold func(t *testing.T, p *project) (release func())
		says []string
	}{
		{"records", []string{"start", ".", "read", "--force"}, func(t *testing.T, p *project) func() {
			var all []func()
			for i := range 256 {
				all = append(all, lock(t, p.path(fmt.Sprintf(".e3/locks/records/%02X", i))))
			}
			return func() {
				for _, release := range all {
					release()
				}
			}
		}, []string{"/locks/records/", me}},
		{"objects", []string{"start", ".", "read", "--force"}, func(t *testing.T, p *project) func() {
			var all []func()
			for i := range 16 {
				all = append(all, lock(t, p.path(fmt.Sprintf(".e3/objects/lock-%x", i))))
			}
			damaged, err := filepath.Glob(p.path(".e3/objects/??/*"))
			if err != nil || len(damaged) == 0 {
				t.Fatalf("objects: %q, %v", damaged, err)
			}
			for _, path := range damaged { // so the output is stored in the place of another file
				if text, err := os.ReadFile(path); err == nil && string(text) == "ALPHA\n" {
					if err := errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("gamma, delta\n"), 0o600)); err != nil {
						t.Fatal(err)
					}
				}
			}
			return func() {
				for _, release := range all {
					release()
				}
			}
		}, []string{"/objects/lock-", me}},
		{"a sweeper", []string{"start", ".", "read"}, func(t *testing.T, p *project) func() {
			return mender(t, p.path(".e3"))
		}, []string{"/locks/named/mend.lock", me}},
		{"a sweeper of commands", []string{"start", ".", "read"}, func(t *testing.T, p *project) func() {
			scratch, err := filepath.Glob(p.path("state/home/.cache/e3/*/scratch"))
			if err != nil || len(scratch) != 1 {
				t.Fatalf("scratch folders: %q, %v", scratch, err)
			}
			return mender(t, scratch[0])
		}, []string{"/locks/named/mend.lock", me}},
		{"an execution", []string{"start", ".", "read"}, func(t *testing.T, p *project) func() {
			p.write("a.txt", "beta\n")
			p.write("state/wait", "")
			other := p.spawn("start", "-f", "e3.yaml", ".", "other")
			eventually(t, patience, "the command runs, and that is on record", func() string {
				return map[bool]string{false: "none does"}[strings.Contains(p.e3("status", ".", "other").stdout, "running")]
			})
			return func() {
				os.Remove(p.path("state/wait"))
				if r := other.wait(); r.code != 0 {
					t.Errorf("the other start: exit code %d\n%s", r.code, r.text())
				}
			}
		}, []string{"one: tester@", " executes it, in process "}},
		{"an import", []string{"workspace", "import", ".", "read.zip", "there"}, func(t *testing.T, p *project) func() {
			p.e3("workspace", "export", ".", "read", "read.zip")
			r, err := repo.Open(t.Context(), p.repository(), repo.Options{})
			if err != nil {
				t.Fatal(err)
			}
			state := record.LockState{Holder: `.process (pid=4711, command="e3 workspace import", host="lab")`}
			l, err := r.Records.TryLock(t.Context(), "import", refstore.Exclusive, state.Encode())
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := errors.Join(l.Unlock(), r.Close()); err != nil {
					t.Error(err)
				}
			}
		}, []string{"waiting for process 4711 on lab (e3 workspace import), which imports; Ctrl-C"}},
		{"a prune", []string{"prune", ".", "--keep-last", "1"}, func(t *testing.T, p *project) func() {
			p.e3("start", ".", "read", "--force")
			return claims(t, p)
		}, []string{"waiting for another process, which removes executions of task "}},
		{"a pin", []string{"pin", "add", ".", "read.one"}, claims, []string{"waiting for another process, which imports, pins or removes execution "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t, map[string]string{"a.txt": "alpha\n", "e3.yaml": `
e3: 1
name: read
inputs:
  a: {file: a.txt}
tasks:
  one: {in: [a], out: one.txt, pass_env: [E2E_STATE], run: 'while [ -e "$E2E_STATE/wait" ]; do sleep 0.02; done; tr a-z A-Z < "$a" > "$out"'}
`})
			p.start(0)
			release := c.hold(t, p)
			var once sync.Once
			defer func() { once.Do(release) }()
			said := p.path("state/said")
			p.write("state/said", "")
			began := time.Now()
			x := p.spawnCommand(append([]string{"sh", "-c", `exec "$@" 2> "$0"`, said, program}, c.args...)...)
			eventually(t, patience, "it says for whom it waits", func() string {
				select {
				case <-x.ended:
					t.Fatalf("it ended\n%s", p.read("state/said"))
				default:
				}
				text := p.read("state/said")
				for _, part := range c.says {
					if !strings.Contains(text, part) {
						return "it says " + text
					}
				}
				return ""
			})
			if took := time.Since(began); took < time.Second {
				t.Errorf("it speaks of a wait of %v", took)
			}
			syscall.Kill(x.pid(), syscall.SIGINT)
			if !x.endsIn(3 * time.Second) {
				t.Errorf("it does not end at SIGINT\n%s", p.read("state/said"))
			} else if r := x.result(); r.code != 130 {
				t.Errorf("exit code %d, want 130\n%s", r.code, p.read("state/said"))
			}
			noStrays(t, p.repository(), x.cmd.Process.Pid)
			once.Do(release)
			if r := p.e3(c.args...); r.code != 0 {
				t.Errorf("the next one: exit code %d\n%s", r.code, r.text())
			}
			if left, err := leftovers(p.repository()); err != nil || len(left) > 0 {
				t.Errorf("tmp holds %v, %v", left, err)
			}
			check(t, p.repository())
		})
	}
}
