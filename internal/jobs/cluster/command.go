package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of a command's output, and of the kept part of its message.
const (
	maxAnswer  = 64 << 20
	maxMessage = 4 << 10
)

// Commands runs a scheduler's programs.
type Commands struct {
	Env     []string
	Timeout time.Duration // of each command; 0: two minutes
	// Messages of failed commands, by their kind; nil: none. Common ones of a network are temporary anyway.
	Temporary, Limit, Unknown *regexp.Regexp
	// Told is told of each command and its answer; nil: nothing is.
	Told func(words []string, stdin, answer string, err error)
}

// A CommandError is a failed command.
type CommandError struct {
	Command string
	Text    string // its message
	Err     error
	kind    error // nil: a refusal
}

func (e *CommandError) Error() string { return e.Command + ": " + e.Text }

// Unwrap returns the kind and the cause.
func (e *CommandError) Unwrap() []error { return []error{e.kind, e.Err} }

// network are messages of programs that do not reach their server.
var network = regexp.MustCompile(`(?i)connection (refused|reset|failure)|timed out|(read|connect|i/o|handshake) timeout|temporarily|temporary failure|` +
	`(unable to|cannot|could not) (contact|connect|resolve)|no route to host|network is unreachable|not connected|service ?unavailable|too ?many ?requests|throttling`)

// Run returns a command's output. input is its standard input; env follows Env.
func (c *Commands) Run(ctx context.Context, input string, words []string, env ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, 2*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(slices.Clone(c.Env), env...)
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = time.Second
	out, message := &bounded{room: maxAnswer}, &bounded{room: maxMessage}
	cmd.Stdout, cmd.Stderr = out, message
	err := cmd.Run()
	switch {
	case err != nil:
		err = c.failed(words[0], message.text.String(), out.text.String(), errors.Join(err, ctx.Err()))
	case out.over:
		err = &CommandError{words[0], fmt.Sprintf("its answer is longer than %d MiB", maxAnswer>>20), io.ErrShortBuffer, ErrTemporary}
	}
	if c.Told != nil {
		c.Told(words, input, out.text.String()+message.text.String(), err)
	}
	return out.text.String(), err
}

// failed is the error of a command.
func (c *Commands) failed(command, message, answer string, err error) error {
	text := oneLine(cmp.Or(strings.TrimSpace(message), answer[:min(len(answer), maxMessage)]))
	e := &CommandError{Command: command, Text: cmp.Or(text, err.Error()), Err: err}
	says := func(r *regexp.Regexp) bool { return r != nil && r.MatchString(e.Text) }
	var exit *exec.ExitError
	killed := errors.As(err, &exit) && !exit.Exited()
	switch {
	case says(c.Temporary):
		e.kind = ErrTemporary
	case says(c.Limit):
		e.kind = ErrLimit
	case says(c.Unknown):
		e.kind = ErrUnknown
	case says(network), killed, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		e.kind = ErrTemporary
	}
	return e
}

// prefix is what programs put before their messages.
var prefix = regexp.MustCompile(`^([a-z_]+: )?((error|fatal): )`)

// oneLine joins the lines of a message.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(prefix.ReplaceAllString(line, "")); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// bounded drops bytes beyond its room.
type bounded struct {
	text bytes.Buffer
	room int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.room-b.text.Len())
	b.over = b.over || n < len(p)
	b.text.Write(p[:n])
	return len(p), nil
}

// Words splits a line at white space, except within ' or " quotes.
func Words(line string) ([]string, error) {
	if strings.ContainsAny(word.ReplaceAllString(line, ""), `'"`) {
		return nil, fmt.Errorf("arguments %q: a quote is not closed", line)
	}
	words := word.FindAllString(line, -1)
	for i := range words {
		words[i] = quoted.ReplaceAllString(words[i], "$1$2")
	}
	return words, nil
}

var (
	word   = regexp.MustCompile(`([^\s'"]|'[^']*'|"[^"]*")+`)
	quoted = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
)
