package bash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"e3/internal/host/runner"
)

const (
	// known is the version and the system of the bash that this package knows.
	known = "5.2 linux-gnu"

	// enough is the number of scripts without need of bash that a process runs before the check. The check costs as
	// much as three starts of bash.
	enough = 4

	// checkLimit bounds the check.
	checkLimit = 10 * time.Second
)

// Runner runs processes.
type Runner interface {
	Run(ctx context.Context, spec runner.Spec) (runner.Result, error)
	// Redirects reports whether a Spec may have Redirects.
	Redirects() bool
}

// A Checker says whether this package knows the bash of this machine. Until it has checked bash, the answer is no. It
// is safe for concurrent use.
type Checker struct {
	run     Runner
	path    string
	asked   atomic.Int32
	verdict atomic.Bool
}

// NewChecker returns a Checker for the first bash in a PATH.
func NewChecker(run Runner, path string) *Checker { return &Checker{run: run, path: path} }

// find returns the first bash in a PATH, or "".
func find(path string) string {
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, "bash")
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}

// Known reports whether scripts may go without bash. After a few calls by a process, the check runs in the background.
func (c *Checker) Known() bool {
	if c.verdict.Load() {
		return true
	}
	if c.asked.Add(1) == enough {
		go func() { _ = c.Check(context.Background()) }() // after an error the answer stays no
	}
	return false
}

// Check tests the installed bash, and returns the reason why it is not known; nil if it is.
func (c *Checker) Check(ctx context.Context) error {
	file := find(c.path)
	if file == "" || !c.run.Redirects() || strings.HasPrefix(runtime.GOARCH, "mips") {
		return errors.New("there is no bash, or this system is not known")
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	env := sample(filepath.Dir(file))
	program, err := runner.LookPath("env", "/", env)
	if err != nil {
		w.Close()
		return err
	}
	read := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(r, 1<<20))
		read <- string(text)
	}()
	res, err := c.run.Run(ctx, runner.Spec{
		Argv: []string{"bash", "-euo", "pipefail", "-c", `env -0 "V=${BASH_VERSINFO[0]}.${BASH_VERSINFO[1]} $OSTYPE"`},
		Env:  env, Dir: "/", Stdout: w, Stderr: w,
	})
	w.Close()
	got := <-read
	if err != nil {
		return err
	}
	if !res.Success() {
		return fmt.Errorf("%s ended with exit code %d", file, res.ExitCode)
	}
	want := append(exported(env, "/", program, false), "V="+known)
	if !slices.Equal(strings.Split(strings.TrimSuffix(got, "\x00"), "\x00"), want) {
		return fmt.Errorf("%s is not the bash that is known: %q instead of %q", file, got, want)
	}
	c.verdict.Store(true)
	return nil
}

// sample is an environment with enough names that some share a bucket.
func sample(dir string) []string {
	env := []string{"PATH=" + dir + ":/usr/bin:/bin", "LANG=" + language, "HOME=/"}
	for i := range 100 {
		env = append(env, fmt.Sprintf("e3_%d=%d", i*i, i))
	}
	return env
}
