//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"e3/internal/repo"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

const (
	gcLease  = 2 * time.Second
	gcSettle = 3 * time.Second // what was sent arrives sooner; what is older by that may be collected
)

const gcGraph = `
e3: 1
name: w
inputs:
  word: {file: word.txt}
  other: {file: other.txt}
tasks:
  copy: {in: [word, other], out: copy.txt, run: 'cat "$word" "$other" > "$out"'}
`

// collected is a shared repository whose garbage is collected, with servers behind proxies.
type collected struct {
	*project
	repo             string
	records, objects *testserver.Proxy
}

func newCollected(t *testing.T) *collected {
	c := &collected{
		project: newProjectBelow(t, inMemory(), map[string]string{"e3.yaml": gcGraph, "word.txt": "first\n", "other.txt": "other\n"}),
		records: testserver.NewProxy(t, testserver.Minidyn(t)), objects: testserver.NewProxy(t, testserver.GoFakeS3(t)),
	}
	c.repo = fmt.Sprintf("dynamodb://e3-gc/team?lease=%v&settle=%v&endpoint=%s&s3-endpoint=%s", gcLease, gcSettle, url.QueryEscape(c.records.URL()), url.QueryEscape(c.objects.URL()))
	c.env = append(c.env, testserver.Env()...)
	c = c.machine("one")
	c.must("init", c.repo+"&bucket="+testserver.Name())
	c.must("workspace", "create", c.repo, "w")
	c.must("workspace", "deploy", c.repo, "w", "e3.yaml")
	return c
}

// machine is the same project on another machine, which has copies of its own.
func (c *collected) machine(name string) *collected {
	other, p := *c, *c.project
	other.project = &p
	p.env = slices.DeleteFunc(slices.Clone(p.env), func(v string) bool {
		return strings.HasPrefix(v, repo.CacheDirVariable+"=") || strings.HasPrefix(v, repo.StateDirVariable+"=")
	})
	p.env = append(p.env, repo.CacheDirVariable+"="+p.path(name+"/cache"), repo.StateDirVariable+"="+p.path(name+"/state"))
	return &other
}

// set stores a text and gives it to an input.
func (c *collected) set(input, text string) {
	c.t.Helper()
	c.write(input+".new", text)
	c.must("set", c.repo, "w."+input, "@"+input+".new")
}

// sound demands that all that is named is there, as a machine sees it that has no copies.
func (c *collected) sound() {
	c.t.Helper()
	checker := c.machine(fmt.Sprintf("checker%d", rand.Int()))
	if r := checker.e3("verify", c.repo); r.code != 0 {
		c.t.Errorf("verify: exit code %d\n%s", r.code, r.text())
	}
}

// gc collects until that was done and nothing is left that is young, and returns how many objects went.
func (c *collected) gc() (removed int64) {
	c.t.Helper()
	eventually(c.t, patience, "garbage is collected", func() string {
		r := c.e3("gc", c.repo, "--json")
		var report struct{ Removed, Young struct{ Objects int64 } }
		switch {
		case r.code == 11:
			return "busy: " + r.stderr
		case r.code != 0:
			c.t.Fatalf("gc: exit code %d\n%s", r.code, r.text())
		}
		if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
			c.t.Fatal(err)
		}
		removed += report.Removed.Objects
		if report.Young.Objects > 0 {
			return fmt.Sprintf("%d objects are young", report.Young.Objects)
		}
		return ""
	})
	return removed
}

// TestSharedGCStopped stops a collector between its tries to delete, until its lease is gone. Meanwhile another
// process stores the same object again, and other collectors, which cannot know of it, run. When it wakes up it
// deletes nothing.
func TestSharedGCStopped(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprintf("elsewhere %v", elsewhere), func(t *testing.T) {
			if elsewhere && os.Geteuid() != 0 {
				t.Skip("be root: a collector gets a process namespace of its own, as if it were on another machine")
			}
			t.Parallel()
			c := newCollected(t)
			c.set("word", "wanted\n")
			c.set("word", "second\n") // what was wanted is garbage
			c.gc()                    // the first inputs stay: the package has them
			c.set("word", "wanted\n")
			c.set("word", "third\n")
			<-time.After(gcSettle + 2*time.Second)
			c.objects.Faults(1, testserver.Rule{Op: "DeleteObjects", Fault: testserver.Throttle})
			two := c.machine("two")
			if elsewhere {
				two.enter = []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
			}
			x := two.spawn("gc", c.repo)
			eventually(t, patience, "it deletes", func() string {
				if c.objects.Struck()[testserver.Throttle] < 2 {
					return "it does not"
				}
				return ""
			})
			pid := x.pid()
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer syscall.Kill(pid, syscall.SIGCONT)
			c.objects.Faults(0)
			c.set("word", "wanted\n") // waits until nothing of the collector can come
			if elsewhere {
				c.gc()
			} else if r := c.e3("gc", c.repo); r.code != 11 || !strings.Contains(r.stderr, "it is still there: it is stopped, or hangs") {
				t.Errorf("gc: exit code %d, want 11 and the name of the blocking process\n%s", r.code, r.text())
			}
			c.sound()
			syscall.Kill(pid, syscall.SIGCONT)
			if r := x.wait(); r.code != 11 || !strings.Contains(r.stderr, "the lease was lost") {
				t.Errorf("the collector: exit code %d, want 11 and a word about its lease\n%s", r.code, r.text())
			}
			c.sound()
			if got := c.must("get", c.repo, "w.word").stdout; got != "wanted\n" {
				t.Errorf("got %q, want what was stored", got)
			}
			c.gc()
			c.sound()
		})
	}
}

