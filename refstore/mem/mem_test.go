package mem_test

import (
	"context"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"e3/refstore"
	"e3/refstore/internal/modeltest"
	"e3/refstore/mem"
	"e3/refstore/refstoretest"
)

func TestConformance(t *testing.T) {
	for _, c := range refstoretest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			err := c.Run(t.Context(), func(context.Context) (refstore.Store, error) { return mem.New(), nil })
			if errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestModel(t *testing.T) {
	modeltest.Check(t, func(*rapid.T) modeltest.Store { return mem.New() })
}
