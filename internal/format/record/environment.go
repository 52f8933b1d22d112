package record

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"e3/internal/format/codec"
)

// An Environment says how each machine makes the programs of a task, in a folder of its own: a virtual environment of
// Python, or packages of Node. The files from which it is made are an input of the task; see EnvironmentOf. The name of
// the environment is not here, so environments of equal content are one.
type Environment struct {
	Argv  []string `beast2:",of=command,min=1,max=131072"` // makes it, as a list; else Shell is set
	Shell string   `beast2:",of=command"`                  // makes it, as a script for bash -euo pipefail -c
	Path  []string `beast2:",max=1024"`                    // folders in it that come first on the PATH
	// Env are variables for the tasks and for the command that makes it; {environment} stands for its folder.
	Env      []EnvVar `beast2:",dict,max=131072"`
	Tools    []string `beast2:",sorted,max=131072"` // programs of the machine by which it is made; inputs of the task
	Platform string   // such as linux/amd64
}

// EnvironmentInput names the input that holds the files of an environment: of a package, and of a task that uses it. No
// package file can declare such a name.
func EnvironmentInput(name string) string { return "@" + name }

// EnvironmentOf is the environment whose files an input holds; false for any other input. The command of the task gets
// these files neither at a path nor in a variable.
func EnvironmentOf(input string) (string, bool) { return strings.CutPrefix(input, "@") }

// InputLabel names an input of a package for people.
func InputLabel(name string) string {
	if environment, ok := EnvironmentOf(name); ok {
		return "environment " + environment
	}
	return "input " + name
}

// EnvironmentIndex is the number of the input that holds the files of the task's environment; -1 without one.
func (t *Task) EnvironmentIndex() int {
	if t.Environment == nil {
		return -1
	}
	return slices.IndexFunc(t.Inputs, func(in Input) bool {
		_, ok := EnvironmentOf(in.Name)
		return ok
	})
}

// EnvironmentFacts are the parts of the task's environment, for people who compare two of them: what each is, and its value.
func (t *Task) EnvironmentFacts() []EnvVar {
	e := t.Environment
	if e == nil {
		return nil
	}
	name := ""
	if i := t.EnvironmentIndex(); i >= 0 {
		name, _ = EnvironmentOf(t.Inputs[i].Name)
	}
	facts := []EnvVar{{"name", name}, {"run", e.Shell}}
	if e.Argv != nil {
		facts[1].Value = fmt.Sprintf("%q", e.Argv)
	}
	for _, v := range e.Env {
		facts = append(facts, EnvVar{"env " + v.Name, v.Value})
	}
	return append(facts, EnvVar{"path", strings.Join(e.Path, ", ")}, EnvVar{"tools", strings.Join(e.Tools, ", ")},
		EnvVar{"platform", e.Platform})
}

var environments = codec.New[Environment]("environment")

// Encode returns the bytes of the environment. Equal environments have equal bytes.
func (e *Environment) Encode() []byte { return environments.Encode(e, 256+len(e.Shell)) }

// checkEnvironment refuses an environment that no package file can declare: its folders lie in it, and the task has its
// files and its programs.
func (t *Task) checkEnvironment() error {
	e := t.Environment
	files := 0
	for i := range t.Inputs {
		if _, ok := EnvironmentOf(t.Inputs[i].Name); ok {
			if files++; t.Inputs[i].Kind != KindDir || t.Inputs[i].Path != "" {
				return fmt.Errorf("the files of environment %.80q are no directory, or have a path", t.Inputs[i].Name)
			}
		}
	}
	switch {
	case e == nil && files == 0:
		return nil
	case e == nil || files != 1 || t.Image != "":
		return fmt.Errorf("a task with an environment has its files once, and no image")
	}
	for _, folder := range e.Path {
		if !filepath.IsLocal(folder) || folder != path.Clean(folder) || strings.ContainsAny(folder, ":\x00") {
			return fmt.Errorf("folder %.80q is not in the environment", folder)
		}
	}
	for _, name := range e.Tools {
		if !slices.ContainsFunc(t.Inputs, func(in Input) bool { return in.Kind == KindTool && in.Name == ToolInput(name) }) {
			return fmt.Errorf("the environment needs the program %.80q, and the task has no such input", name)
		}
	}
	return nil
}
