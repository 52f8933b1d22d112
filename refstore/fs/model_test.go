package fs_test

import (
	"os"
	"testing"

	"pgregory.net/rapid"

	"e3/refstore/fs"
	"e3/refstore/internal/modeltest"
)

func TestModel(t *testing.T) {
	root := t.TempDir()
	modeltest.Check(t, func(rt *rapid.T) modeltest.Store {
		dir, err := os.MkdirTemp(root, "")
		if err != nil {
			rt.Fatal(err)
		}
		s, err := fs.Open(dir, fs.Options{})
		if err != nil {
			rt.Fatal(err)
		}
		rt.Cleanup(func() {
			if err := s.Close(); err != nil {
				rt.Error(err)
			}
		})
		return s
	})
}
