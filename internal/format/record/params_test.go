package record_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"e3/internal/format/record"
)

// A file of parameters and its values are inputs of one source.
func TestPackageParams(t *testing.T) {
	value := record.Leaf{Kind: record.LeafValue, Hash: strings.Repeat("a", 64)}
	p := handledPackage("a b c", func(name string) bool { return name == "b" })
	p.Inputs = append(p.Inputs,
		record.PackageInput{Name: "params", Source: record.FromParams, Location: "params.yaml", Default: value},
		record.PackageInput{Name: "params.train.rate", Source: record.FromParams, Location: "params.yaml", NoExport: true, Default: value},
		record.PackageInput{Name: "plain", Source: record.FromValue, Default: value})
	for _, onLost := range []record.OnLost{record.OnLostDefault, record.OnLostKill} {
		p.Tasks[0].Policy.OnLost = onLost
		got, err := record.DecodePackage(p.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, got); diff != "" {
			t.Errorf("on_lost %d (-want +got):\n%s", onLost, diff)
		}
	}
	for name, want := range map[string]bool{
		"params": true, "params.train.rate": true, "params.other.path": true, "plain": true, "plain.x": false, "none": false, "none.x": false,
	} {
		if p.Declares(name) != want {
			t.Errorf("Declares(%q) = %v", name, !want)
		}
	}
}

// TestLinkRoom: a link has the room, if one was given.
func TestLinkRoom(t *testing.T) {
	for _, source := range []record.InputSource{record.FromFile, record.FromParams} {
		for _, room := range []string{"", "closed", "start open"} {
			l := &record.Link{Home: "/h", Room: room, File: "e3.yaml", Inputs: []record.LinkInput{{
				Name: "in", Source: source, Leaf: record.Leaf{Kind: record.LeafUnassigned}, Files: []record.LinkFile{},
			}}}
			got, err := record.DecodeLink(l.Encode())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(l, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%v, room %q (-want +got):\n%s", source, room, diff)
			}
		}
	}
}

func TestLinkParams(t *testing.T) {
	for _, home := range []string{"", "/home/x"} {
		l := &record.Link{
			Home: home, File: "e3.yaml", Set: []string{"params.train.rate"},
			Inputs: []record.LinkInput{{
				Name: "params", Source: record.FromParams, Location: "params.yaml",
				Leaf:  record.Leaf{Kind: record.LeafValue, Hash: strings.Repeat("b", 64)},
				Files: []record.LinkFile{{Path: "params.yaml", Stat: record.FileStat{Size: 3}, Hash: [32]byte{1}}},
			}},
		}
		got, err := record.DecodeLink(l.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(l, got); diff != "" {
			t.Errorf("home %q (-want +got):\n%s", home, diff)
		}
	}
}

func TestParamOf(t *testing.T) {
	for name, want := range map[string][2]string{"params.train.rate": {"params", "train.rate"}, "params": {}, "$A.B": {}} {
		file, path, ok := record.ParamOf(name)
		if ok != (want[0] != "") || ok && (file != want[0] || path != want[1]) {
			t.Errorf("ParamOf(%q) = %q %q %v", name, file, path, ok)
		}
	}
}
