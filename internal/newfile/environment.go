package newfile

import (
	"fmt"
	"io/fs"
	"strings"
)

// An Environment is an entry of environments of a draft.
type Environment struct {
	Name string
	From string // the files, as YAML
	Run  string
	Path string // a folder; "": none
	Env  string // variables, as YAML; "": none

	locks    string // the file that tells that there is such an environment
	suffixes string // of the programs that use it
}

// environments are those that e3 knows how to make. Of those for one language the first counts.
var environments = []Environment{
	{"py", "[pyproject.toml, uv.lock]", "uv sync --frozen --no-install-project", ".venv/bin", "", "uv.lock", ".py"},
	{"py", "requirements.txt", "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt", ".venv/bin", "", "requirements.txt", ".py"},
	{"conda", "environment.yml", "conda env create --prefix ./env --file environment.yml", "env/bin", `{CONDA_PREFIX: "{environment}/env"}`, "environment.yml", ".py .r"},
	{"r", "renv.lock", `Rscript -e 'renv::restore(lockfile = "renv.lock", library = "library", prompt = FALSE)'`, "", `{R_LIBS: "{environment}/library"}`, "renv.lock", ".r"},
	{"node", "[package.json, package-lock.json]", "npm ci", "node_modules/.bin", `{NODE_PATH: "{environment}/node_modules"}`, "package-lock.json", ".js"},
}

// findEnvironments adds an environment for each lock file of the folder, and says so of those that have none.
func (d *Draft) findEnvironments(fsys fs.FS) {
	known := map[string]bool{}
	for _, e := range environments {
		if info, err := fs.Stat(fsys, e.locks); err == nil && info.Mode().IsRegular() && !known[e.suffixes] {
			d.Environments = append(d.Environments, e)
			for _, suffix := range strings.Fields(e.suffixes) {
				known[suffix] = true
			}
			known[e.suffixes] = true
		}
	}
	for _, c := range []struct{ suffix, there, advice string }{
		{".py", ".venv", ".venv/bin/pip freeze > requirements.txt"}, {".py", "venv", "venv/bin/pip freeze > requirements.txt"},
		{".js", "package.json", "npm install --package-lock-only"},
	} {
		if _, err := fs.Stat(fsys, c.there); err == nil && !known[c.suffix] {
			known[c.suffix] = true
			d.Head = append(d.Head, "", c.there+" is here, and tasks do not see it. Make a lock file of it, and then this file anew:", "", "  "+c.advice)
		}
	}
}

// environmentOf is the name of the environment for a program with this suffix; "" if there is none.
func (d *Draft) environmentOf(suffix string) string {
	for i := range d.Environments {
		if e := &d.Environments[i]; strings.Contains(" "+e.suffixes+" ", " "+strings.ToLower(suffix)+" ") {
			return e.Name
		}
	}
	return ""
}

// writeEnvironments writes the entries that a task uses. The others are comments.
func (d *Draft) writeEnvironments(b *strings.Builder) {
	if len(d.Environments) == 0 {
		return
	}
	used := map[string]bool{}
	for _, t := range d.Tasks {
		used[t.Environment] = true
	}
	mark := "# "
	for i := range d.Environments {
		if used[d.Environments[i].Name] {
			mark = ""
		}
	}
	fmt.Fprintf(b, "\n%senvironments:   # each machine makes them once; doc/environments.md\n", mark)
	for i := range d.Environments {
		e := &d.Environments[i]
		mark := "# "
		if used[e.Name] {
			mark = ""
		}
		fmt.Fprintf(b, "%s  %s:\n%s    from: %s\n%s    run: %s\n", mark, e.Name, mark, e.From, mark, scalar(e.Run))
		if e.Path != "" {
			fmt.Fprintf(b, "%s    path: %s\n", mark, scalar(e.Path))
		}
		if e.Env != "" {
			fmt.Fprintf(b, "%s    env: %s\n", mark, e.Env)
		}
	}
}
