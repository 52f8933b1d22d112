package record_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/record"
	"e3/internal/testing/suite"
)

// full is a policy with retries, an approval and a choice of workers.
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

// A policy that says one thing is kept.
func TestEachPolicyIsKept(t *testing.T) {
	for name, p := range map[string]record.Policy{
		"on": {RetryOn: []string{"oom"}}, "lost": {Lost: 5}, "never lost": {Lost: -1}, "factor": {OOM: record.Escalation{Factor: 1.5}},
		"most": {OOM: record.Escalation{Max: 1}}, "approve": {Approve: true}, "suspend": {Suspend: 75}, "queue": {Queue: "q"}, "labels": {Labels: []string{"l"}},
		"keep": {OnLost: record.OnLostKeep}, "kill": {OnLost: record.OnLostKill}, "may fail": {MayFail: true}, "batch": {Batch: 1000}, "limits": {Limits: true},
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

func TestDecodeRefusesPolicies(t *testing.T) {
	with := func(change func(*record.Policy)) []byte {
		p := handledPackage("t", func(string) bool { return true })
		change(&p.Tasks[0].Policy)
		return p.Encode()
	}
	for name, c := range map[string]struct {
		data []byte
		says string
	}{
		"lost":            {with(func(p *record.Policy) { p.Lost = -2 }), "out of range"},
		"suspend":         {with(func(p *record.Policy) { p.Suspend = 256 }), "out of range"},
		"negative code":   {with(func(p *record.Policy) { p.Suspend = -1 }), "out of range"},
		"negative most":   {with(func(p *record.Policy) { p.OOM.Max = -1 }), "out of range"},
		"negative factor": {with(func(p *record.Policy) { p.OOM.Factor = -2 }), "out of range"},
		"infinite factor": {with(func(p *record.Policy) { p.OOM.Factor = math.Inf(1) }), "out of range"},
		"no factor":       {with(func(p *record.Policy) { p.OOM.Factor = math.NaN() }), "out of range"},
		"on lost":         {with(func(p *record.Policy) { p.OnLost = record.OnLostKill + 1 }), "variant tag 3 is not below 3"},
		"batch":           {with(func(p *record.Policy) { p.Batch = 1001 }), "out of range"},
		"negative batch":  {with(func(p *record.Policy) { p.Batch = -1 }), "out of range"},
	} {
		if err := decodePackage(c.data); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error that says %q", name, err, c.says)
		}
	}
}

// The lists of a policy count against the memory that a package may take.
func TestPolicyWithin(t *testing.T) {
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

func TestKeepsOnLost(t *testing.T) {
	for _, c := range []struct {
		policy record.Policy
		keeps  bool
	}{
		{record.Policy{}, true}, {record.Policy{Approve: true}, false}, {record.Policy{Suspend: 75}, false},
		{record.Policy{OnLost: record.OnLostKill}, false}, {record.Policy{OnLost: record.OnLostKeep, Approve: true, Suspend: 75}, true},
	} {
		if got := c.policy.KeepsOnLost(); got != c.keeps {
			t.Errorf("%+v goes on: %v, want %v", c.policy, got, c.keeps)
		}
	}
}

// A package object holds each field of a task's policy.
func TestPolicyRoundTrip(t *testing.T) {
	p := &record.Package{Name: "p", Version: "1", Tasks: []record.PackageTask{{Name: "t", Task: strings.Repeat("0", 64)}}}
	want := &p.Tasks[0].Policy
	suite.EachField(t, want, func(name string) {
		got, err := record.DecodePackage(p.Encode())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if diff := cmp.Diff(*want, got.Tasks[0].Policy); diff != "" {
			t.Errorf("%s differs after encoding and decoding (-want +got):\n%s", name, diff)
		}
	})
}
