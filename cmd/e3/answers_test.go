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

Scripts may rely on what stands here. Later versions only add fields, so a program passes over fields that it does not know.

An answer is one document, indented on a terminal and on one line elsewhere. Lines are documents too, one a line. If a command has
several answers, its arguments choose. The shapes are types of TypeScript:

- a field with ` + "`?`" + ` may be absent: it is empty, false, zero, unknown, or does not apply; ` + "`null`" + ` says that there is none
- a ` + "`Time`" + ` is a text in UTC, as "2026-01-02T15:04:05.000Z"
- ` + "`Milliseconds`" + ` are a whole number, ` + "`Integer`" + ` is one of at most 64 bits; sizes and memory are in bytes
- a ` + "`package`" + ` is written ` + "`name@version`" + `, a ` + "`key`" + ` ` + "`taskHash/inputsHash`" + `; people, and workers, are ` + "`user@host`" + `
- ` + "`Data`" + ` has members by the type of the event: [format.md](format.md#events) says what they mean
- ` + "`was`" + ` and ` + "`is`" + ` are of the first side and the second, or before and now; ` + "`more`" + ` counts what is not listed
`

// saidOnce are comments that the head of the page says for all fields.
var saidOnce = []string{"user@host", "name@version", "taskHash/inputsHash", "bytes", "in bytes"}

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

// describeAnswers writes the shapes of the answers of commands. Commands with the same answers share a section, and a shape of
// several sections comes last.
func describeAnswers(t *testing.T, a *app, commands []*cobra.Command) string {
	s := &shapes{t: t, sources: map[string]*source{}}
	slices.SortFunc(commands, func(a, b *cobra.Command) int { return strings.Compare(a.CommandPath(), b.CommandPath()) })
	var sections []*section
	for _, cmd := range commands {
		answers := a.shown[cmd]
		same := func(of *section) bool { return reflect.DeepEqual(types(of.answers), types(answers)) }
		if i := slices.IndexFunc(sections, same); i >= 0 {
			sections[i].title += ", " + cmd.CommandPath()
		} else {
			sections = append(sections, &section{cmd.CommandPath(), answers})
		}
	}
	for range 2 { // the second time, fields of bases are not counted again
		s.references = map[reflect.Type]int{}
		var all []reflect.Type
		for _, of := range sections {
			for _, answer := range of.answers {
				all = s.structs(reflect.TypeOf(oneOfMany(answer)), all)
			}
		}
		s.alone = s.references
	}
	s.references = map[reflect.Type]int{}
	users := map[reflect.Type]int{} // sections
	for _, of := range sections {
		for _, t := range s.parts(of) {
			users[t]++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n## Errors\n\nThe last line of a command that has failed.\n\n```ts\n%s```\n", answersHead, s.declare("Line", reflect.TypeFor[errorLine]()))
	for _, of := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n```ts\n%s```\n", of.title, strings.Join(s.section(of, users), "\n"))
	}
	var shared []string
	for t, n := range users {
		if n > 1 {
			shared = append(shared, s.declare(s.name(t), t))
		}
	}
	slices.Sort(shared)
	fmt.Fprintf(&b, "\n## Shapes of several commands\n\n```ts\n%s```\n", strings.Join(shared, "\n"))
	for name, types := range s.named {
		if len(types) > 1 {
			t.Errorf("the shapes of %v have the same name %s", slices.Collect(maps.Keys(types)), name)
		}
	}
	return b.String()
}

// A section of the page is of the commands that have the same answers.
type section struct {
	title   string
	answers []any
}

// types are those of registered answers; a line has one of its own.
func types(answers []any) (list []any) {
	for _, answer := range answers {
		_, many := answer.(lines)
		list = append(list, many, reflect.TypeOf(oneOfMany(answer)))
	}
	return list
}

// parts are the named types of which the answers of a section consist.
func (s *shapes) parts(of *section) (list []reflect.Type) {
	for _, answer := range of.answers {
		list = s.structs(reflect.TypeOf(oneOfMany(answer)), list)
	}
	return list
}

// section declares the answers of a section, and the types that are of no other one.
func (s *shapes) section(of *section, users map[reflect.Type]int) (parts []string) {
	var answers []reflect.Type
	for _, answer := range of.answers {
		what, t := "Answer", reflect.TypeOf(oneOfMany(answer))
		if _, many := answer.(lines); many {
			what = "Line"
		}
		if t.Kind() == reflect.Struct && users[t] == 1 {
			parts = append(parts, s.declare(what, t))
		} else {
			parts = append(parts, fmt.Sprintf("type %s = %s\n", what, s.name(t)))
		}
		answers = append(answers, t)
	}
	for _, t := range s.parts(of) {
		if users[t] == 1 && !slices.Contains(answers, t) {
			parts = append(parts, s.declare(s.name(t), t))
		}
	}
	return parts
}
