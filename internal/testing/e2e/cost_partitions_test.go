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

// mostWrites are the write units that a short task takes from partition keys that all tasks of a queue share, at most:
// the table in doc/cost.md, "One partition key". What a partition key takes in a second divided by it is what one
// queue finishes.
var mostWrites = map[string]float64{
	"QUEUE/jobs": 7, "QUEUE/ready": 4, "QUEUE/finished": 2, "TASKS": 1,
	"ID.EXECUTION": 1, // over 16 keys
	"LEASE":        3, // over 256 keys
	"EXECUTION":    3, // a key for each task
	"INPUTS":       1, // likewise
}

// kindOfPartition is a partition key without what differs between repositories, queues, runs and tasks.
func kindOfPartition(pk string) string {
	parts := strings.Split(pk, "/")
	if parts[0] == "QUEUE" && len(parts) > 3 {
		return parts[0] + "/" + parts[3]
	}
	return parts[0]
}

// TestUnitsByPartitionKey counts what tasks take of each partition key, behind a server that refuses more than AWS's
// 1,000 write and 3,000 read units a second: this machine makes as many tasks as it can, and none is refused.
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
		if most := mostWrites[kind]; writes > max(most, 0.5)+0.1 {
			t.Errorf("%s: a task takes %.2f write units, want %.1f at most", kind, writes, most)
		}
	}
}
