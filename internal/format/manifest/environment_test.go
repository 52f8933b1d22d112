package manifest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
)

func TestEnvironments(t *testing.T) {
	d := parseFile(t, "environments.yaml")
	want := map[string]*manifest.Prepared{
		"train[1]": {
			Command: manifest.Command{Shell: "uv sync --frozen"}, Path: []string{".venv/bin", "."}, Tools: []string{"uv"},
			Env: []record.EnvVar{{Name: "VIRTUAL_ENV", Value: "{environment}/.venv"}, {Name: "DEPTH", Value: "3"}},
		},
		"page": {Command: manifest.Command{Argv: []string{"npm", "ci"}}, Path: []string{"node_modules/.bin"}},
	}
	want["train[2]"] = want["train[1]"]
	got := map[string]*manifest.Prepared{}
	for i := range d.Tasks {
		got[d.Tasks[i].Name] = d.EnvironmentOf(d.Tasks[i].Spec)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]string{
		"train[1]": {`dir @py at "" = input @py`}, "train[2]": {`dir @py at "" = input @py`}, "page": {`dir @node at "" = input @node`},
	}, wiring(d)); diff != "" {
		t.Errorf("wiring (-want +got):\n%s", diff)
	}
	files := map[string][]string{}
	for _, in := range d.Inputs {
		files[in.Name] = manifest.FilesOf(in.Path)
	}
	if diff := cmp.Diff(map[string][]string{"@py": {"pyproject.toml", "requirements/*.txt", "wheels/**"}, "@node": {"package.json"}}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
