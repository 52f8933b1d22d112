package record_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/record"
	"e3/internal/testing/suite"
)

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
