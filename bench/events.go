package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// events measures the cost of events, compared with the same program without events, and the time of a query over many.
func (b *bench) events() error {
	if b.wants("events, cold") || b.wants("events, unchanged") {
		if err := b.eventCost(); err != nil {
			return err
		}
	}
	if b.wants("events, 1 task of 10^6") {
		return b.eventQuery()
	}
	return nil
}

// eventCost runs a graph with events and without, in turns; each round begins with the variant that ended the
// previous one.
func (b *bench) eventCost() error {
	silent := filepath.Join(b.dir, "e3-noevents")
	if out, err := exec.Command("go", "build", "-tags", "noevents", "-o", silent, "e3/cmd/e3").CombinedOutput(); err != nil {
		return fmt.Errorf("build e3 without events: %w\n%s", err, out)
	}
	programs := [2]string{b.e3, silent}
	g := graph{"layered", 10_000, 2_000, false}
	var cold, unchanged [2][]time.Duration
	var last [2]string
	turns := func(r int, do func(k int) error) error {
		for _, k := range [2]int{r % 2, 1 - r%2} {
			if err := do(k); err != nil {
				return err
			}
		}
		return nil
	}
	for r := range b.rounds {
		err := turns(r, func(k int) error {
			last[k] = filepath.Join(b.dir, "events", strconv.Itoa(r), strconv.Itoa(k))
			if err := g.write(last[k]); err != nil {
				return err
			}
			t, _, err := timed(last[k], programs[k], "start", "-f", "e3.yaml", "--progress", "none")
			cold[k] = append(cold[k], t)
			return err
		})
		if err != nil {
			return err
		}
	}
	row("events, cold (peer: without)", median(cold[0]), median(cold[1]), 1.05, g.name())
	for r := range 8 * b.rounds {
		err := turns(r, func(k int) error {
			t, _, err := timed(last[k], programs[k], "start", "-f", "e3.yaml")
			if r > 0 { // the first run after a cold one checks every object once
				unchanged[k] = append(unchanged[k], t)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	row("events, unchanged (peer: without)", median(unchanged[0]), median(unchanged[1]), 1.1, g.name())
	return nil
}

// eventQuery measures a query for one task among a million events, all of one run or of a thousand. The peer counts the
// lines.
func (b *bench) eventQuery() error {
	const n = 1_000_000
	for _, runs := range []int{1, 1000} {
		dir := filepath.Join(b.dir, fmt.Sprintf("query%d", runs))
		root := filepath.Join(dir, ".e3")
		if out, err := exec.Command(b.e3, "init", root).CombinedOutput(); err != nil {
			return fmt.Errorf("e3 init: %w\n%s", err, out)
		}
		if err := os.MkdirAll(filepath.Join(root, "events", "prod"), 0o755); err != nil {
			return err
		}
		began := time.Now().Add(-time.Duration(runs) * time.Hour)
		for r := range runs {
			ms := fmt.Sprintf("%012x", began.Add(time.Duration(r)*time.Hour).UnixMilli())
			id := ms[:8] + "-" + ms[8:] + "-7000-8000-000000000000"
			err := create(filepath.Join(root, "events", "prod", id+".ndjson"), func(w *bufio.Writer) { eventLog(w, id, n/runs) })
			if err != nil {
				return err
			}
		}
		task := fmt.Sprintf("prod.train[%d]", n/runs/4/2)
		var e3, peer []time.Duration
		var memory int64
		for range b.rounds {
			t, m, err := timed(dir, b.e3, "events", ".", task, "--ndjson")
			if err != nil {
				return err
			}
			u, _, err := timed(filepath.Join(root, "events"), "sh", "-c", "cat prod/* | wc -l")
			if err != nil {
				return err
			}
			e3, peer, memory = append(e3, t), append(peer, u), max(memory, m)
		}
		row(fmt.Sprintf("events, 1 task of 10^6, runs: %d", runs), median(e3), median(peer), 0, fmt.Sprintf("peer: wc -l; target: under 1 s; %d MiB", memory>>10))
	}
	return nil
}

// eventLog writes the events of a run as e3 does: three of each executed task, and one of a cached one.
func eventLog(w *bufio.Writer, run string, n int) {
	key := strings.Repeat("0123456789abcdef", 4) + "/" + strings.Repeat("fedcba9876543210", 4)
	var line bytes.Buffer
	for i := range n {
		line.Reset()
		fmt.Fprintf(&line, `{"seq":%d,"time":"2026-11-20T12:00:00.000Z","run":"%s","workspace":"prod","type":"`, i+1, run)
		switch task := i / 4; {
		case i == 0:
			fmt.Fprintf(&line, `run.started","data":{"package":"bench@0.0.0"}}`)
		case i == n-1:
			fmt.Fprintf(&line, `run.completed","data":{"ms":1000}}`)
		case i%4 == 0:
			fmt.Fprintf(&line, `task.marked_ready","task":"train[%d]"}`, task)
		case i%4 == 1:
			fmt.Fprintf(&line, `task.started","task":"train[%d]","execution":"%s","data":{"key":"%s","attempt":1}}`, task, run, key)
		case i%4 == 2:
			fmt.Fprintf(&line, `task.completed","task":"train[%d]","execution":"%s","data":{"key":"%s","ms":12,"output":"%s"}}`, task, run, key, key[:64])
		default:
			fmt.Fprintf(&line, `task.cached","task":"score[%d]","execution":"%s","data":{"key":"%s","output":"%s"}}`, task, run, key, key[:64])
		}
		line.WriteByte('\n')
		w.Write(line.Bytes()) // an error shows at the flush
	}
}
