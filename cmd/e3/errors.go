package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"e3/dataflow"
	"e3/dataflow/graph"
	"e3/executions"
	"e3/exportimport"
	"e3/gc"
	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
	"e3/internal/repo"
	"e3/internal/resultdir"
	"e3/internal/settings"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
	"e3/workspace"
)

// Exit codes (README, "Exit codes"). Unknown faults are failures.
const (
	exitOK           = 0
	exitFailed       = 1
	exitUsage        = 2
	exitWaits        = 3
	exitNoRepository = 10
	exitBusy         = 11
	exitIntegrity    = 12
	exitDenied       = 13
	exitTimeout      = 124
	exitCancelled    = 130
)

// usageError is a fault of the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errorLine is the last line of a command that has failed.
type errorLine struct {
	Type     string `json:"type"` // error
	Message  string `json:"message"`
	ExitCode int    `json:"exitCode"`
}

// exitError ends the process with an exit code; the command has printed its messages already.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// has reports whether an error is or wraps one of a type.
func has[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isOneOf reports whether an error is or wraps one of the targets.
func isOneOf(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}

// exitCode maps an error to an exit code. No other code does.
func exitCode(err error) int {
	exit, ended := errors.AsType[*exitError](err)
	switch {
	case err == nil:
		return exitOK
	case ended:
		return exit.code
	case isOneOf(err, errInterrupted, context.Canceled):
		return exitCancelled
	case isOneOf(err, repo.ErrNoRepository, repo.ErrOtherFormat, repo.ErrForeign):
		return exitNoRepository
	case has[*workspace.UnresponsiveError](err):
		return exitTimeout
	case has[*workspace.BusyError](err), has[*gc.BusyError](err), has[*refstore.UnsettledError](err), errors.Is(err, refstore.ErrLost):
		return exitBusy
	case denied(err):
		return exitDenied
	case has[*gc.UnsafeError](err), has[*exportimport.MissingError](err), has[*objectstore.CorruptError](err),
		isOneOf(err, refstore.ErrDamaged, refstore.ErrForeign, objectstore.ErrForeign, objectstore.ErrNotFound, record.ErrType,
			exportimport.ErrIntegrity, signature.ErrBadSignature, settings.ErrUnsigned, settings.ErrUntrusted):
		return exitIntegrity
	case has[*usageError](err), has[*resultdir.RefusedError](err), has[manifest.Errors](err), has[*manifest.Error](err),
		has[*graph.CycleError](err), has[*workspace.ItemsError](err), has[*workspace.UnknownError](err), has[*workspace.ParamsError](err),
		has[*workspace.OverrideError](err), has[*workspace.TakenError](err), has[*workspace.NotRunnableError](err),
		has[*workspace.AmbiguousError](err), has[*executions.PrunedError](err),
		isOneOf(err, executions.ErrAmbiguous, workspace.ErrVariable, workspace.ErrTool, workspace.ErrPart, workspace.ErrEnvironment, workspace.ErrPath, workspace.ErrRoomOfFile,
			workspace.ErrExists, workspace.ErrNotDeployed, exportimport.ErrFileExists, repo.ErrExists, repo.ErrLocation,
			approval.ErrNotFound, runview.ErrNoRun):
		return exitUsage
	case has[*workspace.InputError](err), has[*manifest.OpenError](err):
		if has[*objectstore.SpecialFileError](err) || has[*tree.Error](err) ||
			isOneOf(err, fs.ErrNotExist, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP) {
			return exitUsage
		}
	}
	return exitFailed
}

// denied reports whether the repository refused a request for want of a right.
func denied(err error) bool {
	_, yes := repo.Denied(err)
	return yes
}

// report prints the error and returns the exit code.
func (a *app) report(err error) int {
	if isOneOf(err, fs.ErrNotExist, repo.ErrNoRepository) {
		err = cmp.Or(checkHere(), err)
	}
	code := exitCode(err)
	var cancelled *workspace.CancelledError
	switch {
	case code != exitCancelled || errors.Is(err, errInterrupted):
	case errors.As(err, &cancelled):
		err = cancelled
	default:
		err = errInterrupted // a library reports only the end of its context
	}
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return code
	}
	a.Unintroduced()
	if a.JSON {
		if fault := a.Document(errorLine{"error", a.addressed(human.Words(err)), code}, false); fault != nil {
			fmt.Fprintf(a.Stderr, "e3: %s\n", human.Text(fault.Error()))
		}
	}
	fmt.Fprintf(a.Stderr, "e3: %s\n", human.Text(a.addressed(human.Words(err))))
	if hint := a.addressed(hint(err)); hint != "" {
		fmt.Fprintf(a.Stderr, "e3: %s\n", human.Line(hint))
	}
	return code
}

