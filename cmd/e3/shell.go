package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/remains"
	"e3/internal/host/runner"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/objectstore"
	"e3/workspace"
)

type shellOptions struct {
	keep, fresh, open bool
	command           []string // after --; none: a shell
}

func newShell(a *app) *cobra.Command {
	var o shellOptions
	cmd := &cobra.Command{
		Use:   "shell [repo] <workspace>.<task>|@<execution> [-- command...]",
		Short: "Open a shell where the command of a task runs",
		Long: `Open a shell in a private folder with the inputs and the environment of a task's command, and print that command. $SHELL is
started, or bash; a command after -- runs instead, and its exit code is that of e3 shell.

A task that has failed is entered as its command left it, until the next start of the workspace. With --fresh, and for other
tasks, the inputs of its latest execution are staged anew in a folder that is removed at the end. @<execution>, the beginning of
an id, means any execution on record.

For a task in a closed room the shell opens in such a room: what is missing there is missing for the command. --open enters
with the whole machine in sight.

Nothing that happens in the folder enters the cache or the workspace. The file ../command starts the task's command. Secrets are
there if they are set here.`,
		Example: `  e3 shell . prod.train
  e3 shell . 'prod.train[4]' --fresh
  e3 shell . prod.train -- ls -lR
  e3 shell . prod.train -- ../command
  e3 shell . @018f3b4c-9a`,
		ValidArgsFunction: completeTask(a),
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				args, o.command = args[:at], args[at:]
				if len(o.command) == 0 {
					return usagef("-- needs a command")
				}
			}
			return a.onExecution(a.openToRead, func(ctx context.Context, r *repo.Repo, arg executionArg) error {
				return runShell(ctx, a, r, arg, &o)
			}, "<workspace>.<task>")(cmd, args)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.keep, "keep", false, "leave the folder at the end, as that of a failed task: until the next start of the workspace")
	f.BoolVar(&o.open, "open", false, "not in the closed room of the task's command, but with the whole machine in sight")
	f.BoolVar(&o.fresh, "fresh", false, "stage the inputs anew, although the folder of the failed command is here")
	return cmd
}

func runShell(ctx context.Context, a *app, r *repo.Repo, arg executionArg, o *shellOptions) error {
	e, err := executedBefore(ctx, a, r, arg)
	if err != nil {
		return err
	}
	x, err := r.Executor(repo.ExecutorOptions{Prepared: a.tellPreparation})
	if err != nil {
		return err
	}
	folder := r.Kept().Find(e.ExecutionID)
	if o.fresh {
		folder = nil
	}
	v, err := enter(ctx, r, x, e, folder)
	var gone *executions.GoneInputError
	if errors.As(err, &gone) {
		return fmt.Errorf("execution %s cannot be entered: %w; a start makes outputs of tasks again, and an input comes back with e3 set or with an import of a zip that has it", e.ExecutionID, gone)
	}
	if err != nil {
		return fmt.Errorf("enter execution %s: %w", e.ExecutionID, err)
	}
	if v.Closed != nil && o.open {
		err = v.Open(ctx)
	}
	code := 0
	if err == nil {
		code, err = a.visit(ctx, v, e, o)
	}
	return errors.Join(leave(a, r, v, e, o.keep), err, exitWith(code))
}

func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code}
}

// executedBefore finds the execution to enter. A task that was skipped in the latest run has earlier ones.
func executedBefore(ctx context.Context, a *app, r *repo.Repo, arg executionArg) (*executions.Execution, error) {
	e, err := arg.find(ctx, a, r)
	if err == nil || arg.id != "" {
		return e, err
	}
	te, fault := r.Workspaces.Runs.TaskExecutions(ctx, arg.ws, arg.task)
	if fault == nil && len(te.Known) > 0 {
		return te.Known[0], nil
	}
	var unknown *workspace.UnknownError
	if errors.As(err, &unknown) {
		return nil, err
	}
	return nil, fmt.Errorf("%w; e3 shell enters what has run once: e3 start <repo> %s --filter %s", err, human.Quoted(arg.ws), human.Quoted(arg.task))
}

// enter makes the folder ready.
func enter(ctx context.Context, r *repo.Repo, x *executions.Executor, e *executions.Execution, folder *remains.Folder) (*executions.Visit, error) {
	req := &executions.Request{
		Task: e.Key.Task, Attempt: 1, Inputs: make([]objectstore.Hash, len(e.InputHashes)),
		Load: func(ctx context.Context) (*record.Task, error) {
			return executions.LoadTask(ctx, r.Objects, e.Key.Task)
		},
	}
	for i, text := range e.InputHashes {
		var err error
		if req.Inputs[i], err = objectstore.ParseHash(text); err != nil {
			return nil, err
		}
	}
	if folder != nil {
		return x.VisitKept(ctx, req, folder)
	}
	return x.Visit(ctx, req)
}

