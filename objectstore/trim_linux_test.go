package objectstore_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTrimBusy: if another process trims, Trim does nothing and keeps its count of new objects.
func TestTrimBusy(t *testing.T) {
	d := openDir(t)
	hs := fillAged(t, d, 10, 10, time.Now().Add(-time.Hour))
	other, err := os.OpenFile(filepath.Join(d.Path(), "lock-trim"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	grown := d.Grown()
	if n, err := d.Trim(t.Context(), 1, time.Now()); n != 0 || err != nil || d.Grown() != grown {
		t.Errorf("beside another: got %d bytes removed, %v, grown %d, want 0, nil, %d", n, err, d.Grown(), grown)
	}
	other.Close()
	if n, err := d.Trim(t.Context(), 1, time.Now()); n == 0 || err != nil {
		t.Errorf("alone: got %d bytes removed, %v", n, err)
	}
	if got := left(t, d, hs); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}
