package propose_test

import (
	"slices"
	"testing"
	"testing/fstest"

	"e3/internal/propose"
)

// TestValueHints: a name that a mapping lacks is told if only leaves its value out, and for no other name.
func TestValueHints(t *testing.T) {
	pkg := offered(t, "e3: 1\nname: p\ninputs: {params: {params: conf/params.yaml}}\n"+
		"tasks: {fit: {in: {p: {from: params, only: [train.rate]}}, out: o.txt, run: ./fit}}\n")
	files := fstest.MapFS{"conf/params.yaml": {Data: []byte("train: {rate: 1, depth: 2}\nseed: 3\nother: {train: 4, deep: {depth: 5}}\n")}}
	project := &propose.Project{Files: files, Ignored: propose.Ignored(files), Made: func(string) string { return "" }}
	const left = ", which only: leaves out for fit: add "
	for line, want := range map[string]string{
		"KeyError: 'seed'":                "conf/params.yaml has seed" + left + "seed to it",
		"KeyError: 'depth'":               "conf/params.yaml has train.depth" + left + "train.depth to it",
		"KeyError: 'rate'":                "",
		"KeyError: 'train'":               "",
		"KeyError: 'sed'":                 "",
		"Key 'seed' is not in struct":     "conf/params.yaml has seed" + left + "seed to it",
		"omegaconf: Missing key deep":     "conf/params.yaml has other.deep" + left + "other.deep to it",
		"seed: No such file or directory": "",
	} {
		run := &propose.Run{Task: "fit", Sources: []string{"params.{train.rate}", "params"}, Inputs: []propose.Staged{{Name: "p", Path: "conf/params.yaml"}}}
		var wanted []string
		if want != "" {
			wanted = []string{want}
		}
		if got := propose.Hints(pkg, project, run, []string{line}, nil); !slices.Equal(got, wanted) {
			t.Errorf("%s\n got %q\nwant %q", line, got, wanted)
		}
		run.Sources = []string{"params"}
		if got := propose.Hints(pkg, project, run, []string{line}, nil); len(got) > 0 {
			t.Errorf("%s, of a task without only: got %q", line, got)
		}
	}
}
