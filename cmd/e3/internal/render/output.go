package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"e3/cmd/e3/internal/term"
	"e3/internal/human"
)

// An Output prints the results of a command, in the form that its flags choose.
type Output struct {
	Stdout io.Writer // data
	Stderr io.Writer // progress, warnings, errors
	Getenv func(string) string
	Now    func() time.Time

	JSON  bool   // --json: data for programs
	Color string // --color: auto, always or never

	Check func(document any) error // refuses documents, in tests; may be nil

	above atomic.Pointer[func(print func())]
	intro atomic.Pointer[string]
}

// Introduce keeps a note for the user until the command has something to say: before the error of a name it would only be in
// the way.
func (o *Output) Introduce(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	o.intro.Store(&text)
}

// Introduced writes the note of Introduce, if it is still to be written. Code that writes to Stdout or Stderr by itself calls it
// first.
func (o *Output) Introduced() {
	if text := o.intro.Swap(nil); text != nil {
		fmt.Fprintln(o.Stderr, *text)
	}
}

// Unintroduced drops that note: the command has failed before it said anything.
func (o *Output) Unintroduced() { o.intro.Store(nil) }

// Above has notes written by above, which removes a live line of the terminal meanwhile, until the returned function is called.
func (o *Output) Above(above func(print func())) (end func()) {
	o.above.Store(&above)
	return func() { o.above.Store(nil) }
}

// Notef writes a message for the user to standard error. It is safe for concurrent use.
func (o *Output) Notef(format string, args ...any) {
	o.Introduced()
	print := func() { fmt.Fprintf(o.Stderr, format+"\n", args...) }
	if above := o.above.Load(); above != nil {
		(*above)(print)
		return
	}
	print()
}

// Warnf writes a warning for the user. It makes the text printable, since that may quote untrusted names and messages.
func (o *Output) Warnf(format string, args ...any) {
	o.Notef("warning: %s", human.Line(fmt.Sprintf(format, args...)))
}

// Reply prints a command's result: the document for programs, else what text writes.
func (o *Output) Reply(document any, text func(w *Sheet)) error {
	if o.JSON {
		return o.Document(document, o.ToTerminal())
	}
	o.Introduced()
	var b bytes.Buffer
	text(&Sheet{&b, o.Style()})
	_, err := o.Stdout.Write(b.Bytes())
	return err
}

// Document writes JSON, on one line or indented.
func (o *Output) Document(v any, indent bool) error {
	if o.Check != nil {
		if err := o.Check(v); err != nil {
			return err
		}
	}
	o.Introduced()
	out := o.Stdout
	if o.ToTerminal() {
		out = &term.SafeWriter{To: out} // JSON does not escape C1 control characters
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// Raw writes untrusted bytes to standard output, through a filter if that is a terminal.
func (o *Output) Raw(write func(io.Writer) error) error {
	o.Introduced()
	if !o.ToTerminal() {
		return write(o.Stdout)
	}
	safe := o.Safe()
	return errors.Join(write(safe), safe.Close())
}

// Safe is standard output behind a filter that protects a terminal.
func (o *Output) Safe() *term.SafeWriter {
	o.Introduced()
	return &term.SafeWriter{To: o.Stdout, Colors: o.Style() != term.Style{}}
}

// ToTerminal reports whether standard output is a terminal.
func (o *Output) ToTerminal() bool { return term.Of(o.Stdout) != nil }

// Style returns the colours for standard output.
func (o *Output) Style() term.Style { return term.StyleFor(o.Stdout, o.Color, o.Getenv) }

// Live is a progress line on standard error, hidden unless that is a terminal that can show it.
func (o *Output) Live() *term.Live {
	if !term.Smart(o.Stderr, o.Getenv) {
		return term.Hidden()
	}
	return term.NewLive(term.Of(o.Stderr), o.Now)
}

// Headed is a table with a header line on a terminal, unless it stays empty. Piped output has no header.
func (o *Output) Headed(right map[int]bool, cells ...string) *Table {
	t := &Table{Right: right}
	if o.ToTerminal() {
		t.Row(cells...)
		t.heads = 1
	}
	return t
}

// Plot draws durations for standard output.
func (o *Output) Plot(what string, points []Point) *Plot {
	return &Plot{what: what, points: points, width: term.Width(o.Stdout), ascii: term.ASCII(o.Getenv), style: o.Style()}
}
