package executions

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
	"e3/internal/host/kept"
	"e3/internal/host/runner"
	"e3/objectstore/tree"
)

// ErrNoEnvironment is wrapped if this machine cannot make the environment of a task. The command was not started, and
// another machine may be able to.
var ErrNoEnvironment = errors.New("this machine cannot make it")

// Bounds of the environments that a machine keeps. An environment that was used within spareEnvironment stays however
// large it is: a command whose process was killed may still use it.
const (
	maxUnusedEnvironment = 30 * 24 * time.Hour
	spareEnvironment     = 24 * time.Hour
	// DefaultEnvironmentBytes bounds the size of all environments together.
	DefaultEnvironmentBytes = 20 << 30
)

// EnvironmentBound says which environments a trim removes, given the greatest size of all.
func EnvironmentBound(bytes int64) kept.Bound {
	return kept.Bound{Age: maxUnusedEnvironment, Spare: spareEnvironment, Bytes: bytes}
}

// EnvironmentOptions say how an executor makes environments.
type EnvironmentOptions struct {
	// Folder is a folder of this user that keeps its path, since programs store it; nil: no environment can be made.
	Folder func() (string, error)
	Bytes  func() (int64, error) // the greatest size of all environments
	Env    []string              // of the commands that make them
	// Told is called when the making of an environment begins, and when it ends. It may be nil.
	Told func(Preparation)
}

// A Preparation is the making of an environment.
type Preparation struct {
	Name    string // of the environment
	Task    string // the first task that needs it
	Command string // in one line
	Done    bool
	Took    time.Duration
	Err     error // Done: why it was not made; nil: it was
}

// environments makes the environments of tasks, each once on this machine for this user.
type environments struct {
	EnvironmentOptions
	objects LocalObjects
	runner  Runner
	path    string
	grace   time.Duration

	mu   sync.Mutex
	open map[string]*environment
}

// An environment is one that this process makes or uses.
type environment struct {
	ready  chan struct{} // closed once the fields below are known
	folder *kept.Folder  // nil: it was not made
	err    *environmentError
	again  bool // nobody knows yet whether it can be made: the next task tries

	run, task string // for which it is made
}

// An environmentError says why an environment was not made.
type environmentError struct {
	name  string
	err   error
	log   string // a file with what the command printed; "": there is none
	first string // the task that tells more; "": this one
}

func (e *environmentError) Error() string {
	switch {
	case e.first != "":
		return fmt.Sprintf("environment %s was not made, as the task %s tells", e.name, e.first)
	case e.log != "":
		return fmt.Sprintf("environment %s was not made: %v; the log stays in %s", e.name, e.err, e.log)
	}
	return fmt.Sprintf("environment %s was not made: %v", e.name, e.err)
}

func (e *environmentError) Unwrap() error { return e.err }

// openEnvironment makes the task's environment ready. A fault of the environment is reported only when the command is
// about to start.
func (a *assignment) openEnvironment(ctx context.Context) error {
	if a.spec.Environment == nil {
		return nil
	}
	e, err := a.x.environments.lend(ctx, a)
	if err != nil {
		return err
	}
	if a.noEnvironment = e.err; e.err == nil {
		a.environment = e.folder.Path
	} else if e.task != a.req.Name {
		a.noEnvironment = &environmentError{name: e.err.name, err: e.err.err, first: e.task}
	}
	return nil
}

// lend returns the task's environment once it is made, or cannot be made. It stays in use until this process ends.
func (p *environments) lend(ctx context.Context, a *assignment) (*environment, error) {
	key := a.environmentKey()
	for {
		e, mine := p.enter(key, a)
		if mine {
			p.settle(ctx, e, a, key)
		}
		select {
		case <-e.ready:
		case <-ctx.Done():
		}
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case mine || !e.again:
			return e, nil
		}
	}
}

