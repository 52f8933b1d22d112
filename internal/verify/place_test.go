package verify_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"e3/internal/verify"
)

// TestPlace: a place in S3 that belongs to another repository, or has lost its owner mark, is a fault. Only an explicit
// command takes such a place.
func TestPlace(t *testing.T) {
	s := newSite(t)
	stores := s.stores()
	stores.Place = func(context.Context) error { return errors.New("repository.json is gone") }
	r, err := verify.Verify(t.Context(), stores, verify.Options{Repair: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Faults) != 1 || r.Faults[0].Repaired || !strings.Contains(r.Faults[0].Advice, "init --take-over") || !strings.Contains(r.Faults[0].Problem, "is gone") {
		t.Errorf("got\n%swant one fault that is not repaired, with the command that takes the place", list(r))
	}
}
