package record_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"e3/internal/format/beast2"
	"e3/internal/format/record"
)

func keyedTask() *record.Task {
	return &record.Task{
		Argv:   []string{"env"},
		Inputs: []record.Input{{Name: "n", Kind: record.KindValue}, {Name: "MODE", Kind: record.KindVariable}},
		Output: record.Output{Entries: []record.OutputEntry{{Name: "out", Path: "o", Kind: record.KindFile}}},
	}
}

func keyedPackage() *record.Package {
	unassigned := record.Leaf{Kind: record.LeafUnassigned}
	return &record.Package{
		Name: "p",
		Inputs: []record.PackageInput{
			{Name: "n", Source: record.FromValue, Default: unassigned},
			{Name: "$MODE", Source: record.FromVariable, Location: "MODE", Default: unassigned},
		},
		Tasks: []record.PackageTask{{Name: "t", Task: strings.Repeat("0", 64)}},
	}
}

// Tasks and packages with variables read back, whatever else they have.
func TestVariables(t *testing.T) {
	for _, passed := range []record.Passed{{}, {Env: []string{"HOME"}}, {Secrets: []string{"TOKEN"}}} {
		want := keyedTask()
		want.Passed = passed
		got, err := record.DecodeTask(want.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("with %+v (-want +got):\n%s", passed, diff)
		}
	}
	for _, change := range []func(*record.Package){
		func(*record.Package) {},
		func(p *record.Package) { p.Inputs[0].NoExport = true },
		func(p *record.Package) { p.Tasks[0].Policy = full() },
		func(p *record.Package) { p.Inputs[0].NoExport, p.Tasks[0].Policy = true, full() },
	} {
		want := keyedPackage()
		change(want)
		got, err := record.DecodePackage(want.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Variables have names that follow from them, and neither path nor value.
func TestDecodeRefusesVariables(t *testing.T) {
	task, pkg := keyedTask().Encode(), keyedPackage().Encode()
	valued := keyedPackage()
	valued.Inputs[1].Default = record.Leaf{Kind: record.LeafValue, Hash: strings.Repeat("0", 64)}
	replaced := func(data []byte, from, to string) []byte {
		if bytes.Count(data, []byte(from)) != 1 || len(from) != len(to) {
			t.Fatalf("%q is there %d times", from, bytes.Count(data, []byte(from)))
		}
		return bytes.Replace(data, []byte(from), []byte(to), 1)
	}
	for name, test := range map[string]struct {
		data   []byte
		decode func([]byte) error
		says   string
	}{
		"variable with a path":  {replaced(task, "\x04MODE\x00\x05", "\x02MO\x02DE\x05"), decodeTask, "has a path"},
		"variable with a value": {valued.Encode(), decodePackage, `variable "MODE" has a value`},
		"another variable":      {replaced(pkg, "\x05$MODE\x0a", "\x05$MORE\x0a"), decodePackage, `input "$MORE" holds the variable "MODE"`},
	} {
		err := test.decode(test.data)
		var syntax *beast2.SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want a *beast2.SyntaxError with %q", name, err, test.says)
		}
	}
}
