//go:build amd64 || arm64

package executions_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/remains"
	"e3/objectstore"
)

// TestHostileRooms: random renames, links, exchanges, marks and mounts by commands at random moments, and by another process of
// the user while outputs are collected. Nothing outside is read, moved or removed, and no foreign byte is stored.
// E3_HOSTILE_ROOMS is the number of tasks, E3_HOSTILE_SEED repeats a failure.
func TestHostileRooms(t *testing.T) {
	t.Run("this user", testHostileRooms)
	if os.Getuid() == 0 {
		t.Run("ordinary user", func(t *testing.T) { asOrdinaryUser(t, "TestHostileRooms") })
	}
}

func testHostileRooms(t *testing.T) {
	tasks, seed := 1000, rand.Uint64()
	if testing.Short() {
		tasks = 20
	}
	if n, err := strconv.Atoi(os.Getenv("E3_HOSTILE_ROOMS")); err == nil {
		tasks = n
	}
	if n, err := strconv.ParseUint(os.Getenv("E3_HOSTILE_SEED"), 10, 64); err == nil {
		seed = n
	}
	defer func() {
		if t.Failed() {
			t.Logf("E3_HOSTILE_SEED=%d E3_HOSTILE_ROOMS=%d", seed, tasks)
		}
	}()
	r := rand.New(rand.NewPCG(seed, 0))
	p, kept := newPrivate(t), remains.In(t.TempDir())
	l := newLab(t, func(o *executions.Options) { o.Kept = kept })
	ended := map[record.State]int{}
	for done := 0; done < tasks && !t.Failed(); {
		var batch sync.WaitGroup
		var mu sync.Mutex
		var scripts []string
		for range 1 + r.IntN(6) {
			task := hostileTask(r, p, done)
			scripts = append(scripts, task.Shell)
			done++
			batch.Go(func() {
				res, err := l.Do(t.Context(), l.request(task, hostileInputs(t, l)...))
				if err != nil {
					t.Errorf("%v\n%s", err, task.Shell)
				}
				mu.Lock()
				ended[res.State]++
				mu.Unlock()
			})
		}
		batch.Wait()
		p.check(t, l, strings.Join(scripts, "\nand\n"))
	}
	for range max(tasks/10, 2) {
		underAttack(t, r, p, l)
		l.Clear()()
		p.check(t, l, "an attack")
	}
	t.Logf("%d successes, %d failures, %d errors", ended[record.Success], ended[record.Failed], ended[record.Error])
	if tasks >= 100 && (ended[record.Success] < tasks/10 || ended[record.Error] < tasks/10) {
		t.Error("the commands are too hostile, or not hostile enough")
	}
	kept.Clear("ws")
	l.Clear()()
	if err := l.Rest(); err != nil {
		t.Error(err)
	}
	if err := l.records.Close(); err != nil {
		t.Error(err)
	}
	p.check(t, l, "the end")
	if left, err := filepath.Glob(filepath.Join(l.dir, "tmp", "session-*", "*")); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

var hostileLarge = bytes.Repeat([]byte("large "), 1<<18)

func hostileInputs(t *testing.T, l *lab) (all []objectstore.Hash) {
	for _, b := range [][]byte{[]byte("small"), []byte("deep"), hostileLarge} {
		h, err := objectstore.PutBytes(context.Background(), l.objects, b)
		if err != nil {
			t.Error(err)
		}
		all = append(all, h)
	}
	return all
}

// hostileTask makes its outputs, and then works against e3. Its own attacks must spare the private folder: they go by
// descriptors too, and write and remove nothing through a link or a mount.
func hostileTask(r *rand.Rand, p *private, n int) *record.Task {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	open, layers := r.IntN(3) == 0, r.IntN(2) == 0
	mounts := open && r.IntN(2) == 0 // then one thing after another: mount follows links
	s := &strings.Builder{}
	fmt.Fprintf(s, "S=%s; exec 7<. 8<.. 9<../..\nmkdir -p sub made; echo made > key; echo made > sub/key; echo made > made/f\n", p.dir)
	fmt.Fprintf(s, "x() { perl -e 'syscall(%d, -100, $ARGV[0], -100, $ARGV[1], 2)' $1 $2; }\n", unix.SYS_RENAMEAT2)
	fmt.Fprintf(s, "m() { perl -e 'syscall(%d, @ARGV, length($ARGV[2]), 0)' $1 user.overlay.$2 $3; }\n", unix.SYS_LSETXATTR)
	work := []string{"key", "sub", "made", "small", "deep", "large", "a", "b"}
	for range 1 + r.IntN(6) {
		in, names := 8, []string{"work", "home", "tmp", "w2", "h2"}
		switch r.IntN(6) {
		case 0, 1, 2:
			in, names = 7, work
		case 3:
			if open {
				in, names = 9, []string{"room", "r2", "stdout", "begun", "s0"}
			}
		}
		name, other, to := pick(names...), pick(names...), "$S"+pick("", "/key", "/sub", "/work", "/room")
		op := "true"
		switch r.IntN(10) {
		case 0, 1:
			op = "mv -nT " + name + " " + other
		case 2, 3:
			op = "ln -sT " + to + " " + name
		case 4:
			op = "mv -nT " + name + " away && ln -sT " + to + " " + name
		case 5:
			op = "ln -sT " + to + " l; x l " + name
		case 6:
			op = pick("rm -f ", "rmdir ", "mkfifo ", "mkdir ", "mkdir -m 0 ", "unlink ") + name
		case 7:
			op = "ln -T " + name + " " + other
		case 8:
			op = "m " + name + " " + pick("opaque y", "redirect "+to, "metacopy x", "origin x")
		case 9:
			switch {
			case mounts:
				op = "[ -L " + name + " ] || mount --bind " + pick(to, name) + " " + name
			case !open:
				op = "rm -rf " + name
			}
		}
		if !mounts && r.IntN(4) == 0 {
			op = fmt.Sprintf("(sleep 0.00%d; %s) &", r.IntN(10), op)
		}
		fmt.Fprintf(s, "cd /proc/self/fd/%d && {\n%s\n}\n", in, op)
	}
	fmt.Fprintf(s, "exit %s\n", pick("0", "0", "0", "0", "1"))
	task := &record.Task{
		Shell: "{ set +e\n" + s.String() + "} 2>/dev/null", Room: record.Room{Closed: !open}, Env: []record.EnvVar{{Name: "N", Value: fmt.Sprint(n)}},
		Inputs: []record.Input{{Name: "small", Kind: record.KindFile, Path: "small"}, {Name: "deep", Kind: record.KindFile, Path: "deep/in/key"},
			{Name: "large", Kind: record.KindFile, Path: pick("large", "deep/large")}},
	}
	if !layers {
		task.Inputs[2].Path = "deep/in/large" // it lies beside another input
	}
	switch r.IntN(4) {
	case 0:
		task.Output = output("key", record.KindFile)
	case 1:
		task.Output = output("sub", record.KindDir)
	case 2:
		task.Output = output("sub/key", record.KindFile)
	default:
		task.Output = record.Output{Multi: true, Entries: []record.OutputEntry{
			{Name: "one", Path: "key", Kind: record.KindFile}, {Name: "two", Path: "made", Kind: record.KindDir}, {Name: "three", Path: "sub/key", Kind: record.KindFile},
		}}
	}
	return task
}

// underAttack runs a command whose folders another process exchanges with links while e3 collects.
func underAttack(t *testing.T, r *rand.Rand, p *private, l *lab) {
	dir := t.TempDir()
	task := script(fmt.Sprintf("mkdir -p sub; for i in $(seq 40); do echo made > sub/$i; done; echo made > key; pwd > %s/new; mv %s/new %s/at; until test -e %s/go; do sleep 0.001; done", dir, dir, dir, dir))
	task.Output = record.Output{Multi: true, Entries: []record.OutputEntry{{Name: "sub", Path: "sub", Kind: record.KindDir}, {Name: "key", Path: "key", Kind: record.KindFile}}}
	task.Inputs = []record.Input{{Name: "small", Kind: record.KindFile, Path: "small"}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = l.Do(t.Context(), l.request(task, hostileInputs(t, l)[0])) // it may end in any way
	}()
	var work string
	await(t, "the command", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "at"))
		work = strings.TrimSpace(string(text))
		return err == nil
	})
	type swap struct { // by descriptors, so that the attack itself does not go where it leads
		in   int
		name string
		link string
	}
	var swaps []swap
	for i, s := range []struct{ folder, name, to string }{
		{"../..", "room", ""}, {"..", "work", "/work"}, {".", "sub", "/sub"}, {".", "key", "/key"}, {"..", "home", "/home"}, {"sub", "1", "/key"}, {".", "small", "/key"},
	} {
		in, err := unix.Open(filepath.Join(work, s.folder), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(in)
		link := filepath.Join(dir, "l"+strconv.Itoa(i))
		if err := os.Symlink(p.dir+s.to, link); err != nil {
			t.Fatal(err)
		}
		swaps = append(swaps, swap{in, s.name, link})
	}
	if r.IntN(2) == 0 {
		swaps = swaps[2:] // the working directory stays
	}
	touch(t, filepath.Join(dir, "go"))
	for {
		select {
		case <-done:
			return
		default:
			s := swaps[r.IntN(len(swaps))]
			_ = unix.Renameat2(s.in, s.name, unix.AT_FDCWD, s.link, unix.RENAME_EXCHANGE)
			if r.IntN(8) == 0 {
				runtime.Gosched()
				time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
			}
		}
	}
}
