package newfile_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"e3/internal/newfile"
)

// A lock file becomes an environment of the programs that need it.
func TestEnvironmentsOfFolder(t *testing.T) {
	for name, c := range map[string]struct {
		files      string
		want, none []string
	}{
		"uv":           {"a.py uv.lock pyproject.toml requirements.txt", []string{"\n  py:\n    from: [pyproject.toml, uv.lock]\n", "  a:\n    environment: py\n"}, []string{"pip"}},
		"pip":          {"a.py requirements.txt .venv/pyvenv.cfg", []string{"pip install -r requirements.txt'\n    path: '.venv/bin'\n", "environment: py"}, []string{".venv is here"}},
		"conda":        {"a.py b.R environment.yml", []string{"  a:\n    environment: conda\n", "  b:\n    environment: conda\n", `env: {CONDA_PREFIX: "{environment}/env"}`}, nil},
		"renv, and uv": {"a.py b.R renv.lock uv.lock", []string{"  a:\n    environment: py\n", "  b:\n    environment: r\n"}, nil},
		"npm":          {"a.js package.json package-lock.json", []string{"run: npm ci\n", "  a:\n    environment: node\n"}, nil},
		"no lock file": {"a.py venv/pyvenv.cfg", []string{"# venv is here, and tasks do not see it", "#   venv/bin/pip freeze > requirements.txt"}, []string{"environments:"}},
		"no program":   {"a.csv requirements.txt", []string{"\n# environments:", "\n#   py:"}, []string{"environment: py"}},
		"nothing":      {"a.py", nil, []string{"environment"}},
	} {
		fsys := fstest.MapFS{}
		for f := range strings.FieldsSeq(c.files) {
			fsys[f] = &fstest.MapFile{}
		}
		d, err := newfile.FromFolder(fsys, "p")
		if err != nil {
			t.Fatal(err)
		}
		checkDraft(t, d, false)
		for _, want := range c.want {
			if !strings.Contains(d.Text(), want) {
				t.Errorf("%s: got\n%s\nwant in it\n%s", name, d.Text(), want)
			}
		}
		for _, none := range c.none {
			if strings.Contains(d.Text(), none) {
				t.Errorf("%s: got\n%s\nwithout\n%s", name, d.Text(), none)
			}
		}
	}
}
