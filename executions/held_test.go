package executions_test

import (
	"errors"
	"testing"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/refstore"
)

// A worker whose lease is in doubt when its command has ended asks first: if another worker has the command, it stores no
// output, records nothing, and leaves the end to that one.
func TestHeldIsAskedFirst(t *testing.T) {
	for _, lost := range []bool{true, false} {
		l := newLab(t)
		made := objectstore.Sum([]byte("made\n"))
		stored := func() bool {
			missing, err := l.objects.Missing(t.Context(), []objectstore.Hash{made})
			if err != nil {
				t.Fatal(err)
			}
			return len(missing) == 0
		}
		req := l.request(script("echo made > out"))
		asked := 0
		req.Job = executions.Job{Ref: aJob, Identity: "an attempt", Held: func() error {
			if asked++; stored() {
				t.Error("an output is stored before")
			}
			if lost {
				return refstore.ErrLost
			}
			return nil
		}}
		id := newID(t)
		res, err := l.Make(t.Context(), req, id)
		if asked != 1 {
			t.Errorf("asked %d times, want once", asked)
		}
		_, there := l.Get(t.Context(), keyOf(req), id)
		if !lost {
			if err != nil || res.State != record.Success || there != nil || !stored() {
				t.Errorf("held: made %+v, %v; on record %v", res, err, there)
			}
			continue
		}
		if !errors.Is(err, runner.ErrLeft) || !errors.Is(err, refstore.ErrLost) {
			t.Errorf("not held: made %+v, %v; want that the command is left", res, err)
		}
		if !errors.Is(there, executions.ErrNotFound) || stored() {
			t.Errorf("not held: on record %v, and the output is stored: %v", there, stored())
		}
	}
}
