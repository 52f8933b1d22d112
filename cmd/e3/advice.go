package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/pattern"
	"e3/internal/human"
)

// placeholder stands for the repository in commands that messages advise. The packages that write these messages do not
// know by what name the user reaches the repository.
const placeholder = "<repo>"

// advised finds the repository of an advised command. Any other text keeps what looks like the placeholder: a task may
// have printed it.
var advised = pattern.Of(`\be3 (?:[a-z-]+ ){1,2}` + placeholder)

// names remembers the name of the first repository that the command opens. It is safe for concurrent use.
func (a *app) names(name string) { a.repository.CompareAndSwap(nil, &name) }

// here is the name of the repository that the command has opened, for a command to type.
func (a *app) here() string { return *a.repository.Load() }

// addressed has the commands that a message advises name the repository that the command uses, so that they can be
// copied as they are.
func (a *app) addressed(text string) string {
	name := a.repository.Load()
	if name == nil || !strings.Contains(text, placeholder) {
		return text
	}
	return advised().ReplaceAllStringFunc(text, func(command string) string {
		return strings.TrimSuffix(command, placeholder) + human.Quoted(*name)
	})
}

// Warnf is that of render.Output, with commands that can be copied.
func (a *app) Warnf(format string, args ...any) {
	a.Output.Warnf("%s", a.addressed(fmt.Sprintf(format, args...)))
}

// copyable is out for text that may advise commands.
func (a *app) copyable(out io.Writer) io.Writer { return &addressing{a, out} }

// addressing replaces the placeholder in what is written. A command that is split between two writes keeps it.
type addressing struct {
	a  *app
	to io.Writer
}

func (w *addressing) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, w.a.addressed(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Reply is that of render.Output, with commands that can be copied.
func (a *app) Reply(document any, text func(w *render.Sheet)) error {
	return a.Output.Reply(document, func(w *render.Sheet) {
		var b bytes.Buffer
		text(&render.Sheet{Writer: &b, Style: w.Style})
		_, _ = a.copyable(w).Write(b.Bytes()) // w is memory
	})
}
