package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"e3/executions"
	"e3/internal/format/pattern"
	"e3/internal/jobs/queue"
)

// A Scheduler is a cluster's scheduler. Its methods may be called at the same time. They return errors that wrap
// ErrTemporary, ErrLimit or ErrUnknown where that is so; [Commands] has those of programs.
type Scheduler interface {
	Traits() Traits
	// Demands are the words by which the needs of a job are asked, or an error that says why they cannot be. Jobs with equal
	// demands may share a batch.
	Demands(*queue.Job) ([]string, error)
	// Submit submits a batch, and returns its id. After an ErrTemporary it may have taken effect. Any other error but
	// ErrLimit refuses the batch.
	Submit(ctx context.Context, b *Batch) (id string, err error)
	// List visits all jobs of this user that e3 has submitted, also from other processes. It need not know ended ones.
	List(ctx context.Context, visit func(Listed)) error
	// Explain visits what is known of one submission. ErrUnknown if that is nothing, or nothing any more.
	Explain(ctx context.Context, id, token string, visit func(Listed)) error
	// Cancel ends submissions, by their ids, and jobs in arrays, by <id>_<index>. Ended ones are no error.
	Cancel(ctx context.Context, ids []string) error
}

// Traits are what a scheduler can do.
type Traits struct {
	Name  string // for messages
	Array int    // jobs in a batch
	Index string // the variable with the index of a job in a batch; "" where Array is 1
}

// A Listed is what a scheduler says of a job.
type Listed struct {
	ID     string // of the submission
	Index  int    // of the job in it
	Token  string // of the batch
	State  State
	Held   string            // why it does not start without a person's help; "": it may
	Reason executions.Reason // why it has ended
	How    string            // the same as a predicate: "was cancelled"
	Node   string            // where it ran, if known
	Said   string            // the scheduler's own words for its state
}

// State is the state of a scheduler's job, in the order of its life.
type State int

// The states of a job: it waits or runs; a cancellation would come too late; it has ended, and Explain may know more of that.
const (
	Alive State = iota
	Ending
	Failed
	Ended
)

// Kinds of errors of a scheduler.
var (
	ErrTemporary = errors.New("it may answer later")
	ErrLimit     = errors.New("it takes no more jobs for now")
	ErrUnknown   = errors.New("it knows no such job")
)

// Commands runs a scheduler's programs.
type Commands struct {
	Env     []string
	Timeout time.Duration // of each command; 0: timeout
	// Messages of failed commands, by their kind; nil: none. Common ones of a network are temporary anyway.
	Temporary, Limit, Unknown *regexp.Regexp
	// Told is told of each command and its answer; nil: nothing is.
	Told func(words []string, stdin, answer string, err error)
}

// A CommandError is a failed command.
type CommandError struct {
	Command string
	Text    string // its message
	kind    error  // nil: a refusal
}

func (e *CommandError) Error() string { return e.Command + ": " + e.Text }

// Unwrap returns the kind of the failure.
func (e *CommandError) Unwrap() error { return e.kind }

// network are messages of programs that do not reach their server.
var network = pattern.Of(`(?i)connection (refused|reset|failure)|timed out|(read|connect|i/o|handshake) timeout|temporarily|temporary failure|` +
	`(unable to|cannot|could not) (contact|connect|resolve)|no route to host|network is unreachable|not connected|service ?unavailable|too ?many ?requests|throttling`)

const timeout = 2 * time.Minute

// Run returns a command's output. input is its standard input; env follows Env.
func (c *Commands) Run(ctx context.Context, input string, words []string, env ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env, cmd.Stdin, cmd.WaitDelay = append(slices.Clone(c.Env), env...), strings.NewReader(input), time.Second
	// Ctrl-C is for e3, which has the scheduler's answer to wait for; what a command has started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.Output()
	answer := string(out)
	exit := (*exec.ExitError)(nil)
	if errors.As(err, &exit) {
		answer += string(exit.Stderr)
	}
	switch {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = &CommandError{words[0], fmt.Sprintf("no answer in %v", cmp.Or(c.Timeout, timeout)), ErrTemporary}
	case ctx.Err() != nil, exit != nil && !exit.Exited(): // it was ended: what it has said is no reason
		err = &CommandError{words[0], err.Error(), ErrTemporary}
	default:
		text := oneLine(cmp.Or(strings.TrimSpace(answer[len(out):]), answer, err.Error()))
		err = &CommandError{words[0], strings.TrimPrefix(text, filepath.Base(words[0])+": "), c.kind(text)}
	}
	if c.Told != nil {
		c.Told(words, input, answer, err)
	}
	return string(out), err
}

// kind is that of a failure with this message.
func (c *Commands) kind(message string) error {
	for i, r := range []*regexp.Regexp{c.Temporary, c.Limit, c.Unknown, network()} {
		if r != nil && r.MatchString(message) {
			return []error{ErrTemporary, ErrLimit, ErrUnknown, ErrTemporary}[i]
		}
	}
	return nil
}

// prefix is what programs put before their messages.
var prefix = pattern.Of(`^([a-z_]+: )?((error|fatal): )`)

// oneLine joins the lines of a message, up to some length.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text[:min(len(text), 4<<10)]) {
		if line = strings.TrimSpace(prefix().ReplaceAllString(line, "")); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// Words splits a line at white space, except within ' or " quotes.
func Words(line string) ([]string, error) {
	if strings.ContainsAny(word().ReplaceAllString(line, ""), `'"`) {
		return nil, fmt.Errorf("arguments %q: a quote is not closed", line)
	}
	words := word().FindAllString(line, -1)
	for i := range words {
		words[i] = quoted().ReplaceAllString(words[i], "$1$2")
	}
	return words, nil
}

var (
	word   = pattern.Of(`([^\s'"]|'[^']*'|"[^"]*")+`)
	quoted = pattern.Of(`'([^']*)'|"([^"]*)"`)
)
