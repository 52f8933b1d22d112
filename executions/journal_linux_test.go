package executions_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
)

// A worker that stands still while it stores outputs has their journal locked: the one that adopts its command does not
// touch them, and the execution is lost.
func TestAdoptWhileStoring(t *testing.T) {
	e := beginWork(t, &order{Announce: time.Millisecond}, untilGo+"echo made > out")
	e.running(t, "begun\n")
	e.kill(t)
	boxes, err := filepath.Glob(filepath.Join(e.lab.dir, "tmp", "session-*", "w*"))
	if err != nil || len(boxes) != 1 {
		t.Fatalf("the sandboxes are %v, %v", boxes, err)
	}
	journal, err := os.OpenFile(filepath.Join(boxes[0], "taken"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	if err := syscall.Flock(int(journal.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	o := <-e.adopt(t.Context(), e.orphan(t))
	if o.err != nil || o.res.State != record.Error || o.res.Reason != executions.ReasonLost || !strings.Contains(o.res.Message, "stands still") {
		t.Errorf("got %+v, %v, want that the execution is lost", o.res, o.err)
	}
	e.gone(t, "pid")
}
