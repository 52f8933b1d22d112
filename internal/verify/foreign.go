package verify

import (
	"context"
	"errors"

	"e3/objectstore"
	"e3/refstore"
)

// ForeignEntry is a link, a pipe, or a file in the place of a folder, where e3 has put none.
type ForeignEntry struct{ Where, Problem string }

// foreign reports foreign entries. While there are any, nothing is repaired, because everything behind them seems to
// be gone.
func (v *verifier) foreign(ctx context.Context) error {
	if v.Foreign == nil {
		return nil
	}
	entries, err := v.Foreign(ctx)
	for _, e := range entries {
		v.fault(Fault{
			Kind: ForeignThing, Where: e.Where, Problem: e.Problem, For: []string{"everything that belongs there"},
			Advice: "nothing is repaired before; somebody else has put it there",
		})
		v.strange.Add(1)
	}
	return err
}

// past turns the error of a check that a foreign entry has stopped into a note: the entry is a fault of its own.
func (v *verifier) past(err error) error {
	if !errors.Is(err, refstore.ErrForeign) && !errors.Is(err, objectstore.ErrForeign) {
		return err
	}
	if v.strange.Add(1) == 1 { // it has just been put there
		v.fault(Fault{Kind: ForeignThing, Where: "the repository", Problem: err.Error(), For: []string{"everything that belongs there"}})
	}
	v.note("not everything was checked: %v", err)
	return nil
}
