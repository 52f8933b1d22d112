package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"e3/internal/host/room"
	"e3/internal/host/runner"
)

// room measures a command that does nothing, one after the other, in a closed room and in the open, without recording.
// Where bubblewrap is installed, another row compares it with that.
func (b *bench) room() error {
	const name = "command in a closed room"
	if !b.wants(name) || !room.Possible() {
		return nil
	}
	base := filepath.Join(b.dir, "room")
	defer os.RemoveAll(base)
	folder := filepath.Join(base, "w1")
	for _, part := range []string{"work", "home", "tmp"} {
		if err := os.MkdirAll(filepath.Join(folder, part), 0o700); err != nil {
			return err
		}
	}
	s, err := runner.New(runner.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	run := func(spec runner.Spec) (time.Duration, error) {
		spec.Env, spec.Dir = []string{"PATH=/usr/bin:/bin"}, filepath.Join(folder, "work")
		began := time.Now()
		r, err := s.Run(context.Background(), spec)
		if err == nil && !r.Success() {
			err = fmt.Errorf("%q: %+v", spec.Argv, r)
		}
		return time.Since(began), err
	}
	wrap, lookErr := exec.LookPath("bwrap")
	var closed, open, wrapped []time.Duration
	for range 40 * b.rounds {
		u, err := run(runner.Spec{Argv: []string{"true"}})
		if err != nil {
			return err
		}
		t, err := run(runner.Spec{Argv: []string{"true"}, Closed: &room.Room{Base: base, Folder: folder}})
		if err != nil {
			return err
		}
		closed, open = append(closed, t), append(open, u)
		if lookErr != nil {
			continue
		}
		u, err = run(runner.Spec{Argv: []string{wrap, "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr",
			"--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc",
			"--dev", "/dev", "--bind", folder, "/e3", "true"}})
		if err != nil {
			return err
		}
		wrapped = append(wrapped, u)
	}
	more := median(closed) - median(open)
	row(name+" (peer: in the open)", median(closed), median(open), 0,
		strconv.FormatInt(more.Microseconds(), 10)+" µs more; target: 1,500 µs")
	if lookErr == nil {
		row(name+" (peer: bubblewrap)", median(closed), median(wrapped), 0, "")
	}
	return nil
}
