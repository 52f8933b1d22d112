package tree_test

import (
	"context"
	"testing"

	"e3/objectstore"
	"e3/objectstore/objectstoretest"
	"e3/objectstore/tree"
)

// A look at a file needs nothing beside: a plan looks at each input of each task.
func TestALookAtAFileMakesNothing(t *testing.T) {
	there, objects := objectstore.Sum([]byte("there")), &objectstoretest.Mem{}
	look := func(_ context.Context, h objectstore.Hash) (bool, error) { return h != there, nil }
	made := testing.AllocsPerRun(100, func() {
		if lost, err := tree.FindLost(t.Context(), objects, there, false, look); err != nil || len(lost) > 0 {
			t.Fatalf("it finds %v, %v, want nothing lost", lost, err)
		}
	})
	if made > 0 {
		t.Errorf("it allocates %v times, want never", made)
	}
	gone := objectstore.Sum([]byte("gone"))
	if lost, err := tree.FindLost(t.Context(), objects, gone, false, look); err != nil || len(lost) != 1 || lost[0] != gone {
		t.Errorf("of a lost file it finds %v, %v, want the file", lost, err)
	}
}
