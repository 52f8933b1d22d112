package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"e3/cmd/e3/internal/term"
	"e3/executions"
	"e3/internal/host/runner"
)

// inRoom runs a program in the closed room of a visit, with the terminal of this process.
func (a *app) inRoom(ctx context.Context, v *executions.Visit, argv, env []string) (int, error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	interrupts := signals
	if term.Of(a.Stdout) != nil { // the terminal sends Ctrl-C to the program too
		interrupts = make(chan os.Signal, 1)
	}
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)

	var copies sync.WaitGroup
	stdin, endIn, err := inFile(a.stdin)
	if err != nil {
		return 0, err
	}
	defer endIn()
	stdout, endOut, err := outFile(a.Stdout, &copies)
	if err != nil {
		return 0, err
	}
	stderr, endErr, err := outFile(a.Stderr, &copies)
	if err != nil {
		return 0, errors.Join(err, endOut())
	}
	files := [3]*os.File{stdin, stdout, stderr}
	env = append(slices.Clip(env), "PWD=/e3/work")
	status, err := runner.Visit(v.Closed, argv, env, files, signals)
	if runner.CannotMount(err) && len(v.Closed.Lower) > 0 {
		if err = v.Copy(ctx); err == nil {
			status, err = runner.Visit(v.Closed, argv, env, files, signals)
		}
	}
	err = errors.Join(err, endOut(), endErr())
	copies.Wait()
	var start *runner.StartError
	switch {
	case errors.As(err, &start) && !runner.NoRoom(err):
		return 0, usagef("%v", err)
	case err != nil:
		return 0, err
	case status.Signaled():
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}

// inFile is a file from which a program can read r. end releases it.
func inFile(r io.Reader) (f *os.File, end func(), err error) {
	if f, ok := r.(*os.File); ok {
		return f, func() {}, nil
	}
	if r == nil {
		f, err = os.Open(os.DevNull)
		return f, func() { f.Close() }, err
	}
	f, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	go func() {
		_, _ = io.Copy(w, r) // ends when the program reads no more
		w.Close()
	}()
	return f, func() { f.Close() }, nil
}

// outFile is a file to which a program can write what w gets. end must be called when the program has ended; then copies
// ends too.
func outFile(w io.Writer, copies *sync.WaitGroup) (f *os.File, end func() error, err error) {
	if f, ok := w.(*os.File); ok {
		return f, func() error { return nil }, nil
	}
	r, f, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	copies.Go(func() {
		_, _ = io.Copy(w, r)
		r.Close()
	})
	return f, f.Close, nil
}