// hint says how to continue after an error that does not say so itself.
func hint(err error) string {
	var (
		unknown *workspace.UnknownError
		foreign *repo.ForeignError
		decided *approval.ResolvedError
		pending *pendingError
	)
	if d, ok := repo.Denied(err); ok {
		return fmt.Sprintf("your credentials lack %s on %s; the policy of a %s has it (doc/rights.md): ask the repository's administrator for that", d.Right, d.On, d.Role)
	}
	switch {
	case errors.As(err, &foreign):
		return fmt.Sprintf("to use it once, name it instead of the dot: %s; to trust it from now on: e3 settings --user safe-repository %[1]s; to make your own here: e3 init", human.Quoted(foreign.Root))
	case has[*gc.UnsafeError](err):
		return "what it refers to may be needed; to see what can be done: e3 verify"
	case errors.As(err, &pending):
		return "a start makes them: e3 start <repo> " + human.Quoted(pending.ws)
	case errors.As(err, &unknown):
		if items := itemsOf(unknown); len(items) > 0 {
			return fmt.Sprintf("%s is a matrix, of %s", unknown.Name, human.Few(items))
		}
		if text := unknownHint(unknown); text != "" {
			return text
		}
		if unknown.What == "run" {
			return "on record are: " + human.Few(unknown.Known)
		}
		if unknown.What == runview.CompletedAt && len(unknown.Known) == 0 {
			return "no completed run there has a commit on record: a start records that of its package file's folder"
		}
		if unknown.What == runview.CompletedAt {
			return "completed runs are on record at: " + human.Few(unknown.Known)
		}
		if unknown.What == "queue" && len(unknown.Known) == 0 {
			return "there are no queues yet; a start makes one that has tasks for workers: e3 start <repo> --workers"
		}
		if unknown.What == "workspace" && len(unknown.Known) == 0 {
			return "there are no workspaces yet; make one with: e3 start -f e3.yaml"
		}
		if len(unknown.Known) > 0 {
			return "there are: " + human.Few(unknown.Known)
		}
	case errors.Is(err, workspace.ErrVariable):
		return "give it another value with: VARIABLE=<value> e3 start <repo> <workspace>"
	case errors.Is(err, approval.ErrNotFound):
		return waitsHint(err)
	case errors.As(err, &decided):
		return resolvedHint(decided)
	case errors.Is(err, runview.ErrNoRun):
		return "run it with: e3 start <repo> <workspace>"
	case errors.Is(err, workspace.ErrNotDeployed):
		return "deploy one with: e3 workspace deploy <repo> <workspace> <package or e3.yaml>"
	case has[*workspace.LostValuesError](err): // says it itself
	case has[*dataflow.LostAgainError](err), errors.Is(err, exportimport.ErrIntegrity): // of something that is not here
	case errors.Is(err, refstore.ErrForeign), errors.Is(err, objectstore.ErrForeign): // the message says what to remove
		return "to find all that e3 has not put there: e3 verify <repo>"
	case errors.Is(err, refstore.ErrDamaged):
		return "to restore what can be restored: e3 verify --repair"
	case has[*workspace.PartError](err):
		return "to make what a workspace has lost again: e3 start <repo> <workspace>; if that finds nothing to do: e3 verify <repo> --repair"
	case has[*objectstore.CorruptError](err):
		return "to remove what is damaged: e3 verify --repair; then e3 start makes an output again, and an input comes back when it is set or deployed again"
	case errors.Is(err, objectstore.ErrNotFound):
		return "to make a lost output again: e3 start (if that says it is cached, first: e3 verify --repair); an input comes back when it is set or deployed again"
	case errors.Is(err, syscall.ENOSPC):
		return "the disk is full; nothing that was recorded is lost: free some space, for instance with e3 gc <repo>, and try again"
	case errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return "you may not read or write the repository, or a file in the message"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, repo.ErrNoRepository):
		return pathHint(err)
	}
	return ""
}

// itemsOf returns the items of a matrix if the unknown task name is that of the matrix.
func itemsOf(unknown *workspace.UnknownError) []string {
	var items []string
	for _, name := range unknown.Known {
		if strings.HasPrefix(name, unknown.Name+"[") {
			items = append(items, name)
		}
	}
	return items
}
