package record_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/record"
)

// The policy for a lost lease adds a field; a package without it has the bytes that it had before.
func TestPackageOnLost(t *testing.T) {
	p := handledPackage("a b c", func(name string) bool { return name == "b" })
	if bytes.Contains(p.Encode(), []byte("onLost")) {
		t.Error("the field onLost is there, though no task says it")
	}
	for _, variable := range []bool{false, true} {
		if variable {
			p.Inputs = []record.PackageInput{{Name: "$V", Location: "V", Source: record.FromVariable, Default: record.Leaf{Kind: record.LeafUnassigned}}}
		}
		p.Tasks[0].Policy.OnLost, p.Tasks[2].Policy.OnLost = record.OnLostKeep, record.OnLostKill
		got, err := record.DecodePackage(p.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, got); diff != "" {
			t.Errorf("with a variable %v (-want +got):\n%s", variable, diff)
		}
	}
	p.Tasks[2].Policy.OnLost = 3
	if _, err := record.DecodePackage(p.Encode()); err == nil || !strings.Contains(err.Error(), "out of range") {
		t.Errorf("an unknown value: %v, want that it is out of range", err)
	}
}

// A task that may fail has a greater value, which an older e3 refuses, with and without a policy for a lost lease.
func TestPackageMayFail(t *testing.T) {
	p := handledPackage("a b c d", func(name string) bool { return name == "b" })
	for i, lost := range []record.OnLost{record.OnLostDefault, record.OnLostKeep, record.OnLostKill} {
		p.Tasks[i].Policy.MayFail, p.Tasks[i].Policy.OnLost = true, lost
	}
	got, err := record.DecodePackage(p.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	p.Tasks[0].Policy.OnLost = 3 // 7
	if _, err := record.DecodePackage(p.Encode()); err == nil || !strings.Contains(err.Error(), "out of range") {
		t.Errorf("an unknown value: %v, want that it is out of range", err)
	}
}

// The number of items of a batch stands beside both.
func TestPackageBatch(t *testing.T) {
	p := handledPackage("a b c d", func(string) bool { return false })
	for i, policy := range []record.Policy{{Batch: 1}, {Batch: 1000, OnLost: record.OnLostKill}, {Batch: 7, MayFail: true}, {}} {
		p.Tasks[i].Policy = policy
	}
	got, err := record.DecodePackage(p.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, policy := range []record.Policy{{Batch: 1001}, {Batch: 2, OnLost: 3}} {
		p.Tasks[3].Policy = policy
		if _, err := record.DecodePackage(p.Encode()); err == nil || !strings.Contains(err.Error(), "out of range") {
			t.Errorf("%+v: %v, want that it is out of range", policy, err)
		}
	}
}

// Limits have a greater value still.
func TestPackageLimits(t *testing.T) {
	p := handledPackage("a b c d", func(name string) bool { return name == "b" })
	for i, lost := range []record.OnLost{record.OnLostDefault, record.OnLostKeep, record.OnLostKill} {
		p.Tasks[i].Policy.Limits, p.Tasks[i].Policy.MayFail, p.Tasks[i].Policy.OnLost = true, i != 1, lost
	}
	got, err := record.DecodePackage(p.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	p.Tasks[0].Policy.OnLost = 3
	if _, err := record.DecodePackage(p.Encode()); err == nil || !strings.Contains(err.Error(), "out of range") {
		t.Errorf("an unknown value: %v, want that it is out of range", err)
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
