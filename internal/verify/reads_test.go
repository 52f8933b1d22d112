package verify_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/verify"
	"e3/refstore"
)

// reads counts the reads of executions: lists of a key's records, records, and logs.
type reads struct {
	verify.Records
	lists, records, logs atomic.Int64
}

func (r *reads) List(ctx context.Context, q refstore.Query) iter.Seq2[refstore.Record, error] {
	if strings.HasPrefix(q.Partition, "EXECUTION/") {
		r.lists.Add(1)
	}
	return r.Records.List(ctx, q)
}

func (r *reads) Get(ctx context.Context, key refstore.Key, fields ...string) (refstore.Record, error) {
	if strings.HasPrefix(key.Partition, "EXECUTION/") {
		r.records.Add(1)
	}
	return r.Records.Get(ctx, key, fields...)
}

func (r *reads) Open(ctx context.Context, key refstore.Key, offset int64) (io.ReadCloser, error) {
	if strings.HasPrefix(key.Partition, "LOG/") {
		r.logs.Add(1)
	}
	return r.Records.Open(ctx, key, offset)
}

// ShortLogs passes on the store's answer.
func (r *reads) ShortLogs() bool {
	s, ok := r.Records.(interface{ ShortLogs() bool })
	return ok && s.ShortLogs()
}

// A check of a repository without faults reads each execution once, with its two logs: what the execution names is followed
// from that reading.
func TestExecutionsAreReadOnce(t *testing.T) {
	s := newSite(t)
	const tasks = 20
	lines := []string{"inputs: {a: {value: 1}}", "tasks:"}
	for i := range tasks {
		lines = append(lines, fmt.Sprintf("  t%d: {in: [a], out: o, run: text o %d}", i, i))
	}
	s.deploy("ws", lines...)
	s.start("ws")
	r := &reads{Records: s.Records}
	stores := s.stores()
	stores.Records = r
	stores.Curator = executions.NewCurator(executions.NewStore(r, s.Objects), s.Records, time.Now)
	report, err := verify.Verify(s.Context(), stores, verify.Options{})
	s.must(err)
	if report.Executions != tasks || len(report.Faults) > 0 {
		t.Fatalf("it reports %d executions, %+v, want %d and no fault", report.Executions, report.Faults, tasks)
	}
	if n := r.lists.Load(); n != tasks {
		t.Errorf("it lists %d keys, want each of %d once", n, tasks)
	}
	if n := r.records.Load(); n != 0 {
		t.Errorf("it reads %d records once more", n)
	}
	if n := r.logs.Load(); n != 2*tasks {
		t.Errorf("it opens %d logs, want %d", n, 2*tasks)
	}
}
