//go:build linux

package e2e

import (
	"bytes"
	"context"
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
	for _, shared := range []string{"--shared=world", "of the umask"} {
		t.Run(shared, func(t *testing.T) {
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
			if shared == "--shared=world" {
				e3("init", shared)
			} else {
				e3("init", "--shared")
				asBefore(t, p.repository(), ann, group)
			}
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
		})
	}
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
