package runner

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// Foreground runs a program for a person, with their terminal, and returns how it ended. Signals are passed on.
func Foreground(cmd *exec.Cmd, signals <-chan os.Signal) (syscall.WaitStatus, error) {
	var none syscall.WaitStatus
	if err := cmd.Start(); err != nil {
		return none, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s)
		case err := <-ended:
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				return none, err
			}
			status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
			return status, nil
		}
	}
}

// FilesOf are the standard files of a program that Visit runs: in, out and errs themselves where they are files, else
// pipes from and to them. end must be called when the program has ended; it returns when all is copied.
func FilesOf(in io.Reader, out, errs io.Writer) (files [3]*os.File, end func() error, err error) {
	var copies sync.WaitGroup
	stdin, endIn, err := inFile(in)
	if err != nil {
		return files, nil, err
	}
	stdout, endOut, err := outFile(out, &copies)
	if err != nil {
		endIn()
		return files, nil, err
	}
	stderr, endErr, err := outFile(errs, &copies)
	if err != nil {
		endIn()
		return files, nil, errors.Join(err, endOut())
	}
	return [3]*os.File{stdin, stdout, stderr}, func() error {
		err := errors.Join(endOut(), endErr())
		copies.Wait()
		endIn()
		return err
	}, nil
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

// outFile is a file to which a program can write what w gets. end must be called when the program has ended; then
// copies ends too.
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
