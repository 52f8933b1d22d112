package s3_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"e3/internal/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
)

// TestStanding: who was lost deletes nothing more, also where an attempt was made before; anything else goes on.
func TestStanding(t *testing.T) {
	each(t, func(t *testing.T, o s3.Options) {
		lost := errors.New("lost")
		proxy := testserver.NewProxy(t, o.Endpoint)
		o.Endpoint = proxy.URL()
		var refuse atomic.Bool
		asked := 0
		o.Standing = func() error {
			if asked++; refuse.Load() || asked > 1 { // the second attempt
				return lost
			}
			return nil
		}
		b := s3.Open(o)
		h, err := b.PutBytes(t.Context(), []byte("x"))
		if err != nil || asked > 0 {
			t.Fatalf("put: %v, asked %d times", err, asked)
		}
		proxy.Faults(1, testserver.Rule{Op: "DeleteObjects", Fault: testserver.Fail, Times: 1})
		if err := b.Delete(t.Context(), []objectstore.Hash{h}); !errors.Is(err, lost) || asked != 2 {
			t.Errorf("delete: got %v, asked %d times, want what Standing says of the second attempt", err, asked)
		}
		proxy.Faults(1)
		refuse.Store(true)
		if err := b.DeleteBlob(t.Context(), "records/a"); !errors.Is(err, lost) {
			t.Errorf("delete a blob: got %v, want what Standing says", err)
		}
		if _, err := b.Stat(t.Context(), h); err != nil {
			t.Errorf("the object: %v", err)
		}
	})
}
