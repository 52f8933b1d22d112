package fs

import (
	"testing"

	"golang.org/x/sys/unix"
)

// CutWrites has writes in place end after most bytes, until the end of the test. It returns how many were cut.
func CutWrites(t *testing.T, most int) *int {
	n := new(int)
	pwrite = func(fd int, data []byte, offset int64) (int, error) {
		if len(data) > most {
			*n++
			data = data[:most]
		}
		return unix.Pwrite(fd, data, offset)
	}
	t.Cleanup(func() { pwrite = unix.Pwrite })
	return n
}

// InMiddleOfWrite calls f in the middle of each write in place, until the end of the test.
func InMiddleOfWrite(t *testing.T, f func()) {
	pwrite = func(fd int, data []byte, offset int64) (int, error) {
		half := len(data) / 2
		n, err := unix.Pwrite(fd, data[:half], offset)
		if err != nil {
			return n, err
		}
		f()
		m, err := unix.Pwrite(fd, data[half:], offset+int64(half))
		return n + m, err
	}
	t.Cleanup(func() { pwrite = unix.Pwrite })
}
