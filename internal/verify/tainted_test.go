package verify_test

import (
	"slices"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/internal/verify"
	"e3/refstore"
)

// chain is a repository in which next reads first, last reads next, and parts reads a directory; apart reads neither.
func chain(t *testing.T) *site {
	s := newSite(t)
	s.write("data.txt", "data")
	s.deploy("w", `inputs: {data: {file: data.txt}}`, `tasks:`,
		`  first: {in: [data], out: o, run: make o first}`,
		`  next: {in: [first], out: o2, run: make o2 next}`,
		`  last: {in: [next], out: o3, run: make o3 last}`,
		`  folder: {in: [data], out: d/, run: make d/ folder}`,
		`  parts: {in: [folder], out: o, run: make o parts}`,
		`  apart: {in: [data], out: o, run: make o apart}`)
	s.start("w")
	return s
}

// unchecked makes executions look like those of an e3 that did not check reads.
func (s *site) unchecked(tasks ...string) {
	s.Helper()
	for _, task := range tasks {
		e := s.execution(task)
		key := refstore.Key{Partition: "EXECUTION/" + e.Key.String(), Sort: e.ExecutionID}
		rec, err := s.Records.Get(s.Context(), key)
		s.must(err)
		e.Detail.Checked = false
		rec.Fields = []refstore.Field{{Name: "detail.beast2", Value: e.Detail.Encode()}}
		_, err = s.Records.Put(s.Context(), rec)
		s.must(err)
	}
}

// doubtfuls are the tasks of the doubtful executions in a report.
func doubtfuls(r *verify.Report) []string {
	var tasks []string
	for _, f := range r.Faults {
		if f.Kind == verify.DoubtfulExecution {
			tasks = append(tasks, f.For[0][strings.LastIndex(f.For[0], ".")+1:])
		}
	}
	slices.Sort(tasks)
	return tasks
}

var all = []string{"first", "next", "last", "folder", "parts", "apart"}

func TestDoubtful(t *testing.T) {
	output := func(task string) func(*site) string {
		return func(s *site) string { return objectFile(s.leaf("w", task).Hash) }
	}
	entry := func(s *site) string { return objectFile(s.entry(s.leaf("w", "folder").Hash, "sub/deep")) }
	for name, tt := range map[string]struct {
		damaged   func(*site) string
		unchecked []string
		want      []string
	}{
		"what has read it, and so on":      {output("first"), all, []string{"last", "next"}},
		"reads that were checked":          {output("first"), nil, nil},
		"a checked one between":            {output("first"), []string{"first", "last"}, nil},
		"a checked one at the end":         {output("first"), []string{"next"}, []string{"next"}},
		"a file in a directory":            {entry, all, []string{"parts"}},
		"a directory":                      {output("folder"), all, []string{"parts"}},
		"an output that nothing has read":  {output("apart"), all, nil},
		"an input":                         {func(s *site) string { return objectFile(s.leaf("w", "data").Hash) }, all, []string{"apart", "first", "folder", "last", "next", "parts"}},
		"an input that checked reads have": {func(s *site) string { return objectFile(s.leaf("w", "data").Hash) }, []string{"apart"}, []string{"apart"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := chain(t)
			s.unchecked(tt.unchecked...)
			s.tear(tt.damaged(s), "spoiled")
			if got := doubtfuls(s.verify(verify.Options{})); !slices.Equal(got, tt.want) {
				t.Errorf("doubtful are %v, want %v", got, tt.want)
			}
			r := s.verify(verify.Options{Repair: true})
			if got := doubtfuls(r); !slices.Equal(got, tt.want) {
				t.Errorf("in a repair doubtful are %v, want %v", got, tt.want)
			}
			for _, task := range tt.want {
				e := s.execution(task)
				if !e.Rejected() || s.leaf("w", task).Kind != record.LeafUnassigned {
					t.Errorf("%s: rejected %v, in the workspace %+v", task, e.Rejected(), s.leaf("w", task))
				}
				if !slices.Contains(r.Rerun, "w."+task) {
					t.Errorf("%s is not among those that run again: %v", task, r.Rerun)
				}
			}
			for _, task := range all {
				if e := s.execution(task); e.Rejected() && !slices.Contains(tt.want, task) && !strings.Contains(e.Rejection.Reason, "corrupt") {
					t.Errorf("%s was rejected: %s", task, e.Rejection.Reason)
				}
			}
			if again := s.verify(verify.Options{Repair: true}); len(doubtfuls(again)) > 0 {
				t.Errorf("after the repair: %+v", again.Faults)
			}
		})
	}
}

// An older e3 has repaired the repository without a search for doubtful executions. The executions that had read the
// object are found through the rejection of its producer. A user's decision that an execution is right is kept.
func TestDoubtfulAfterRepair(t *testing.T) {
	s := chain(t)
	s.tear(objectFile(s.leaf("w", "first").Hash), "spoiled")
	s.verify(verify.Options{Repair: true}) // reads were checked, so only the producer is rejected
	if e := s.execution("first"); !e.Rejected() {
		t.Fatal("the producer was not rejected")
	}
	s.start("w")
	s.unchecked("next", "last", "parts")
	r := s.verify(verify.Options{Repair: true})
	if got := doubtfuls(r); !slices.Equal(got, []string{"last", "next"}) {
		t.Fatalf("doubtful are %v", got)
	}
	for _, task := range []string{"next", "last"} {
		e := s.execution(task)
		changed, err := s.curator().Reject(t.Context(), e.Key, e.ExecutionID, &record.Rejection{By: "me@here", At: e.CompletedAt})
		if err != nil || !changed {
			t.Fatalf("take back: %v, %v", changed, err)
		}
	}
	if res := s.start("w"); res.Run.Summary.Cached != res.Run.Summary.Total {
		t.Errorf("some were executed again: %+v", res.Run.Summary)
	}
	if again := s.verify(verify.Options{}); len(again.Faults) > 0 {
		t.Errorf("after it was taken back: %+v", again.Faults)
	}
}

// Another success that has the same output, and is not doubtful, vouches for it.
func TestDoubtfulOutputVouchedFor(t *testing.T) {
	s := newSite(t)
	s.write("data.txt", "data")
	s.deploy("w", `inputs: {data: {file: data.txt}, n: {value: 1}}`, `tasks:`,
		`  first: {in: [data], out: o, run: make o same}`,
		`  twin: {in: [n], out: o, run: make o same}`,
		`  reader: {in: [first], out: o2, run: make o2 reader}`)
	s.start("w")
	s.unchecked("first", "twin", "reader")
	s.tear(objectFile(s.leaf("w", "data").Hash), "spoiled")
	if got := doubtfuls(s.verify(verify.Options{})); !slices.Equal(got, []string{"first"}) {
		t.Errorf("doubtful are %v", got)
	}
}