// enter returns the environment of a key. mine: the caller makes it. A failure counts for its run.
func (p *environments) enter(key string, a *assignment) (e *environment, mine bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.open[key]; e != nil {
		select {
		case <-e.ready:
			if e.err == nil || !e.again && e.run == a.req.RunID {
				return e, false
			}
		default:
			return e, false
		}
	}
	e = &environment{ready: make(chan struct{}), run: a.req.RunID, task: a.req.Name}
	if p.open == nil {
		p.open = map[string]*environment{}
	}
	p.open[key] = e
	return e, true
}

// settle makes an environment, and tells those who wait for it.
func (p *environments) settle(ctx context.Context, e *environment, a *assignment, key string) {
	defer close(e.ready)
	told := Preparation{Name: a.environmentName(), Task: a.req.Name, Command: a.environmentCommand()}
	began := time.Now()
	making := func() {
		if p.Told != nil {
			p.Told(told)
		}
	}
	var err error
	e.folder, err = p.make(ctx, a, key, making)
	if err != nil && !errors.As(err, &e.err) {
		e.err = &environmentError{name: told.Name, err: err}
	}
	// A worker gives the job back, and takes it again later.
	e.again = ctx.Err() != nil || errors.Is(err, ErrNoEnvironment) && a.req.Job.Ref != ""
	if told.Done, told.Took, told.Err = true, time.Since(began), err; p.Told != nil {
		p.Told(told)
	}
}

// make returns the folder of an environment, which it makes if this machine has none. making is called first then.
func (p *environments) make(ctx context.Context, a *assignment, key string, making func()) (*kept.Folder, error) {
	spec := a.spec.Environment
	if here := runtime.GOOS + "/" + runtime.GOARCH; spec.Platform != here {
		return nil, fmt.Errorf("it is for %s, and %w, which is %s", spec.Platform, ErrNoEnvironment, here)
	}
	if p.Folder == nil {
		return nil, fmt.Errorf("%w: no folder is known for it", ErrNoEnvironment)
	}
	folder, err := p.Folder()
	if err != nil {
		return nil, err
	}
	return kept.Folders(folder).Open(ctx, key, &kept.Maker{
		Make: func(to, aside string) (string, error) {
			making()
			return "", p.prepare(ctx, a, to, filepath.Join(aside, "log"))
		},
	})
}

// prepare makes an environment in an empty folder.
func (p *environments) prepare(ctx context.Context, a *assignment, to, log string) error {
	files := a.req.Inputs[a.spec.EnvironmentIndex()]
	in, err := beneath.Open(to)
	if err != nil {
		return err
	}
	defer in.Close() // nothing is buffered
	_, err = tree.CheckoutIn(ctx, p.objects, files, in, ".", tree.CheckoutOptions{Merge: true, Fixed: true})
	if err != nil {
		return err
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close() // it is a log
	spec := a.spec.Environment
	argv := spec.Argv
	if argv == nil {
		argv = []string{"bash", "-euo", "pipefail", "-c", spec.Shell}
	}
	marker := "E3_ENVIRONMENT=" + to
	env := append(slices.Clone(p.Env), "PATH="+p.path, ceiling+"="+to)
	env = append(env, environmentVariables(spec, to)...)
	res, err := p.runner.Run(ctx, runner.Spec{
		Argv: argv, Dir: to, Env: lastOfEach(append(env, marker)), Stdout: out, Stderr: out,
		Marker: marker, Room: to, Grace: p.grace,
	})
	if err == nil && !res.Success() {
		err = p.failed(ctx, &res, spec)
	}
	var start *runner.StartError
	if errors.As(err, &start) {
		err = fmt.Errorf("%w: %w", ErrNoEnvironment, err)
	}
	if err != nil {
		return &environmentError{name: a.environmentName(), err: err, log: log}
	}
	return protect(to)
}

// failed says how the command that makes an environment has ended.
func (p *environments) failed(ctx context.Context, res *runner.Result, spec *record.Environment) error {
	const notExecutable, notFound = 126, 127 // bash says so of a program
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case res.OOM:
		return errors.New("its command was killed by the system because memory was used up")
	case res.Signal != 0:
		return fmt.Errorf("its command was killed by signal %s", signalName(res.Signal))
	case spec.Argv == nil && (res.ExitCode == notExecutable || res.ExitCode == notFound):
		return fmt.Errorf("%w: a program of its command is missing (exit code %d)", ErrNoEnvironment, res.ExitCode)
	}
	return fmt.Errorf("its command ended with exit code %d", res.ExitCode)
}

