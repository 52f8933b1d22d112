package executions

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/host/bash"
	"e3/internal/host/room"
	"e3/internal/host/runner"
)

// ceiling is the variable that keeps git from looking for a repository in a folder and above it. Without it a command
// would work in the repository of a project around the sandbox, or of the user's home, which is no input of the task.
const ceiling = "GIT_CEILING_DIRECTORIES"

// roomEnv says where a command finds its own folders in a closed room.
var roomEnv = [...]string{"HOME=" + room.Home, "TMPDIR=" + room.Temp, ceiling + "=" + room.Folder}

// env is the same as roomEnv for a command in the open.
func (b *sandbox) env() []string {
	return []string{"HOME=" + b.home(), "TMPDIR=" + b.temp(), ceiling + "=" + b.room.Name()}
}

// baseEnv is the environment of every command before its own declarations. Later entries win.
func (b *box) baseEnv() []string {
	env := make([]string, 0, 16+len(b.spec.Env)+len(b.spec.Inputs))
	env = append(env, "PATH="+b.x.opts.Path)
	if b.spec.Room.Closed {
		env = append(env, roomEnv[:]...)
	} else {
		env = append(env, b.env()...)
	}
	env = append(env, "LANG=C.UTF-8", "TZ=UTC")
	if b.image != nil {
		env = append(env, b.image.environment()...)
	}
	env = append(env, b.environmentEnv()...)
	for _, names := range [][]string{b.spec.Passed.Env, b.spec.Passed.Secrets} {
		for _, name := range names {
			if v, ok := b.x.opts.Getenv(name); ok {
				env = append(env, name+"="+v)
			}
		}
	}
	for _, e := range b.spec.Env {
		if b.spec.Batch == nil || !b.spec.Batch.Owns(e.Name) {
			env = append(env, e.Name+"="+e.Value)
		}
	}
	return env
}

// lastEnv appends what follows the inputs in the environment of the command.
func (b *box) lastEnv(env []string) []string {
	if b.spec.Batch != nil {
		env = append(env, batchEnv+"="+batchFile)
	} else {
		for _, out := range b.spec.Output.Entries {
			env = append(env, out.Name+"="+out.Path)
		}
	}
	if b.req.Step != "" {
		env = append(env, "E3_STEP="+b.req.Step)
	}
	return lastOfEach(append(env, marker(b.id)))
}

// lastOfEach keeps the last entry of each name, because programs differ in which duplicate they believe.
func lastOfEach(env []string) []string {
	last := make(map[string]int, len(env))
	for i, e := range env {
		name, _, _ := strings.Cut(e, "=")
		last[name] = i
	}
	if len(last) == len(env) {
		return env
	}
	kept := env[:0]
	for i, e := range env {
		if name, _, _ := strings.Cut(e, "="); last[name] == i {
			kept = append(kept, e)
		}
	}
	return kept
}

// argv is the command with its names filled in. bash finds the names of a script in its environment.
func (b *box) argv() []string {
	spec := b.spec
	if spec.Argv == nil {
		return b.shell()
	}
	if !slices.ContainsFunc(spec.Argv, func(s string) bool { return strings.Contains(s, "{") }) && len(b.programs()) == 0 {
		return spec.Argv
	}
	var pairs []string
	for _, e := range spec.Env {
		if spec.Batch == nil || !spec.Batch.Owns(e.Name) {
			pairs = append(pairs, "{"+e.Name+"}", e.Value)
		}
	}
	for i, in := range spec.Inputs {
		if _, ok := record.EnvironmentOf(in.Name); ok || in.Kind.OfMachine() || b.ownsInput(in) {
			continue // as for pass_env: an unset variable has no text
		}
		pairs = append(pairs, "{"+in.Name+"}", b.texts[i])
	}
	for _, out := range spec.Output.Entries {
		if spec.Batch == nil {
			pairs = append(pairs, "{"+out.Name+"}", out.Path)
		}
	}
	names := strings.NewReplacer(pairs...)
	argv := make([]string, len(spec.Argv))
	for i, s := range spec.Argv {
		argv[i] = names.Replace(s)
	}
	if slices.Contains(slices.Collect(maps.Values(b.programs())), argv[0]) {
		argv[0] = "./" + argv[0]
	}
	return argv
}

// programs are the executables among the inputs that lie in the working directory itself, by name. Where the first
// word of a command names such a file, that file runs, and not a program of that name in the PATH, which is in no
// key.
func (a *assignment) programs() map[string]string {
	var programs map[string]string
	for _, in := range a.spec.Inputs {
		if in.Kind == record.KindExecutable && !strings.Contains(in.Path, "/") && !a.ownsInput(in) {
			if programs == nil {
				programs = map[string]string{}
			}
			programs[in.Name] = in.Path
		}
	}
	return programs
}

// script is the script of a task as bash gets it.
func (a *assignment) script() string { return bash.Staged(a.spec.Shell, a.programs()) }

// secrets are the values to mask in the logs.
func (a *assignment) secrets() []string {
	var values []string
	for _, name := range a.spec.Passed.Secrets {
		if v, ok := a.x.opts.Getenv(name); ok && v != "" {
			values = append(values, v)
		}
	}
	return values
}

// unsetError names the secrets of a task that are not set, so that the task does not start.
type unsetError struct {
	names []string
	where string // the process that lacks them
}

func (e *unsetError) Error() string {
	one, verb, them := "secret", "is", "it"
	if len(e.names) > 1 {
		one, verb, them = "secrets", "are", "them"
	}
	return fmt.Sprintf("%s %s %s not set in the environment of %s: set %s, or take %s from the task's secrets",
		one, strings.Join(e.names, ", "), verb, e.where, them, them)
}

// unset returns an *unsetError if this process lacks a secret that the task declares; an empty one counts as set. A
// secret is not part of the key, so a result made without it would also answer processes that have it.
func (a *assignment) unset() error {
	var names []string
	for _, name := range a.spec.Passed.Secrets {
		if _, ok := a.x.opts.Getenv(name); !ok {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	where := fmt.Sprintf("e3 (%s)", a.x.opts.Worker)
	if a.req.Job.Ref != "" {
		where = "the worker " + a.x.opts.Worker
	}
	return &unsetError{names, where}
}

// Messages about a task may quote its command: the name of a file that it wrote, the target of a link. Secrets in them
// are masked here, before they reach records, events, reports, traces, jobs, workers' logs and terminals. Logs are
// masked as they are written (runner.Spec.Mask), by the same Forms. Outputs, objects and keys are not masked.

// mask masks the task's secrets in a text about it.
func (a *assignment) mask(text string) string {
	if a.spec == nil || text == "" { // no command ran before the task was read
		return text
	}
	return runner.Mask(text, a.secrets()...)
}

// maskError masks the text of an error. errors.Is and errors.As still see the original.
func (a *assignment) maskError(err error) error {
	if a == nil || err == nil {
		return err
	}
	text := err.Error()
	if masked := a.mask(text); masked != text {
		return &maskedError{masked, err}
	}
	return err
}

type maskedError struct {
	text string
	err  error
}

func (e *maskedError) Error() string { return e.text }
func (e *maskedError) Unwrap() error { return e.err }
