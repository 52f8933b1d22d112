package main

import (
	"os/exec"
	"strings"
	"testing"

	"e3/internal/testing/suite"
)

// TestMethodsAreDropped: nothing that is linked calls methods by name. Otherwise the linker keeps every exported method of every type,
// those of the AWS SDKs included, and the program has 9 MB more. Templates are the usual cause.
func TestMethodsAreDropped(t *testing.T) {
	suite.Thorough(t)
	dump, err := exec.Command("go", "build", "-o", t.TempDir()+"/e3", "-ldflags=-dumpdep", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %.2000s", err, dump)
	}
	edges := 0
	for line := range strings.Lines(string(dump)) {
		if strings.Contains(line, " -> ") {
			edges++
		}
		if strings.Contains(line, "<ReflectMethod>") {
			t.Errorf("methods are called by name: %s", line)
		}
	}
	if edges < 10_000 {
		t.Errorf("the linker has told of %d references", edges)
	}
}
