package trace_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"e3/internal/host/trace"
)

// A finding in a report is read again, whatever its path, if that stays in its folder.
func TestReport(t *testing.T) {
	want := []trace.Finding{{trace.Read, "a"}, {trace.File, "b/\n\"ü"}, {trace.Folder, "."}, {trace.Missing, "c"}}
	var report []byte
	for _, f := range append(slices.Clone(want), trace.Finding{Kind: trace.File, Path: "../d"}, trace.Finding{Kind: trace.File, Path: "/etc/passwd"}, trace.Finding{Kind: trace.File, Path: "not UTF-8: \xff"}) {
		report = f.Append(report)
	}
	if got := trace.Parse(string(report)); !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("r \"a\"\nf \"../b\"\nm \"c")
	f.Add("x \"a\"\n\nr a\nd \".\"\n")
	f.Fuzz(func(t *testing.T, report string) {
		list := trace.Parse(report)
		if len(list) > strings.Count(report, "\n") || len(list) > trace.MostFindings {
			t.Fatalf("%d findings in %q", len(list), report)
		}
		var again []byte
		for _, finding := range list {
			if !fs.ValidPath(finding.Path) {
				t.Errorf("%q leads out of its folder", finding.Path)
			}
			again = finding.Append(again)
		}
		if got := trace.Parse(string(again)); !slices.Equal(got, list) {
			t.Errorf("read %q, want %q", got, list)
		}
	})
}
