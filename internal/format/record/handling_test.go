package record_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/digest"
	"e3/internal/format/record"
)

// full is a policy with every field of handling.
func full() record.Policy {
	return record.Policy{
		RetryOn: []string{"timeout", "75"}, Lost: -1, OOM: record.Escalation{Factor: 2, Max: 64 << 30}, Approve: true, Suspend: 76,
		Queue: "gpu", Labels: []string{"gpu", "big"},
	}
}

func handledPackage(names string, handled func(name string) bool) *record.Package {
	p := &record.Package{Name: "p"}
	for _, name := range strings.Fields(names) {
		t := record.PackageTask{Name: name, Task: strings.Repeat("0", 64)}
		if handled(name) {
			t.Policy = full()
		}
		p.Tasks = append(p.Tasks, t)
	}
	return p
}

// Handling adds a field; a package without handling keeps the bytes that it had before the field existed.
func TestPackageHandling(t *testing.T) {
	plain := &record.Package{Name: "p", Tasks: []record.PackageTask{{Name: "t", Task: strings.Repeat("0", 64), Policy: record.Policy{Retries: 2, Memory: 1 << 30}}}}
	const known = "36de6f02ceb7a971fcac3cdc22d7e6d8d0742e3cc2d5eeb2e84cf211f23ca52f"
	if got := digest.Sum(plain.Encode()).String(); got != known {
		t.Errorf("a package whose tasks have retries and memory only has the hash %s, want %s", got, known)
	}
	if bytes.Contains(plain.Encode(), []byte("handling")) {
		t.Error("the field handling is there, though no task has any")
	}
	for _, marked := range []bool{false, true} {
		p := handledPackage("a b c d", func(name string) bool { return name == "b" || name == "d" })
		p.Inputs = []record.PackageInput{{Name: "in", NoExport: marked, Default: record.Leaf{Kind: record.LeafUnassigned}}}
		p.Tasks[0].Policy.Retries = 1
		p.Tasks[3].Policy.Timeout = 1e9
		got, err := record.DecodePackage(p.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, got); diff != "" {
			t.Errorf("with a marked input %v (-want +got):\n%s", marked, diff)
		}
	}
}

// A policy with only one part of handling is kept too.
func TestEachHandlingIsKept(t *testing.T) {
	for name, p := range map[string]record.Policy{
		"on": {RetryOn: []string{"oom"}}, "lost": {Lost: 5}, "never lost": {Lost: -1}, "factor": {OOM: record.Escalation{Factor: 1.5}},
		"most": {OOM: record.Escalation{Max: 1}}, "approve": {Approve: true}, "suspend": {Suspend: 75}, "queue": {Queue: "q"}, "labels": {Labels: []string{"l"}},
	} {
		pkg := &record.Package{Tasks: []record.PackageTask{{Name: "t", Policy: p}}}
		got, err := record.DecodePackage(pkg.Encode())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(pkg, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDecodeRefusesHandling(t *testing.T) {
	replaced := func(from, to string) []byte {
		data := handledPackage("a1 b2 c3", func(name string) bool { return name != "b2" }).Encode()
		at := bytes.LastIndex(data, []byte(from))
		if at < 0 {
			t.Fatalf("%q is not in %q", from, data)
		}
		return append(append(bytes.Clone(data[:at]), to...), data[at+len(from):]...)
	}
	with := func(change func(*record.Policy)) []byte {
		p := handledPackage("t", func(string) bool { return true })
		change(&p.Tasks[0].Policy)
		return p.Encode()
	}
	saysNothing := func(data []byte) []byte {
		i := bytes.LastIndex(data, []byte("\x02a1\x00\x02\x07timeout"))
		return append(bytes.Clone(data[:i]), "\x02a1"+strings.Repeat("\x00", 18)...)
	}
	for name, c := range map[string]struct {
		data []byte
		says string
	}{
		"of no task":      {replaced("\x02c3\x00\x02", "\x02d4\x00\x02"), "no such task"},
		"task twice":      {replaced("\x02c3\x00\x02", "\x02a1\x00\x02"), "no such task"},
		"out of order":    {replaced("\x02a1\x00\x02", "\x02c3\x00\x02"), "no such task"},
		"lost":            {with(func(p *record.Policy) { p.Lost = -2 }), "out of range"},
		"suspend":         {with(func(p *record.Policy) { p.Suspend = 256 }), "out of range"},
		"negative code":   {with(func(p *record.Policy) { p.Suspend = -1 }), "out of range"},
		"negative most":   {with(func(p *record.Policy) { p.OOM.Max = -1 }), "out of range"},
		"negative factor": {with(func(p *record.Policy) { p.OOM.Factor = -2 }), "out of range"},
		"infinite factor": {with(func(p *record.Policy) { p.OOM.Factor = math.Inf(1) }), "out of range"},
		"no factor":       {with(func(p *record.Policy) { p.OOM.Factor = math.NaN() }), "out of range"},
		"says nothing":    {saysNothing(handledPackage("a1", func(string) bool { return true }).Encode()), "says nothing"},
	} {
		if err := decodePackage(c.data); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error that says %q", name, err, c.says)
		}
	}
	data := handledPackage("a1", func(string) bool { return true }).Encode()
	none := append(bytes.Clone(data[:bytes.LastIndex(data, []byte("\x00\x01\x02a1"))]), 0, 0)
	if err := decodePackage(none); err == nil || !strings.Contains(err.Error(), "no task is handled") {
		t.Errorf("no task: %v", err)
	}
}

// The lists of the handling count against the memory that a package may take.
func TestHandlingWithin(t *testing.T) {
	p := handledPackage("t", func(string) bool { return true })
	p.Tasks[0].Policy.Labels = []string{"wxyz"}
	data := grown(t, p.Encode(), "\x04wxyz", 10_000)
	if err := decodePackage(data); err != nil {
		t.Errorf("without a bound: %v", err)
	}
	if _, err := record.DecodePackageWithin(data, 10_000); err == nil || !strings.Contains(err.Error(), "bytes of memory") {
		t.Errorf("within 10,000 bytes: %v", err)
	}
}

func TestLostAttempts(t *testing.T) {
	for _, c := range []struct {
		name string
		p    record.Policy
		want int64
	}{
		{"unsaid", record.Policy{}, 3}, {"given", record.Policy{Lost: 7}, 7}, {"none", record.Policy{Lost: -1}, 0},
		{"not worth it", record.Policy{RetryOn: []string{"timeout", "75"}, Lost: 2}, 0}, {"worth it", record.Policy{RetryOn: []string{"exit", "lost"}}, 3},
	} {
		if got := c.p.LostAttempts(); got != c.want {
			t.Errorf("%s: %d attempts, want %d", c.name, got, c.want)
		}
	}
}