// protect takes the right to write from the files of an environment. Links stay as they are.
func protect(folder string) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() && !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o222 != 0 {
			err = os.Chmod(path, info.Mode().Perm()&^0o222)
		}
		return err
	})
}

// environmentVariables are the variables that an environment in a folder sets. For a task, entries of PATH follow.
func environmentVariables(spec *record.Environment, folder string) []string {
	var env []string
	for _, e := range spec.Env {
		env = append(env, e.Name+"="+strings.ReplaceAll(e.Value, "{environment}", folder))
	}
	return env
}

// environmentEnv is what the environment adds to the variables of the command.
func (a *assignment) environmentEnv() []string {
	if a.environment == "" {
		return nil
	}
	search := a.x.opts.Path
	for _, folder := range slices.Backward(a.spec.Environment.Path) {
		search = path.Join(a.environment, folder) + ":" + search
	}
	return append(environmentVariables(a.spec.Environment, a.environment), "PATH="+search)
}

// environmentName is the name of the task's environment.
func (a *assignment) environmentName() string {
	name, _ := record.EnvironmentOf(a.spec.Inputs[a.spec.EnvironmentIndex()].Name)
	return name
}

// environmentCommand is the first line of the command that makes the environment.
func (a *assignment) environmentCommand() string {
	spec := a.spec.Environment
	if spec.Argv != nil {
		return strings.Join(spec.Argv, " ")
	}
	line, _, more := strings.Cut(strings.TrimSpace(spec.Shell), "\n")
	if more {
		line += " …"
	}
	return line
}

// environmentKey names the folder of the environment: it depends on all that decides what is in there, and not on the
// name of the environment. It is short, because the first line of a script holds its path.
func (a *assignment) environmentKey() string {
	sum := sha256.New()
	sum.Write([]byte("e3 environment\x00"))
	sum.Write(a.spec.Environment.Encode())
	for i, in := range a.spec.Inputs {
		tool, isTool := record.ToolOf(in.Name)
		if i == a.spec.EnvironmentIndex() || isTool && slices.Contains(a.spec.Environment.Tools, tool) {
			sum.Write(a.req.Inputs[i][:])
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// showLog copies the end of the log of an environment that was not made into the log of the task that tells of it.
func (e *environmentError) showLog(to io.Writer, mask func(string) string) error {
	const most = 64 << 10
	if e.log == "" || e.first != "" {
		return nil
	}
	text, err := os.ReadFile(e.log)
	if err != nil {
		return nil // the error says where it was
	}
	if cut := len(text) - most; cut > 0 {
		_, text, _ = bytes.Cut(text[cut:], []byte("\n"))
	}
	_, err = io.WriteString(to, mask(string(text)))
	return err
}

// closeAll ends the use of all environments, and removes old ones.
func (p *environments) closeAll(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, e := range p.open {
		if e.folder != nil {
			errs = append(errs, e.folder.Close())
		}
	}
	if len(p.open) > 0 { // only a process that used an environment looks after the others
		folder, err := p.Folder()
		bytes, fault := p.Bytes()
		if err = errors.Join(err, fault); err == nil {
			_, err = kept.Folders(folder).Trim(now, EnvironmentBound(bytes), false)
		}
		errs = append(errs, err)
	}
	p.open = nil
	return errors.Join(errs...)
}
