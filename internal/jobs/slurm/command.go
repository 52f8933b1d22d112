package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// commandTimeout bounds a Slurm command. Each gives up on its own after a few times MessageTimeout.
const commandTimeout = 2 * time.Minute

// maxAnswer bounds the kept part of a command's output.
const maxAnswer = 64 << 20

// commands runs Slurm's commands.
type commands struct{ env []string }

// A commandError is a failed Slurm command.
type commandError struct {
	command string
	text    string // its message
	err     error
}

func (e *commandError) Error() string {
	if e.text != "" {
		return e.command + ": " + e.text
	}
	return e.command + ": " + e.err.Error()
}

func (e *commandError) Unwrap() error { return e.err }

// run returns a command's output.
func (c commands) run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	var out bytes.Buffer
	err := c.stream(ctx, &bounded{w: &out, room: maxAnswer}, stdin, name, args...)
	return out.String(), err
}

// stream copies a command's output to out.
func (c commands) stream(ctx context.Context, out io.Writer, stdin, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = c.env
	if name != "sbatch" { // sbatch's environment becomes the job's
		cmd.Env = append(slices.Clone(c.env), "LC_ALL=C")
	}
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &bounded{w: &stderr, room: 4 << 10}
	if err := cmd.Run(); err != nil {
		return &commandError{command: name, text: oneLine(stderr.String()), err: errors.Join(err, ctx.Err())}
	}
	return nil
}

// bounded drops bytes beyond its limit.
type bounded struct {
	w    io.Writer
	room int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.room)
	b.room -= n
	_, err := b.w.Write(p[:n])
	return len(p), err
}

// oneLine joins the lines of a message, without prefixes such as "error: ".
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		for _, prefix := range []string{"sbatch: ", "squeue: ", "scontrol: ", "scancel: ", "error: ", "fatal: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// temporary are messages of Slurm's commands when the controller, or a service that they need to reach it, is down,
// starting, or overloaded.
var temporary = []string{
	"Unable to contact slurm controller",
	"Socket timed out",
	"Zero Bytes were transmitted or received",
	"Communication connection failure",
	"Communication shutdown failure",
	"Transport endpoint is not connected",
	"Connection refused",
	"Connection reset",
	"Connection timed out",
	"standby mode",
	"temporarily unable to accept job",
	"Resource temporarily unavailable",
	"Protocol authentication error",
	"Invalid authentication credential",
	"Unable to resolve",
	"Temporary failure in name resolution",
	"Unexpected message received",
	"Insane message length",
	"Message receive failure",
	"Message send failure",
	"Slurm is reconfiguring",
	"Header lengths are longer than data received",
	"Munge encode failed",
	"Munge decode failed",
}

// limits are messages of sbatch when there are too many jobs, of all users or of this one.
var limits = []string{
	"Job violates accounting/QOS policy",
	"Maximum number of jobs",
	"MaxSubmitJob",
	"job submit limit",
	"Job array too large",
	"Job array index too large",
}

// isTemporary tells whether the same command may succeed later. The failed call may also have taken effect.
func isTemporary(err error) bool {
	return says(err, temporary...) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// isLimit tells whether fewer jobs may be submitted.
func isLimit(err error) bool { return says(err, limits...) }

// isInvalidJob tells whether Slurm does not know a job, or no longer.
func isInvalidJob(err error) bool {
	return says(err, "Invalid job id", "already completing or completed")
}

func says(err error, texts ...string) bool {
	var e *commandError
	return errors.As(err, &e) && slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(e.text, text) })
}

// keptVariables are Slurm's variables that say how to reach the cluster. All others describe the allocation that this
// process may be in, or change the commands' output.
var keptVariables = []string{"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"}

// cleanEnv is the environment of Slurm's commands.
func cleanEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		for _, prefix := range []string{"SLURM_", "SLURMD_", "SQUEUE_", "SCANCEL_", "SCONTROL_"} {
			if strings.HasPrefix(name, prefix) {
				return !slices.Contains(keptVariables, name)
			}
		}
		return slices.Contains([]string{"SBATCH_ARRAY_INX", "SBATCH_WAIT", "SBATCH_WRAP", "SBATCH_TEST_ONLY"}, name)
	})
}

// reserved are options of sbatch that e3 sets itself.
var reserved = []string{"--array", "-a", "--comment", "--parsable", "--wrap", "--wait", "-W", "--test-only", "--output", "-o", "--error", "-e",
	"--help", "-h", "--usage", "--version", "-V", "--clusters", "-M"}

// validArgs refuses arguments of sbatch that conflict with e3's.
func validArgs(args []string) error {
	for _, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		if name == "--" || slices.ContainsFunc(reserved, func(r string) bool {
			return name == r || len(r) == 2 && strings.HasPrefix(name, r) && !strings.HasPrefix(name, "--")
		}) {
			return fmt.Errorf("argument %q of sbatch: e3 sets this itself", arg)
		}
	}
	return nil
}

// SplitArgs splits a line of arguments at spaces, except within ' or " quotes.
func SplitArgs(line string) ([]string, error) {
	var args []string
	var arg strings.Builder
	var quote rune
	begun := false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			arg.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if begun {
				args = append(args, arg.String())
			}
			arg.Reset()
			begun = false
		default:
			arg.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("arguments %q: a quote is not closed", line)
	}
	if begun {
		args = append(args, arg.String())
	}
	return args, nil
}
