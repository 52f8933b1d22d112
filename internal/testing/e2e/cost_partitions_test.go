//go:build linux

package e2e

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"

	"e3/internal/repo"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// mostWrites are the write units that a short task takes from partition keys that all tasks of a queue share, at most,
// and over how many keys they are spread: the table in doc/cost.md, "One partition key".
var mostWrites = map[string]struct{ units, keys float64 }{
	"QUEUE/jobs": {7, 16}, "QUEUE/ready": {4, 16}, "QUEUE/finished": {2, 16}, "QUEUE/told": {0.5, 1}, "TASKS": {1, 16},
	"ID.EXECUTION": {1, 16},
	"LEASE":        {3, 256},
	"EXECUTION":    {3, 0}, // keys for each task
	"INPUTS":       {1, 0}, // likewise
}

// tasksASecond is what one queue is to finish, and writesASecond what a partition key takes.
const (
	tasksASecond  = 2000
	writesASecond = 1000
)

// kindOfPartition is a partition key without what differs between repositories, queues, runs and tasks.
func kindOfPartition(pk string) string {
	parts := strings.Split(pk, "/")
	if parts[0] == "QUEUE" && len(parts) > 3 {
		return parts[0] + "/" + parts[3]
	}
	return parts[0]
}

// TestUnitsByPartitionKey counts what tasks take of each partition key, behind a server that refuses more than AWS's
// 1,000 write and 3,000 read units a second: this machine makes as many tasks as it can, and no request is refused. By
// the counted units one queue finishes 2,000 a second.
func TestUnitsByPartitionKey(t *testing.T) {
	suite.Thorough(t)
	const tasks = 200
	meter := testserver.NewMeter(t, testserver.Minidyn(t))
	meter.Limit(testserver.Units{Reads: 3000, Writes: 1000})
	p := newProjectBelow(t, inMemory(), nil)
	p.env = append(p.env, testserver.Env()...)
	p.env = append(p.env, repo.CacheDirVariable+"="+p.path("cache"), repo.StateDirVariable+"="+p.path("state"))
	var items []string
	for i := range tasks {
		items = append(items, fmt.Sprint(i))
	}
	p.write("e3.yaml", fmt.Sprintf("e3: 1\nname: p\ninputs: {a: {value: 1}}\ntasks:\n  t: {matrix: {n: [%s]}, in: [a], out: o, run: %s}\n",
		strings.Join(items, ", "), executedCases[0].run))
	name := testserver.Name()
	where := "dynamodb://" + name + "/team?lease=10m&endpoint=" + url.QueryEscape(meter.URL())
	p.must("init", where+"&bucket="+name+"&s3-endpoint="+url.QueryEscape(testserver.GoFakeS3(t)))
	w := p.spawn("worker", where, "--json", "-j", "20")
	w.waitLine(`"type":"worker.ready"`)
	p.must("workspace", "create", where, "w")
	p.must("workspace", "deploy", where, "w", "e3.yaml")
	meter.Used()
	p.must("start", where, "w", "--workers")
	syscall.Kill(w.pid(), syscall.SIGTERM) // it writes what follows from the last jobs
	w.wait()
	used, throttled := meter.Used()
	if throttled > 0 {
		t.Errorf("%d requests were refused, as a partition key took no more", throttled)
	}
	sum := map[string]testserver.Units{}
	for pk, u := range used {
		kind := kindOfPartition(pk)
		sum[kind] = testserver.Units{Reads: sum[kind].Reads + u.Reads, Writes: sum[kind].Writes + u.Writes}
	}
	for _, kind := range slices.Sorted(maps.Keys(sum)) {
		reads, writes := sum[kind].Reads/tasks, sum[kind].Writes/tasks
		t.Logf("%-20s %6.2f read, %6.2f written by a task", kind, reads, writes)
		most := mostWrites[kind]
		if writes > max(most.units, 0.5)+0.1 {
			t.Errorf("%s: a task takes %.2f write units, want %.1f at most", kind, writes, most.units)
		}
		if most.keys > 0 && writes/most.keys*tasksASecond > writesASecond {
			t.Errorf("%s: %d tasks a second take %.0f write units of each of its %v keys", kind, tasksASecond, writes/most.keys*tasksASecond, most.keys)
		}
	}
	for _, kind := range []string{"QUEUE/jobs", "QUEUE/finished", "TASKS", "ID.EXECUTION"} {
		keys, hottest := 0, 0.0
		for pk, u := range used {
			if kindOfPartition(pk) == kind && u.Writes > 1 { // the run itself is a record beside the finished ones
				keys, hottest = keys+1, max(hottest, u.Writes)
			}
		}
		if t.Logf("%-20s in %d keys, of which one takes %.0f of %.0f units", kind, keys, hottest, sum[kind].Writes); keys != 16 || hottest > sum[kind].Writes/5 {
			t.Errorf("%s is in %d keys, want 16, and one takes %.0f of %.0f units, want a fifth at most", kind, keys, hottest, sum[kind].Writes)
		}
	}
}
