//go:build linux

package e2e

import (
	"bytes"
	"os"
	"syscall"
	"testing"
)

// On a disk that shares blocks, an output in its place in the project costs no second copy.
func TestInPlaceSharesBlocks(t *testing.T) {
	v := newVolume(t, "xfs", "512", "-m", "reflink=1")
	p := v.project("project", map[string]string{"e3.yaml": `e3: 1
name: large
results: .
tasks:
  large: {out: models/large.bin, run: 'dd if=/dev/urandom of="$out" bs=1M count=64 status=none'}
`})
	free := func() uint64 {
		syscall.Sync()
		var st syscall.Statfs_t
		if err := syscall.Statfs(v.dir, &st); err != nil {
			t.Fatal(err)
		}
		return st.Bfree * uint64(st.Bsize)
	}
	before := free()
	p.start(0)
	const size = 64 << 20
	if used := before - free(); used > size*3/2 {
		t.Errorf("an output of %d bytes takes %d bytes of disk: its blocks are not shared", size, used)
	}
	// An edit of the file in the project is none of the object.
	f, err := os.OpenFile(p.path("models/large.bin"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Repeat([]byte("x"), 4096)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	check(t, p.repository())
	p.start(0)
	data, err := os.ReadFile(p.path("models/large.bin"))
	if err != nil || !bytes.HasPrefix(data, []byte("xxxx")) || len(data) != size {
		t.Errorf("an edited file was not kept: %d bytes, %v", len(data), err)
	}
}
