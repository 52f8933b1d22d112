package propose

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"e3/internal/format/manifest"
	"e3/internal/format/pattern"
	"e3/internal/format/record"
)

// environmentAround is the folder of programs around a path of the project, such as .venv; "" if there is none. Tasks
// see it as an environment of the package only.
func environmentAround(files fs.FS, rel string) string {
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		for _, mark := range []string{"pyvenv.cfg", "conda-meta"} {
			if _, err := fs.Stat(files, dir+"/"+mark); err == nil {
				return dir
			}
		}
		if path.Base(dir) == "node_modules" {
			return dir
		}
	}
	return ""
}

// missesPackage finds the package that a program in Python or JavaScript, or in R, misses.
var missesPackage = pattern.Of(`(?:ModuleNotFoundError: No module named|Cannot find module|there is no package called) ['"‘]([@\w][\w./-]*)['"’]`)

// inEnvironment are the files of a project that show that it has packages of its own.
var inEnvironment = []string{
	"uv.lock", "requirements.txt", "environment.yml", ".venv", "venv", "package.json", "package-lock.json", "renv.lock",
}

// lacksPackage says how a task gets a package that no file of the project is.
func (h *hinter) lacksPackage(lines []string) {
	i := slices.IndexFunc(inEnvironment, h.project.has)
	if i < 0 {
		return
	}
	for _, line := range lines {
		m := missesPackage().FindStringSubmatch(line)
		if m != nil && !strings.HasPrefix(m[1], ".") {
			h.hint("the program of " + h.task.Name + " does not find the package " + m[1] + ", and the project has " +
				inEnvironment[i] + ": " + h.useEnvironment())
			return
		}
	}
}

// useEnvironment is the advice to take programs and packages from an environment.
func (h *hinter) useEnvironment() string {
	i := slices.IndexFunc(h.pkg.Inputs, func(in manifest.Input) bool { return in.Kind == manifest.EnvironmentInput })
	if i >= 0 {
		name, _ := record.EnvironmentOf(h.pkg.Inputs[i].Name)
		return "write environment: " + name + " at the task, and programs without a folder"
	}
	return "declare an environment, as e3 new -o draft.yaml does"
}