// TestSharedGCKilled kills collectors while they wait for the answer to a deletion that takes effect later: a put of
// the same meanwhile waits for that.
func TestSharedGCKilled(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	c := newCollected(t)
	for range 2 {
		c.set("word", "wanted\n")
		c.set("word", "other\n")
		<-time.After(gcSettle + 2*time.Second)
		c.objects.Reset()
		c.objects.Faults(1, testserver.Rule{Op: "DeleteObjects", Fault: testserver.Hang})
		x := c.machine("two").spawn("gc", c.repo)
		eventually(t, patience, "it deletes", func() string {
			if c.objects.Struck()[testserver.Hang] == 0 {
				return "it does not"
			}
			return ""
		})
		x.kill(false)
		c.write("word.new", "wanted\n")
		y := c.spawn("set", c.repo, "w.word", "@word.new")
		select {
		case <-y.ended:
			t.Fatalf("a put of an object that is being deleted did not wait\n%s", y.result().text())
		case <-time.After(time.Second):
		}
		c.objects.Release()
		if r := y.wait(); r.code != 0 {
			t.Fatalf("set: exit code %d\n%s", r.code, r.text())
		}
		c.sound()
		c.objects.Faults(0)
	}
	c.gc()
	c.sound()
}

// TestSharedGCTorture kills and stops collectors and writers at random moments: nothing that is named goes, and what
// they leave is collected in the end.
func TestSharedGCTorture(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	c := newCollected(t)
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		var all sync.WaitGroup
		for i, args := range [][]string{
			{"gc", c.repo}, {"start", c.repo, "w"}, {"set", c.repo, "w.word", "@one.txt"}, {"set", c.repo, "w.other", "@two.txt"},
		} {
			c.write("one.txt", fmt.Sprintf("one %d\n", round%3))
			c.write("two.txt", fmt.Sprintf("one %d\n", (round+1)%3)) // the same texts, in turn
			x := c.machine(fmt.Sprintf("machine%d", i)).spawn(args...)
			all.Go(func() {
				select {
				case <-x.ended:
					return
				case <-time.After(time.Duration(rand.IntN(400)) * time.Millisecond):
				}
				if rand.IntN(3) > 0 {
					syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL)
				} else { // past its lease
					syscall.Kill(-x.cmd.Process.Pid, syscall.SIGSTOP)
					<-time.After(gcLease + time.Second)
					syscall.Kill(-x.cmd.Process.Pid, syscall.SIGCONT)
				}
				<-x.ended
			})
		}
		all.Wait()
		c.sound()
	}
	c.set("word", "last\n")
	c.set("other", "last\n")
	t.Logf("%d objects were left to collect", c.gc())
	c.sound()
	c.must("start", c.repo, "w")
}

// TestSharedGCStoppedWriter stops a writer before it names a stored object. On the writer's machine a collector sees
// that it is there, and leaves everything. A collector on another machine continues once no late write of it can
// arrive. The writer names nothing when it wakes up.
func TestSharedGCStoppedWriter(t *testing.T) {
	suite.Thorough(t)
	if os.Geteuid() != 0 {
		t.Skip("be root: a writer gets a process namespace of its own, as if it were on another machine")
	}
	t.Parallel()
	c := newCollected(t)
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprintf("elsewhere %v", elsewhere), func(t *testing.T) {
			text := fmt.Sprintf("named by who slept %v\n", elsewhere)
			c.write("word.new", text)
			writer := c.machine(fmt.Sprint("writer", elsewhere))
			if elsewhere {
				writer.enter = []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
			}
			// The write that names it, after the mark that the input was set, is refused until it is stopped.
			c.records.Reset()
			c.records.Faults(1, testserver.Rule{Op: "UpdateItem", Fault: testserver.Throttle})
			x := writer.spawn("set", c.repo, "w.word", "@word.new")
			eventually(t, patience, "it writes", func() string {
				if c.records.Struck()[testserver.Throttle] < 3 {
					return "it does not"
				}
				return ""
			})
			pid := x.pid()
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer syscall.Kill(pid, syscall.SIGCONT)
			c.records.Faults(0)
			<-time.After(gcLease + gcSettle)
			if elsewhere {
				c.gc()
			} else if r := c.e3("gc", c.repo); r.code != 11 || !strings.Contains(r.stderr, "it is still there: it is stopped, or hangs") {
				t.Errorf("gc: exit code %d, want 11 and the name of the blocking process\n%s", r.code, r.text())
			}
			c.sound()
			syscall.Kill(pid, syscall.SIGCONT)
			if r := x.wait(); r.code != 11 || !strings.Contains(r.stderr, "lost") {
				t.Errorf("the stopped process: exit code %d, want 11\n%s", r.code, r.text())
			}
			c.sound()
			c.gc()
			c.sound()
		})
	}
}
