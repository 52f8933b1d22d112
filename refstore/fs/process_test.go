//go:build unix

package fs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"e3/refstore"
	"e3/refstore/fs"
	"e3/refstore/refstoretest"
)

// The test binary runs itself as another process when this is set; helpers lists the roles.
const helperEnv = "E3_TEST_FS_HELPER"

var helpers = map[string]func(ctx context.Context, s *fs.Store, dir string) error{
	"count": func(ctx context.Context, s *fs.Store, _ string) error {
		for range 40 {
			if err := refstoretest.Increment(ctx, s, counterKey); err != nil {
				return err
			}
		}
		return nil
	},
	"claim": countUnderClaim,
	"append": func(ctx context.Context, s *fs.Store, _ string) error {
		for done := 0; done < 40; {
			info, err := s.Size(ctx, eventsKey)
			if err != nil {
				return err
			}
			err = s.Append(ctx, eventsKey, info.Size, []byte("0123456789\n"))
			if err == nil {
				done++
			} else if !errors.Is(err, refstore.ErrConflict) {
				return err
			}
		}
		return nil
	},
	"hold":      hold,
	"put":       putForever,
	"logs":      logForever,
	"halfwrite": halfWrite,
	"protect":   protect,
	"leftovers": makeLeftovers,
}

var (
	counterKey = refstore.Key{Partition: "INDEX/test", Sort: "counter"}
	eventsKey  = refstore.Key{Partition: "EVENTS/prod", Sort: "run"}
	claimKey   = [32]byte{1, 2, 3}
)

func TestMain(m *testing.M) {
	name, dir, found := strings.Cut(os.Getenv(helperEnv), " ")
	if !found {
		os.Exit(m.Run())
	}
	s, err := fs.Open(dir, fs.Options{})
	if err == nil {
		err = helpers[name](context.Background(), s, dir)
	}
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// countUnderClaim counts in a file that only the claim protects.
func countUnderClaim(ctx context.Context, s *fs.Store, dir string) error {
	path := filepath.Join(dir, "counter")
	for done := 0; done < 100; {
		l, err := s.TryClaim(ctx, claimKey, nil)
		if errors.Is(err, refstore.ErrClaimed) {
			continue
		}
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(data))
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(n+1)), 0o644); err != nil {
			return err
		}
		if err := l.Unlock(); err != nil {
			return err
		}
		done++
	}
	return nil
}

// hold takes a lock, a claim and a session, prints a line and waits to be killed.
func hold(ctx context.Context, s *fs.Store, _ string) error {
	if _, err := s.TryLock(ctx, "run", refstore.Exclusive, []byte("the helper")); err != nil {
		return err
	}
	if _, err := s.TryClaim(ctx, claimKey, nil); err != nil {
		return err
	}
	dir, err := s.SessionDir()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "caller"), []byte("x"), 0o644); err != nil {
		return err
	}
	fmt.Println(dir)
	for { // not select {}, which the runtime may report as a deadlock
		time.Sleep(time.Hour)
	}
}

// logForever makes the logs of executions, and removes every other one, until it is killed.
func logForever(ctx context.Context, _ *fs.Store, dir string) error {
	s, err := fs.Open(dir, fs.Options{})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		key := refstore.Key{Partition: fmt.Sprintf("LOG/t/i/%d", i), Sort: "stdout.txt"}
		if err := s.Append(ctx, key, 0, []byte("hello")); err != nil {
			return err
		}
		if i%2 == 0 {
			if err := s.Remove(ctx, key); err != nil {
				return err
			}
		}
		if i%50 == 49 {
			fmt.Println("50 logs")
		}
	}
}

// putForever writes records of all kinds until it is killed.
func putForever(ctx context.Context, s *fs.Store, _ string) error {
	value := make([]byte, 64<<10)
	for i := 0; ; i++ {
		fmt.Println(i)
		for _, key := range []refstore.Key{
			{Partition: fmt.Sprintf("EXECUTION/%d/in", i), Sort: "id"},
			{Partition: "QUEUE/default", Sort: strconv.Itoa(i)},
		} {
			r := refstore.Record{Key: key, Value: value}
			if strings.HasPrefix(key.Partition, "EXECUTION") {
				r.Fields = []refstore.Field{{Name: "output", Value: value}}
			}
			v, err := s.Put(ctx, r)
			if err != nil {
				return err
			}
			r.Version = v
			if v, err = s.Put(ctx, r); err != nil {
				return err
			}
			if i%3 == 0 {
				if err := s.Delete(ctx, key, v); err != nil {
					return err
				}
			}
		}
	}
}

