package compare_test

import (
	"strings"
	"testing"

	"e3/internal/insight/compare"
)

// TestLinesOfAScript: of a script that differs its differing lines are shown with those around them; of short texts, of texts that are
// the same but for their ends, and of those of one side there are none.
func TestLinesOfAScript(t *testing.T) {
	p := compare.Part{Change: compare.Changed, Was: "set -e\nrun a\nrun b", Is: "set -e\nrun a --fast\nrun b\n"}
	if got, want := strings.Join(p.Lines(), "\n"), "@@ -1,3 +1,3 @@\n set -e\n-run a\n+run a --fast\n run b"; got != want {
		t.Errorf("lines %q, want %q", got, want)
	}
	for _, p := range []compare.Part{
		{Change: compare.Changed, Was: "a", Is: "b\n"}, {Change: compare.Changed, Was: "a\nb", Is: "a\nb\n"}, {Change: compare.Added, Is: "a\nb"},
	} {
		if got := p.Lines(); got != nil {
			t.Errorf("%+v has the lines %q, want none", p, got)
		}
	}
}