// visit tells what is there, starts the shell or the command, and returns its exit code.
func (a *app) visit(ctx context.Context, v *executions.Visit, e *executions.Execution, o *shellOptions) (int, error) {
	if err := v.WriteScript("#!/bin/sh\nexec " + commandLine(v.Argv) + "\n"); err != nil {
		return 0, err
	}
	left := "its inputs, staged anew"
	if v.Kept {
		left = "as the command left it"
	}
	a.Notef("%s, execution %s: %s", human.Line(e.TaskName()), human.Short(e.ExecutionID), human.Line(endOf(e)))
	a.Notef("Folder:  %s (%s)", human.Line(v.Dir), left)
	a.Notef("Command: %s", human.Text(commandLine(v.Argv)))
	if v.Closed != nil {
		a.Notef("Room:    closed; the folder is /e3/work there (--open enters with the whole machine in sight)")
	}
	if len(v.Unset) > 0 {
		a.Notef("Not set here: %s", human.Line(strings.Join(v.Unset, ", ")))
	}
	argv, env := o.command, v.Env
	if len(argv) == 0 {
		argv = shellArgv(a.Getenv("SHELL"))
		if t := a.Getenv("TERM"); t != "" {
			env = append(slices.Clip(env), "TERM="+t)
		}
		a.Notef("The command is started by ../command; nothing that happens here enters the cache")
	}
	if v.Closed != nil {
		return a.inRoom(ctx, v, argv, env)
	}
	return a.foreground(argv, v.Dir, env)
}

// endOf says how an execution ended.
func endOf(e *executions.Execution) string {
	switch e.State {
	case record.Failed:
		return fmt.Sprintf("failed with exit code %d", e.ExitCode)
	case record.Error:
		return e.Message
	}
	return e.State.String()
}

// shellArgv starts a shell without the user's own files, which are not in the private HOME.
func shellArgv(shell string) []string {
	if !filepath.IsAbs(shell) {
		shell = "bash"
	}
	switch filepath.Base(shell) {
	case "bash":
		return []string{shell, "--norc", "--noprofile"}
	case "zsh":
		return []string{shell, "-f"}
	case "fish":
		return []string{shell, "--no-config"}
	}
	return []string{shell}
}

// foreground runs a program with the terminal of this process. Ctrl-C is for the program.
func (a *app) foreground(argv []string, dir string, env []string) (int, error) {
	path, err := runner.LookPath(argv[0], dir, env)
	if err != nil {
		return 0, usagef("%v", err)
	}
	signals, stop := a.passedOn()
	defer stop()
	status, err := runner.Foreground(&exec.Cmd{
		Path: path, Args: argv, Dir: dir, Env: append(slices.Clip(env), "PWD="+dir), Stdin: a.stdin, Stdout: a.Stdout, Stderr: a.Stderr,
	}, signals)
	return exitStatus(status), err
}

// inRoom runs a program in the closed room of a visit, with the terminal of this process.
func (a *app) inRoom(ctx context.Context, v *executions.Visit, argv, env []string) (int, error) {
	signals, stop := a.passedOn()
	defer stop()
	var files [3]*os.File
	for i, stream := range []any{a.stdin, a.Stdout, a.Stderr} {
		var ok bool
		if files[i], ok = stream.(*os.File); !ok {
			return 0, errors.New("a program in a closed room needs files for its input and output")
		}
	}
	env = append(slices.Clip(env), "PWD=/e3/work")
	status, err := runner.Visit(v.Closed, argv, env, files, signals)
	if runner.CannotMount(err) && len(v.Closed.Lower) > 0 {
		if err = v.Copy(ctx); err == nil {
			status, err = runner.Visit(v.Closed, argv, env, files, signals)
		}
	}
	var start *runner.StartError
	switch {
	case errors.As(err, &start) && !runner.NoRoom(err):
		return 0, usagef("%v", err)
	case err != nil:
		return 0, err
	}
	return exitStatus(status), nil
}

// exitStatus is the exit code of a program as shells tell it.
func exitStatus(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// leave removes the folder, or says where it is.
func leave(a *app, r *repo.Repo, v *executions.Visit, e *executions.Execution, keep bool) error {
	if v.Kept {
		return nil
	}
	if keep {
		id, err := executions.NewID()
		if err != nil {
			return errors.Join(err, v.Leave())
		}
		f := remains.Folder{Execution: id, At: a.Now(), Visit: true}
		if d := e.Detail; d != nil {
			f.Workspace, f.Task, f.Run = d.Workspace, d.Task, d.RunID
		}
		folder, err := v.Keep(r.Kept(), f)
		if err != nil {
			return errors.Join(fmt.Errorf("the folder is not kept: %w", err), v.Leave())
		}
		a.Notef("Kept until the next start of %s: %s", human.Line(cmp.Or(f.Workspace, "its workspace")), folder.Work())
	}
	return v.Leave()
}

// commandLine is a command as a shell reads it.
func commandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		words[i] = arg
		if arg == "" || strings.Trim(arg, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./@+:,") != "" {
			words[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
