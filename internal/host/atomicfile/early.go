package atomicfile

import "os"

// earlyStep is the number of bytes after which write-back is requested again.
const earlyStep = 16 << 20

// An Early writes a large file that will be synced. Where possible, it asks the system to begin write-back during the
// writes, so that the final sync waits only for the rest. Writes are mostly sequential, and one at a time.
type Early struct {
	*os.File
	end, asked int64
}

// WriteAt implements io.WriterAt.
func (e *Early) WriteAt(p []byte, offset int64) (int, error) {
	n, err := e.File.WriteAt(p, offset)
	e.end = max(e.end, offset+int64(n))
	if e.end-e.asked >= earlyStep {
		beginWriteBack(e.File, e.asked, e.end-e.asked) // only a hint, for speed
		e.asked = e.end
	}
	return n, err
}
