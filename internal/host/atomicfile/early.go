package atomicfile

import "os"

// earlyStep is after how many bytes write-back is requested again.
const earlyStep = 16 << 20

// An Early writes a large file that will be synced, and asks the system, where it can, to begin write-back while more
// is being written: the final sync then waits for the rest only. Writes are mostly sequential, and one at a time.
type Early struct {
	*os.File
	end, asked int64
}

// WriteAt implements io.WriterAt.
func (e *Early) WriteAt(p []byte, offset int64) (int, error) {
	n, err := e.File.WriteAt(p, offset)
	e.end = max(e.end, offset+int64(n))
	if e.end-e.asked >= earlyStep {
		beginWriteBack(e.File, e.asked, e.end-e.asked) // a hint: only the time shows whether it was followed
		e.asked = e.end
	}
	return n, err
}