// protect protects two names, prints the beginning of its session and waits to be killed.
func protect(ctx context.Context, s *fs.Store, _ string) error {
	if _, err := s.Protect(ctx, []string{"node a", "package b"}); err != nil {
		return err
	}
	began, err := s.SessionBegan(ctx)
	if err != nil {
		return err
	}
	fmt.Println(began.UnixNano())
	for {
		_, _ = unix.Poll(nil, -1) // signals of the runtime end it
	}
}

// makeLeftovers writes logs and then their records, and records with side fields, while other processes clean up.
func makeLeftovers(ctx context.Context, s *fs.Store, _ string) error {
	for i := range 150 {
		partition, id := fmt.Sprintf("%064x/%064x", i%3, 0), fmt.Sprintf("%08x-0000-7000-8000-%012x", os.Getpid(), i)
		if err := s.Append(ctx, refstore.Key{Partition: "LOG/" + partition + "/" + id, Sort: "stdout.txt"}, 0, []byte("line")); err != nil {
			return fmt.Errorf("log: %w", err)
		}
		for _, key := range []refstore.Key{
			{Partition: "EXECUTION/" + partition, Sort: id},
			{Partition: "DATAFLOW/w", Sort: id}, {Partition: "INDEX/a/b", Sort: id}, {Partition: "PACKAGE", Sort: "p/" + id},
		} {
			v, err := s.Put(ctx, refstore.Record{Key: key, Value: []byte("v"), Fields: []refstore.Field{{Name: "f", Value: []byte("f")}}})
			if err != nil {
				return err
			}
			r, err := s.Get(ctx, key, "f")
			if err != nil || len(r.Fields) != 1 || r.Version != v {
				return fmt.Errorf("record %q: got %+v, %w", key, r, err)
			}
			if i%2 == 0 {
				if err := s.Delete(ctx, key, v); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// halfWrite appends endlessly.
func halfWrite(ctx context.Context, s *fs.Store, _ string) error {
	data := make([]byte, 1<<20)
	for offset := int64(0); ; offset += int64(len(data)) {
		if err := s.Append(ctx, eventsKey, offset%(64<<20), data); err != nil {
			return err
		}
		if offset == 0 {
			fmt.Println("ready")
		}
		if offset%(64<<20) == 63<<20 {
			if err := s.Cut(ctx, eventsKey, 0); err != nil {
				return err
			}
		}
	}
}

// helper starts the test binary as the named helper.
func helper(t *testing.T, name, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helperEnv+"="+name+" "+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// killable starts a helper, waits for that many lines, and returns the last one and a function that kills the helper.
func killable(t *testing.T, name, dir string, lines int) (line string, kill func()) {
	t.Helper()
	cmd := helper(t, name, dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	for i := range lines {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatalf("helper %s: no line %d: %v", name, i, err)
		}
	}
	return strings.TrimSpace(line), func() {
		t.Helper()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() >= 0 {
			t.Errorf("helper %s was to be killed, and ended: %v", name, err)
		}
	}
}

// together runs several processes of one helper to their ends.
func together(t *testing.T, name, dir string, n int) {
	t.Helper()
	var cmds []*exec.Cmd
	for range n {
		cmd := helper(t, name, dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("helper %s: %v", name, err)
		}
	}
}

func TestProcessesLoseNoUpdate(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	put(t, s, refstore.Record{Key: counterKey, Value: []byte("0")})
	together(t, "count", dir, 4)
	r, err := s.Get(t.Context(), counterKey)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(r.Value), "160"; got != want {
		t.Errorf("counter is at %s, want %s", got, want)
	}
}

func TestProcessesExcludeEachOtherByClaim(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "counter")
	if err := os.WriteFile(path, []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
	together(t, "claim", dir, 3)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != "300" {
		t.Errorf("counter is at %s, want 300", got)
	}
}

func TestProcessesAppend(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	if err := s.Append(t.Context(), eventsKey, 0, nil); err != nil {
		t.Fatal(err)
	}
	together(t, "append", dir, 4)
	data, err := os.ReadFile(filepath.Join(dir, "events", "prod", "run.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(data), strings.Repeat("0123456789\n", 160); got != want {
		t.Errorf("stream has %d bytes, want %d of whole lines", len(got), len(want))
	}
}

func TestKillFreesLocks(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	session, kill := killable(t, "hold", dir, 1)

	_, err := s.TryLock(t.Context(), "run", refstore.Exclusive, nil)
	locked, ok := errors.AsType[*refstore.LockedError](err)
	if !ok || string(locked.Holder) != "the helper" {
		t.Errorf("lock held by another process: got %v, want a LockedError that names the helper", err)
	}
	if holder, held, err := s.Holder(t.Context(), "run"); err != nil || !held || string(holder) != "the helper" {
		t.Errorf("holder: got %q, %v, %v, want the helper", holder, held, err)
	}
	if _, err := s.TryClaim(t.Context(), claimKey, nil); !errors.Is(err, refstore.ErrClaimed) {
		t.Errorf("claim held by another process: got %v, want ErrClaimed", err)
	}
	if n, err := s.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("sweep beside a live session: got %d, %v, want 0", n, err)
	}
	if _, err := os.Stat(filepath.Join(session, "caller")); err != nil {
		t.Errorf("a live session's file: %v", err)
	}

	kill()
	if holder, held, err := s.Holder(t.Context(), "run"); err != nil || held {
		t.Errorf("holder after its death: got %q, %v, %v, want none", holder, held, err)
	}
	l, err := s.TryLock(t.Context(), "run", refstore.Exclusive, []byte("me"))
	if err != nil {
		t.Fatalf("lock of a dead holder: %v", err)
	}
	c, err := s.TryClaim(t.Context(), claimKey, nil)
	if err != nil {
		t.Fatalf("claim of a dead holder: %v", err)
	}
	if err := errors.Join(l.Unlock(), c.Unlock()); err != nil {
		t.Error(err)
	}
	if n, err := s.Sweep(t.Context()); n != 1 || err != nil {
		t.Errorf("sweep of a dead session: got %d, %v, want 1", n, err)
	}
	if _, err := os.Stat(session); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("the dead session's folder: got %v, want that it is gone", err)
	}
}

func TestKillAmidPuts(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	for round := range 10 {
		_, kill := killable(t, "put", dir, 1+round)
		kill()

		if _, err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := names(t, filepath.Join(dir, "tmp")); len(left) > 0 {
			t.Errorf("tmp/ holds %q after sweep, want nothing", left)
		}
		// Files outside tmp/ are complete: executions with value and field, jobs of full length.
		err := filepath.WalkDir(dir, func(path string, e iofs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			rel, _ := filepath.Rel(dir, path)
			switch filepath.Base(path) {
			case "status.beast2":
				wantSize(t, path, int64(64<<10+64<<10+len("\ne3with output=65536\n")))
			default:
				if strings.HasPrefix(rel, "queue") {
					wantSize(t, path, 64<<10)
				} else if !strings.HasPrefix(rel, "locks") {
					t.Errorf("%s was left", rel)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, top := range []string{"executions", "queue"} {
			if err := os.RemoveAll(filepath.Join(dir, top)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A process that is killed while it makes or removes a log leaves nothing that reads as an execution's lost record.
func TestKillAmidLogs(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	for round := range 10 {
		_, kill := killable(t, "logs", dir, 1+round%3)
		kill()
		top := filepath.Join(dir, "executions")
		for _, id := range names(t, filepath.Join(top, "t", "i")) {
			if left := names(t, filepath.Join(top, "t", "i", id)); len(left) != 1 {
				t.Errorf("the folder of %s holds %q, want a log", id, left)
			}
			if _, err := s.Get(t.Context(), refstore.Key{Partition: "EXECUTION/t/i", Sort: id}); !errors.Is(err, refstore.ErrNotFound) {
				t.Errorf("the execution %s is read as: %v, want ErrNotFound", id, err)
			}
		}
		if err := os.RemoveAll(top); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKillAmidAppends(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, fs.Options{})
	_, kill := killable(t, "halfwrite", dir, 1)
	kill()
	info, err := s.Size(t.Context(), eventsKey)
	if err != nil {
		t.Fatal(err)
	}
	whole := info.Size &^ (1<<20 - 1)
	if err := errors.Join(s.Cut(t.Context(), eventsKey, whole), s.Append(t.Context(), eventsKey, whole, []byte("on"))); err != nil {
		t.Errorf("after the appender's death: %v", err)
	}
}

func wantSize(t *testing.T, path string, want int64) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Error(err)
	} else if info.Size() != want {
		t.Errorf("%s has %d bytes, want %d", path, info.Size(), want)
	}
}

// names lists a folder; a missing folder counts as empty.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, iofs.ErrNotExist) {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}
