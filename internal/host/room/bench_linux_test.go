//go:build amd64 || arm64

package room_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"e3/internal/host/beneath"
	"e3/internal/host/room"

	"golang.org/x/sys/unix"
)

// measure reports quantiles, which say more than a mean on a machine with other work, and processor time.
func measure(b *testing.B, f func()) {
	var times []float64
	var before, after [2]unix.Rusage
	unix.Getrusage(0, &before[0])
	unix.Getrusage(-1, &before[1])
	for b.Loop() {
		t0 := time.Now()
		f()
		times = append(times, float64(time.Since(t0).Microseconds()))
	}
	unix.Getrusage(0, &after[0])
	unix.Getrusage(-1, &after[1])
	cpu := 0.0
	for i := range before {
		cpu += float64(after[i].Utime.Nano()+after[i].Stime.Nano()-before[i].Utime.Nano()-before[i].Stime.Nano()) / 1e3
	}
	slices.Sort(times)
	b.ReportMetric(times[0], "min-us")
	b.ReportMetric(times[len(times)/4], "p25-us")
	b.ReportMetric(times[len(times)/2], "p50-us")
	b.ReportMetric(cpu/float64(len(times)), "cpu-us")
}

func bench(b *testing.B, p *place) {
	null, _ := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin"}
	spec := &room.Spec{Paths: []string{"/bin/true"}, Argv: []string{"true"}, Env: env, Dir: room.Work, Files: [3]int{int(null.Fd()), int(null.Fd()), int(null.Fd())}}
	defer null.Close()
	measure(b, func() {
		if p.each != nil {
			p.each()
		}
		onStarter(func() {
			if result, err := finish(slots.Start(&p.Room, spec)); err != nil || result.Status != 0 {
				panic(fmt.Sprint(result, err))
			}
		})
	})
}

func BenchmarkRoom(b *testing.B) { bench(b, newPlace(b)) }

// BenchmarkLower has inputs below the folder of the command.
func BenchmarkLower(b *testing.B) {
	for _, n := range []int{1, 10, 50} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPlace(b)
			p.Scratch = filepath.Join(p.Base, "w1", "scratch")
			for i := range n {
				below := filepath.Join(p.Base, fmt.Sprint("k", i))
				if err := os.MkdirAll(filepath.Join(below, "work", "data"), 0o755); err != nil {
					b.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(below, "work", "data", fmt.Sprint(i)), nil, 0o644); err != nil {
					b.Fatal(err)
				}
				p.Lower = append(p.Lower, below)
			}
			p.each = func() {
				in, err := beneath.Open(p.Folder)
				if err != nil {
					b.Fatal(err)
				}
				defer in.Close()
				for _, folder := range []string{".", "work"} {
					if err := room.Unmark(in, folder); err != nil {
						b.Fatal(err)
					}
				}
				if err := beneath.RemoveAll(p.Scratch); err != nil {
					b.Fatal(err)
				}
				if err := os.Mkdir(p.Scratch, 0o700); err != nil {
					b.Fatal(err)
				}
			}
			bench(b, p)
		})
	}
}

func BenchmarkNet(b *testing.B) {
	p := newPlace(b)
	p.Network = true
	bench(b, p)
}

func BenchmarkOpen(b *testing.B) {
	measure(b, func() {
		done := make(chan struct{})
		starter <- func() {
			pid, err := syscall.ForkExec("/bin/true", []string{"/bin/true"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
			if err != nil {
				b.Fatal(err)
			}
			syscall.Wait4(pid, nil, 0, nil)
			close(done)
		}
		<-done
	})
}
