package rootfs

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// Fingerprint identifies the state of everything below a folder. A change shows in the change time, which no program
// can set back. The fingerprint does not depend on the folder's path.
func Fingerprint(folder string) (string, error) {
	sum := sha256.New()
	var b []byte
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: %w", path, fs.ErrInvalid)
		}
		b = append(append(b[:0], path[len(folder):]...), 0)
		for _, n := range []int64{int64(s.Mode), s.Size, int64(s.Ino), s.Mtim.Nano(), s.Ctim.Nano()} {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
		sum.Write(b)
		return nil
	})
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}
