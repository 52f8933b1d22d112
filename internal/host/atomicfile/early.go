package atomicfile

import "os"

// earlyStep is after how many bytes the system is asked again to write them.
const earlyStep = 16 << 20

// An Early writes to a large file that will be synced, and has the system begin to write to the disk while more is being made,
// where it can be asked for that: the sync at the end then waits for the rest only. What is written mostly follows what was
// written before. One write at a time.
type Early struct {
	*os.File
	end, asked int64
}

// WriteAt implements io.WriterAt.
func (e *Early) WriteAt(p []byte, offset int64) (int, error) {
	n, err := e.File.WriteAt(p, offset)
	e.end = max(e.end, offset+int64(n))
	if e.end-e.asked >= earlyStep {
		beginWriteBack(e.File, e.asked, e.end-e.asked) // a wish: whether it is granted shows in the time alone
		e.asked = e.end
	}
	return n, err
}
