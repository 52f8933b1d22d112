package profile

import (
	"io/fs"
	"testing"
)

func TestShipped(t *testing.T) {
	files, err := fs.Glob(Shipped, "profiles/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("shipped are %q, %v", files, err)
	}
	for _, file := range files {
		text, _ := Shipped.ReadFile(file)
		if _, err := Decode("x", file, text); err != nil {
			t.Error(err)
		}
	}
}
