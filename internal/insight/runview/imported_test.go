package runview_test

import (
	"slices"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// This repository checked only the signature of the last step: the other signatures are claims of the last exporter.
func TestWhence(t *testing.T) {
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	p := &record.Provenance{Steps: []record.Step{
		{By: "ann@a", Repository: "/a", Signer: record.Signer{Key: "e3pub1A", Name: "ann, e3pub1B)"}, ImportedAt: now.Add(-72 * time.Hour)},
		{By: "bob@b", Repository: "/b", ImportedAt: now.Add(-2 * time.Hour)},
		{By: "cid@c", Repository: "/c", Signer: record.Signer{Key: "e3pub1C"}, ImportedAt: now},
	}}
	want := []string{
		"just now from cid@c:/c (signed by e3pub1C)",
		"there 2 hours ago from bob@b:/b",
		`there 3 days ago from ann@a:/a (said to be signed by "ann, e3pub1B)", e3pub1A)`,
	}
	if got := runview.Whence(runview.Steps(p), now); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for i, s := range runview.Steps(p) {
		if s.Signer != nil && s.Signer.Verified != (i == 2) {
			t.Errorf("step %d: verified is %v", i, s.Signer.Verified)
		}
	}
}
