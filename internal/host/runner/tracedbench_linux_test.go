//go:build amd64 || arm64

package runner_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/internal/host/process"
	"e3/internal/host/room"
	"e3/internal/host/trace"
)

// BenchmarkTraced compares the processor time of commands, and of the supervisor with its tracers, with and without a trace:
// "traced/plain" is the median of pairs. Wall times depend on what else the machine does.
func BenchmarkTraced(b *testing.B) {
	files := b.TempDir()
	for i := range 200 {
		text := "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <math.h>\n#include \"h.h\"\n" +
			fmt.Sprintf("double f%d(double x) { char b[64]; snprintf(b, sizeof b, \"%%g\", x); return K * atof(b) + sqrt(x) + strlen(b); }\n", i)
		if err := os.WriteFile(filepath.Join(files, fmt.Sprintf("f%03d.c", i)), []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"h.h":    "#define K 3\n",
		"fit.py": "import json, csv, decimal, urllib.request, xml.dom.minidom, asyncio\nfor n in range(20): open(__file__).read()\nprint(sum(i*i for i in range(200000)))\n",
	} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(text), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct{ name, program, script string }{
		{"200CFiles", "gcc", "for f in *.c; do gcc -O1 -c $f -o x.o; done"},
		{"Python", "/usr/bin/python3", "for i in 1 2 3 4 5 6 7 8 9 10; do /usr/bin/python3 fit.py; done"},
		{"True", "true", "true"},
		{"100000Opens", "perl", "perl -e 'open(F, \"<\", \"/usr/no/such\") for 1..100000'"},
		{"100000OpensHere", "perl", "perl -e 'open(F, \"<\", \"no/such\") for 1..100000'"},
	} {
		for _, closed := range []bool{false, true} {
			b.Run(c.name+map[bool]string{false: "/open", true: "/closed"}[closed], func(b *testing.B) {
				if _, err := exec.LookPath(c.program); err != nil {
					b.Skipf("%s is not installed", c.program)
				}
				var ratios, walls, extra []float64
				for range b.N {
					plain, plainWall := price(b, files, c.script, closed, false)
					traced, tracedWall := price(b, files, c.script, closed, true)
					ratios = append(ratios, traced.Seconds()/plain.Seconds())
					extra = append(extra, float64(traced-plain)/1e6)
					walls = append(walls, tracedWall.Seconds()/plainWall.Seconds())
				}
				slices.Sort(ratios)
				slices.Sort(walls)
				slices.Sort(extra)
				b.ReportMetric(ratios[len(ratios)/2], "traced/plain")
				b.ReportMetric(extra[len(extra)/2], "extra-ms")
				b.ReportMetric(walls[len(walls)/2], "wall-ratio")
			})
		}
	}
}

// price is the processor time and the wall time of a script.
func price(b *testing.B, files, script string, closed, traced bool) (took, wall time.Duration) {
	spec := shell(b, script, b.TempDir())
	if closed {
		spec = inRoom(b, spec)
	}
	if err := os.CopyFS(spec.Dir, os.DirFS(files)); err != nil {
		b.Fatal(err)
	}
	if traced {
		spec.Trace = &trace.Look{Work: spec.Dir, Project: []string{files}, Inputs: []string{"f001.c", "h.h"}, Report: filepath.Join(b.TempDir(), "opened")}
		if closed {
			spec.Trace.Work = room.Work
		}
	}
	s := newSupervisor(b)
	first := shell(b, "sleep 0.1", spec.Dir)
	var parent int // the supervisor
	first.OnStart = func(id process.ID) {
		if stat, err := process.ReadStat(id.PID); err == nil {
			parent = stat.Parent
		}
	}
	if _, err := s.Run(b.Context(), first); err != nil {
		b.Fatal(err)
	}
	before := processorTime(b, parent)
	began := time.Now()
	r, err := s.Run(b.Context(), spec)
	wall = time.Since(began)
	if err != nil || !r.Success() {
		b.Fatalf("%+v, %v", r, err)
	}
	return r.UserCPU + r.SystemCPU + processorTime(b, parent) - before, wall
}

// processorTime is that of the threads of a process so far.
func processorTime(b *testing.B, pid int) time.Duration {
	var sum time.Duration
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		b.Fatalf("process %d: %v", pid, err)
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			continue
		}
		n, _ := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		sum += time.Duration(n)
	}
	return sum
}
