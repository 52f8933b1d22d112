package lease_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
)

// TestUnrenewed: the error of a lost lease includes the error of its renewal, if there was one.
func TestUnrenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newWorld(t).on("a")
		if _, err := a.Session(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * ttl)
		a.wire.fail(func(string, refstore.Key) error { return errFault }, nil)
		<-a.Lost()
		err := a.Held()
		var unrenewed interface{ Unrenewed() error }
		if !errors.Is(err, refstore.ErrLost) || !errors.As(err, &unrenewed) || !errors.Is(unrenewed.Unrenewed(), errFault) {
			t.Errorf("got %v, want ErrLost that tells of %v", err, errFault)
		}
	})
}
