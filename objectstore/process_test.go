package objectstore_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/objectstore"
)

// TestMain is also the main of the processes that tests start: see runChild.
func TestMain(m *testing.M) {
	if role := os.Getenv("E3_CHILD"); role != "" {
		if err := child(role, os.Getenv("E3_BASE")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runChild starts this binary in a role, on the store in base.
func runChild(t *testing.T, role, base string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "E3_CHILD="+role, "E3_BASE="+base)...)
	cmd.Stderr = os.Stderr
	if strings.HasSuffix(role, " for ever") {
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The child prints a line when it has begun.
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func child(role, base string) error {
	if mask := os.Getenv("E3_UMASK"); mask != "" {
		n, err := strconv.ParseUint(mask, 8, 32)
		if err != nil {
			return err
		}
		syscall.Umask(int(n))
	}
	switch role {
	case "sessions":
		return sessions(context.Background(), base, uint64(os.Getpid()), 40)
	case "collect for ever":
		for i := 0; ; i++ {
			if _, err := collect(context.Background(), base); err != nil {
				return err
			}
			if i == 0 {
				fmt.Println("at work")
			}
		}
	}
	scratch := filepath.Join(base, "scratch")
	d, err := objectstore.OpenDir(filepath.Join(base, "objects"), objectstore.Options{
		Session: func() (string, time.Time, error) { return scratch, time.Now(), os.MkdirAll(scratch, 0o700) },
	})
	if err != nil {
		return err
	}
	if os.Getenv("E3_NAMED") != "" {
		d.ForceNamed()
	}
	switch role {
	case "put":
		return putSeries(d, 1, 300)
	case "put for ever":
		for i := uint64(0); ; i++ {
			if err := putSeries(d, i, 20); err != nil {
				return err
			}
			if i == 0 {
				fmt.Println("at work")
			}
		}
	}
	return fmt.Errorf("unknown role %q", role)
}

// putSeries puts n objects that depend on seed, some of them large, in three ways.
func putSeries(d *objectstore.Dir, seed uint64, n int) error {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(seed, 3))
	for i := range n {
		size := r.IntN(20_000)
		if i%10 == 0 {
			size = objectstore.ChunkSize + r.IntN(1<<20)
		}
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		var err error
		switch i % 3 {
		case 0:
			_, err = d.Put(ctx, bytes.NewReader(b))
		case 1:
			_, err = d.PutBytes(ctx, b)
		case 2:
			path := filepath.Join(filepath.Dir(d.Path()), fmt.Sprintf("work-%d-%d-%d", os.Getpid(), seed, i))
			if err := os.WriteFile(path, b, 0o600); err != nil {
				return err
			}
			_, err = d.Adopt(ctx, suite.Paths{}, path)
			os.Remove(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestProcessesPutTheSame(t *testing.T) {
	base := t.TempDir()
	var children []*exec.Cmd
	for i := range 4 {
		var env []string
		if i == 3 {
			env = append(env, "E3_NAMED=1")
		}
		children = append(children, runChild(t, "put", base, env...))
	}
	for _, c := range children {
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
	if n := checkAll(t, newDirIn(t, base)); n != 300 {
		t.Errorf("got %d objects, want 300", n)
	}
}

func TestKillDuringPut(t *testing.T) {
	for _, env := range []string{"E3_NAMED=", "E3_NAMED=1"} {
		t.Run(env, func(t *testing.T) {
			base := t.TempDir()
			for range 8 {
				c := runChild(t, "put for ever", base, env)
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				c.Wait()
			}
			// If files aside have names, orphans in the scratch directory are expected.
			os.RemoveAll(filepath.Join(base, "scratch"))
			if n := checkAll(t, newDirIn(t, base)); n < 20 {
				t.Errorf("got %d objects, want what 8 children stored", n)
			}
		})
	}
}
