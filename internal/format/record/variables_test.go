package record_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"e3/internal/format/beast2"
	"e3/internal/format/digest"
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

// Tasks and packages with variables have a separate form, whatever else they have; all others keep the bytes that they
// had before.
func TestVariables(t *testing.T) {
	task, pkg := keyedTask(), keyedPackage()
	task.Inputs, pkg.Inputs = task.Inputs[:1], pkg.Inputs[:1]
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"a task":                   {task.Encode(), "01f1d844feb62cff4742625eed10f8a3991c1071231d00153e5a0464a446802f"},
		"a package":                {pkg.Encode(), "f72935f81519a2ee04973b3e0905b7f0504faf7105ab7f623eba29dd5df3a9f3"},
		"a task with variables":    {keyedTask().Encode(), "d1428ed2b61c28bc8845efab352cfa027cb5b6671592986289394d8fcbee3994"},
		"a package with variables": {keyedPackage().Encode(), "051cf94433947420b83c81b872168f231dcca208655a75df70e060d0a8782de7"},
	} {
		if got := digest.Sum(test.data).String(); got != test.want {
			t.Errorf("%s has the hash %s, want %s", name, got, test.want)
		}
	}
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

// An older e3 without variables refuses these tasks and packages, because their types differ.
func TestVariablesAreRefusedByOlder(t *testing.T) {
	typeOf := func(data []byte) string {
		got, _, err := beast2.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		return got.String()
	}
	marked := &record.Package{Inputs: []record.PackageInput{{NoExport: true}}}
	handled := &record.Package{Tasks: []record.PackageTask{{Policy: full()}}}
	for _, older := range [][]byte{(&record.Package{}).Encode(), marked.Encode(), handled.Encode()} {
		if typeOf(keyedPackage().Encode()) == typeOf(older) {
			t.Errorf("a package with variables has the type of an older one: %s", typeOf(older))
		}
	}
	passing := &record.Task{Passed: record.Passed{Env: []string{"A"}}}
	for _, older := range [][]byte{(&record.Task{}).Encode(), passing.Encode()} {
		if typeOf(keyedTask().Encode()) == typeOf(older) {
			t.Errorf("a task with variables has the type of an older one: %s", typeOf(older))
		}
	}
}

// Each task and package has exactly one valid form.
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
		"task without variables":    {replaced(task, "\x04MODE\x00\x04", "\x04MODE\x00\x03"), decodeTask, "no input is a variable"},
		"variable with a path":      {replaced(task, "\x04MODE\x00\x04", "\x02MO\x02DE\x04"), decodeTask, "has a path"},
		"package without variables": {replaced(pkg, "\x05$MODE\x04", "\x05$MODE\x03"), decodePackage, "no input is a variable"},
		"variable with a value":     {valued.Encode(), decodePackage, `variable "MODE" has a value`},
		"another variable":          {replaced(pkg, "\x05$MODE\x04", "\x05$MORE\x04"), decodePackage, `input "$MORE" holds the variable "MODE"`},
	} {
		err := test.decode(test.data)
		var syntax *beast2.SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: got %v, want a *beast2.SyntaxError with %q", name, err, test.says)
		}
	}
}
