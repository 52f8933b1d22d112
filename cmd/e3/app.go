package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"e3/internal/manifest"
	"e3/internal/repo"
)

// version is set by the linker for a release.
var version = "dev"

// app is what a command has of the world: its streams, its environment, a clock.
type app struct {
	stdin  io.Reader
	stdout io.Writer // data
	stderr io.Writer // progress, warnings, errors
	getenv func(string) string
	now    func() time.Time

	json  bool // --json: data for programs
	color string
}

func newApp() *app {
	return &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, now: time.Now}
}

// terminal returns the terminal that w is, nil if it is none.
func terminal(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// open opens the repository that a location means.
func (a *app) open(location string) (*repo.Repo, error) {
	return repo.Open(location, repo.Options{Version: a.version(), Now: a.now})
}

// version is the release, or what the build says of its source.
func (a *app) version() string {
	if version != "dev" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "dev-" + s.Value[:12]
			}
		}
	}
	return version
}

// location is the repository of a command whose argument for it is missing.
func (a *app) location() string {
	if r := a.getenv("E3_REPO"); r != "" {
		return r
	}
	return "."
}

// positional gives a command's arguments names: the repository first, which may be left
// out, then those in names, of which the last optional ones may be missing.
func (a *app) positional(cmd *cobra.Command, args []string, optional int, names ...string) (location string, rest []string, err error) {
	required := len(names) - optional
	switch {
	case len(args) > len(names)+1:
		return "", nil, usagef("%s takes at most %d arguments, got %d", cmd.CommandPath(), len(names)+1, len(args))
	case len(args) < required:
		return "", nil, usagef("%s needs %s; see: %s --help", cmd.CommandPath(), strings.Join(names[len(args):required], " and "), cmd.CommandPath())
	case len(args) == required:
		return a.location(), pad(args, len(names)), nil
	}
	return args[0], pad(args[1:], len(names)), nil
}

func pad(args []string, n int) []string {
	out := make([]string, n)
	copy(out, args)
	return out
}

// dataset splits <workspace>[.<path>].
func dataset(s string) (ws, path string) {
	ws, path, _ = strings.Cut(s, ".")
	return ws, path
}

// checkName refuses what cannot be the name of a workspace.
func checkName(what, name string) error {
	if !manifest.ValidName(name) {
		return usagef("%q cannot be the name of a %s: letters, digits, _ and -, at most 64, not beginning with -", name, what)
	}
	return nil
}

// printf writes data. A reader that has gone away is noticed when the process ends.
func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.stdout, format, args...) }

// notef writes to the person.
func (a *app) notef(format string, args ...any) { fmt.Fprintf(a.stderr, format+"\n", args...) }
