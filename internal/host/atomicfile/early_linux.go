package atomicfile

import (
	"os"

	"golang.org/x/sys/unix"
)

func beginWriteBack(f *os.File, offset, size int64) {
	unix.SyncFileRange(int(f.Fd()), offset, size, unix.SYNC_FILE_RANGE_WRITE)
}
