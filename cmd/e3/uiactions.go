package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"e3/internal/format/notation"
	"e3/internal/human"
)

// uiActions does what pages ask for by the commands themselves: each is a process of this program, so that nothing differs from what
// a person types.
type uiActions struct {
	location string // of the repository, as an argument
}

// early is how long a start is watched for an error of its arguments.
const early = 1500 * time.Millisecond

// Start implements [ui.Actions]. The run goes on when this process ends; e3 cancel stops it.
func (u *uiActions) Start(ctx context.Context, ws, filter string, force bool) (string, error) {
	args := []string{"start", "--progress=none"}
	if force {
		args = append(args, "--force")
	}
	if filter != "" {
		args = append(args, "--filter="+filter)
	}
	cmd, said, err := u.command(context.WithoutCancel(ctx), ws, append(args, "--", u.location, ws)...)
	if err != nil {
		return "", err
	}
	detach(cmd)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	wait := time.NewTimer(early)
	defer wait.Stop()
	select {
	case err := <-ended:
		return outcome(said, err)
	case <-wait.C:
		return "Started " + ws, nil
	}
}

// Cancel implements [ui.Actions].
func (u *uiActions) Cancel(ctx context.Context, ws, note string) (string, error) {
	return u.run(ctx, ws, "cancel", "--no-wait", "--reason="+note, "--", u.location, ws)
}

// Retry implements [ui.Actions].
func (u *uiActions) Retry(ctx context.Context, job string) (string, error) {
	return u.run(ctx, "", "queue", "retry", "--", u.location, shortJob(job))
}

// Decide implements [ui.Actions].
func (u *uiActions) Decide(ctx context.Context, ws, task string, approve bool, note string) (string, error) {
	command := "approve"
	if !approve {
		command = "reject"
	}
	return u.run(ctx, ws, command, "--note="+note, "--", u.location, ws+"."+task)
}

// Pin implements [ui.Actions].
func (u *uiActions) Pin(ctx context.Context, execution, note string) (string, error) {
	return u.run(ctx, "", "pin", "add", "--note="+note, "--", u.location, execution)
}

func (u *uiActions) run(ctx context.Context, ws string, args ...string) (string, error) {
	cmd, said, err := u.command(ctx, ws, args...)
	if err != nil {
		return "", err
	}
	return outcome(said, cmd.Run())
}

// command is this program with other arguments. ws is checked, if it is not empty.
func (u *uiActions) command(ctx context.Context, ws string, args ...string) (*exec.Cmd, *bytes.Buffer, error) {
	if ws != "" && !notation.ValidName(ws) {
		return nil, nil, fmt.Errorf("%q cannot be the name of a workspace", ws)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Args[0] = os.Args[0]
	said := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.WaitDelay = time.Second
	return cmd, said, nil
}

// outcome is what a command has said.
func outcome(said *bytes.Buffer, err error) (string, error) {
	text := strings.TrimSpace(human.Text(said.String()))
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return "", errors.New(cmp.Or(text, fmt.Sprintf("the command ended with exit code %d", exit.ExitCode())))
	case err != nil:
		return "", err
	}
	return cmp.Or(text, "Done"), nil
}

// detach lets a process outlive this one's terminal and signals.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
