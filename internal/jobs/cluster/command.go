package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
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
	cmd.Env, cmd.Stdin, cmd.WaitDelay = append(slices.Clone(c.Env), env...), strings.NewReader(input), time.Second
	out, err := cmd.Output()
	answer := string(out)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		answer += string(exit.Stderr)
	}
	if err != nil {
		err = c.failed(words[0], oneLine(cmp.Or(strings.TrimSpace(answer[len(out):]), answer)), errors.Join(err, ctx.Err()), exit != nil && !exit.Exited())
	}
	if c.Told != nil {
		c.Told(words, input, answer, err)
	}
	return string(out), err
}

// failed is the error of a command with its message.
func (c *Commands) failed(command, message string, err error, killed bool) error {
	e := &CommandError{Command: command, Text: cmp.Or(message, err.Error()), Err: err}
	says := func(r *regexp.Regexp) bool { return r != nil && r.MatchString(e.Text) }
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

// oneLine joins the lines of a message, up to some length.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text[:min(len(text), 4<<10)]) {
		if line = strings.TrimSpace(prefix.ReplaceAllString(line, "")); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
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
