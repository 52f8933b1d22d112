//go:build linux

package runner_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/process"
	"e3/internal/host/runner"
)

// BenchmarkStart compares a run with the standard library's, two at a time.
func BenchmarkStart(b *testing.B) {
	truePath, err := exec.LookPath("true")
	if err != nil {
		b.Fatal(err)
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TZ=UTC", "E3_EXECUTION=0192f0c1-2f1e-7c39-b3a8-000000000001"}
	dir := b.TempDir()
	out, err := os.Create(dir + "/out")
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()

	parallel := func(b *testing.B, run func() error) {
		b.ReportAllocs()
		var next atomic.Int64
		done := make(chan error)
		for range 2 {
			go func() {
				var err error
				for err == nil && next.Add(1) <= int64(b.N) {
					err = run()
				}
				done <- err
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				b.Error(err)
			}
		}
	}
	supervised := func(b *testing.B, spec runner.Spec, outlive *runner.Outlive) {
		s, err := runner.New(runner.Options{Outlive: outlive})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		var number atomic.Int64
		run := func() error {
			spec := spec
			if outlive != nil {
				spec.Identity = "workspace/task/" + strconv.FormatInt(number.Add(1), 10)
				spec.State = make([]byte, 500)
			}
			_, err := s.Run(context.Background(), spec)
			s.Release(spec.Identity)
			return err
		}
		if err := run(); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		parallel(b, run)
		b.StopTimer()
	}
	spec := runner.Spec{Argv: []string{truePath}, Dir: dir, Env: env, Stdout: out, Stderr: out, Marker: env[3]}

	b.Run("runner", func(b *testing.B) { supervised(b, spec, nil) })
	b.Run("runner-outliving", func(b *testing.B) { supervised(b, spec, &runner.Outlive{Dir: dir + "/s", For: time.Hour}) })
	b.Run("runner-announced", func(b *testing.B) {
		spec := spec
		spec.OnStart = func(process.ID) {}
		supervised(b, spec, nil)
	})
	b.Run("os-exec", func(b *testing.B) {
		parallel(b, func() error {
			cmd := exec.Command(truePath)
			cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, out, out
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			return cmd.Run()
		})
	})
	b.Run("fork-exec", func(b *testing.B) {
		null, err := os.Open(os.DevNull)
		if err != nil {
			b.Fatal(err)
		}
		defer null.Close()
		files := []uintptr{null.Fd(), out.Fd(), out.Fd()}
		parallel(b, func() error {
			pid, err := syscall.ForkExec(truePath, []string{truePath}, &syscall.ProcAttr{Dir: dir, Env: env, Files: files})
			if err != nil {
				return err
			}
			var status syscall.WaitStatus
			_, err = syscall.Wait4(pid, &status, 0, nil)
			return err
		})
	})
}

// BenchmarkFirstRun includes the start and the end of the supervisor process.
func BenchmarkFirstRun(b *testing.B) {
	dir := b.TempDir()
	for b.Loop() {
		s, err := runner.New(runner.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Run(b.Context(), runner.Spec{Argv: []string{"/bin/true"}, Dir: dir}); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
