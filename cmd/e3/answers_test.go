package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var updateAnswers = flag.Bool("update", false, "write doc/json.md anew")

// silent are the commands that have no answer: what they write is text or a file, with --json too.
var silent = []string{
	"e3 completion bash", "e3 completion fish", "e3 completion powershell", "e3 completion zsh", "e3 convert", "e3 shell",
}

// checkAnswer refuses a reply of a type that the running command has not registered.
func (a *app) checkAnswer(document any) error {
	if _, is := document.(errorLine); is {
		return nil
	}
	command := a.running.CommandPath()
	var types []reflect.Type
	for _, of := range a.shown[a.running] {
		t := reflect.TypeOf(oneOfMany(of))
		if t == indirect(reflect.TypeOf(document)) {
			return nil
		}
		types = append(types, t)
	}
	return fmt.Errorf("%s replies with a %T, and has registered %v", command, document, types)
}

// oneOfMany is a registered answer, or a line where it is many.
func oneOfMany(answer any) any {
	if l, ok := answer.(lines); ok {
		return l.of
	}
	return answer
}

func indirect(t reflect.Type) reflect.Type {
	if t != nil && t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

const answersHead = `# What --json writes

<!-- Generated from the types of the answers: go test ./cmd/e3 -run TestAnswers -update -->

Scripts may rely on what stands here. Later versions only add fields, so a program ignores fields that it does not know.

An answer is one document, indented on a terminal and on one line elsewhere. Lines are documents too, one a line. The shapes are
written as types of TypeScript:

- a field with ` + "`?`" + ` may be absent
- a ` + "`Time`" + ` is a text in UTC, as "2026-01-02T15:04:05.000Z"
- ` + "`Milliseconds`" + ` are a whole number, ` + "`Integer`" + ` is one of at most 64 bits
- ` + "`Base64`" + ` is a text that stands for bytes
`

// TestAnswers compares doc/json.md with the types of the answers.
func TestAnswers(t *testing.T) {
	const file = "../../doc/json.md"
	a := newApp()
	root := newRoot(a)
	var commands []*cobra.Command
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		path := cmd.CommandPath()
		switch excused := slices.Contains(silent, path); {
		case len(a.shown[cmd]) > 0 && excused:
			t.Errorf("%s is excused, and has registered its answers", path)
		case len(a.shown[cmd]) > 0:
			commands = append(commands, cmd)
		case cmd.Runnable() && (!cmd.HasSubCommands() || strings.Contains(cmd.Use, " ")) && !excused:
			t.Errorf("%s has not registered its answers", path)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	text := describeAnswers(t, a, commands)
	if *updateAnswers {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != text {
		t.Errorf("doc/json.md differs from the types of the answers (%v): go test ./cmd/e3 -run TestAnswers -update", err)
	}
}

// describeAnswers writes the shapes of the answers of commands. A shape of several commands comes last.
func describeAnswers(t *testing.T, a *app, commands []*cobra.Command) string {
	s := &shapes{t: t, sources: map[string]*source{}}
	users := map[reflect.Type]int{} // commands
	for _, cmd := range commands {
		var used []reflect.Type
		for _, answer := range a.shown[cmd] {
			used = s.structs(reflect.TypeOf(oneOfMany(answer)), used)
		}
		for _, t := range used {
			users[t]++
		}
	}
	slices.SortFunc(commands, func(a, b *cobra.Command) int { return strings.Compare(a.CommandPath(), b.CommandPath()) })
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n## Errors\n\nThe last line of a command that has failed.\n\n```ts\n%s```\n", answersHead, s.declare("Line", reflect.TypeFor[errorLine]()))
	for _, cmd := range commands {
		var parts []string
		var own []reflect.Type
		for _, answer := range a.shown[cmd] {
			what, t := "Answer", reflect.TypeOf(oneOfMany(answer))
			if _, many := answer.(lines); many {
				what = "Line"
			}
			if t.Kind() == reflect.Struct && users[t] == 1 {
				parts = append(parts, s.declare(what, t))
			} else {
				parts = append(parts, fmt.Sprintf("type %s = %s\n", what, s.name(t)))
			}
			own = s.structs(t, own)
		}
		for _, t := range own {
			answers := func(answer any) bool { return reflect.TypeOf(oneOfMany(answer)) == t }
			if users[t] == 1 && !slices.ContainsFunc(a.shown[cmd], answers) {
				parts = append(parts, s.declare(s.name(t), t))
			}
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n```ts\n%s```\n", cmd.CommandPath(), cmd.Short, strings.Join(parts, "\n"))
	}
	var shared []string
	for t, n := range users {
		if n > 1 {
			shared = append(shared, s.declare(s.name(t), t))
		}
	}
	if len(shared) > 0 {
		slices.Sort(shared)
		fmt.Fprintf(&b, "\n## Shapes of several commands\n\n```ts\n%s```\n", strings.Join(shared, "\n"))
	}
	for name, types := range s.named {
		if len(types) > 1 {
			t.Errorf("the shapes of %v have the same name %s", slices.Collect(maps.Keys(types)), name)
		}
	}
	return b.String()
}
