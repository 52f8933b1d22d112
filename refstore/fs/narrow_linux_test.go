package fs

import "testing"

func TestSumUnwritten(t *testing.T) {
	const text = "MemTotal:       24689512 kB\nDirty:               100 kB\nWriteback:            28 kB\nWritebackTmp:         5 kB\n"
	if got := sumUnwritten([]byte(text)); got != 128<<10 {
		t.Errorf("%d bytes, want 128 KiB", got)
	}
}
