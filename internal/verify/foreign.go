package verify

import (
	"context"
	"errors"

	"e3/objectstore"
	"e3/refstore"
)

// foreign reports links, pipes, and files in the place of folders, where e3 has put none. While there are any, nothing is
// repaired, because everything behind them seems to be gone.
func (v *verifier) foreign(ctx context.Context) error {
	if v.Foreign == nil {
		return nil
	}
	return v.Foreign(ctx, func(where, problem string) {
		v.fault(Fault{
			Kind: ForeignThing, Where: where, Problem: problem, For: []string{"everything that belongs there"},
			Advice: "nothing is repaired before; somebody else has put it there",
		})
		v.strange.Add(1)
	})
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
