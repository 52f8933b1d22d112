// Package graphtest makes packages for tests.
package graphtest

import (
	"strings"

	"e3/internal/format/digest"
	"e3/internal/format/record"
)

// Flow returns a package of tasks that read the input x and each other. A line is "name: producer…".
func Flow(lines ...string) *record.Package {
	pkg := &record.Package{Name: "flow", Version: "1", Inputs: []record.PackageInput{{Name: "x", Source: record.FromValue}}}
	for _, line := range lines {
		name, deps, _ := strings.Cut(line, ":")
		t := record.PackageTask{
			Name: name, Task: digest.Sum([]byte("task " + name)).String(), Output: record.KindFile,
			Wiring: []record.Wire{{Kind: record.WireInput, Name: "x"}},
		}
		for _, d := range strings.Fields(deps) {
			t.Wiring = append(t.Wiring, record.Wire{Kind: record.WireOutput, Name: d})
		}
		pkg.Tasks = append(pkg.Tasks, t)
	}
	return pkg
}
