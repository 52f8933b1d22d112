package main

import (
	"errors"
	"fmt"
	"testing"

	"e3/internal/format/signature"
	"e3/internal/settings"
)

// A refused import has its own exit code.
func TestExitCodeOfTrust(t *testing.T) {
	for _, err := range []error{settings.ErrUnsigned, settings.ErrUntrusted, signature.ErrBadSignature} {
		if got := exitCode(fmt.Errorf("import x.zip: %w", err)); got != exitIntegrity {
			t.Errorf("%v ends with %d, want %d", err, got, exitIntegrity)
		}
	}
	if got := exitCode(errors.New("x")); got != exitFailed {
		t.Errorf("another error ends with %d, want %d", got, exitFailed)
	}
}
