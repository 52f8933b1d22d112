package render

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	tab := &Table{Right: map[int]bool{1: true}}
	tab.Row("日本", "1 B", "x")
	tab.Row("a\n", "10 KiB", "")
	var b strings.Builder
	tab.Write(&b, "  ")
	if got, want := b.String(), "  日本     1 B  x\n  a\\n   10 KiB\n"; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}
