// Package repo opens a repository by its location and wires its stores. It is the only
// package that knows which backends there are.
package repo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/runner"
	"e3/objectstore"
	reffs "e3/refstore/fs"
	"e3/workspace"
)

// DirName is the folder of a repository in a project.
const DirName = ".e3"

// formatFile says that a folder is a repository and which layout it has (doc/format.md).
const formatFile = "format.json"

// LayoutVersion is the layout that this program reads and writes.
const LayoutVersion = 1

// Conditions that callers branch on.
var (
	ErrNoRepository = errors.New("no e3 repository")
	ErrExists       = errors.New("there is a repository already")
	ErrTooNew       = errors.New("the repository was made by a newer e3")
)

type format struct {
	E3      string `json:"e3"`
	Version int    `json:"version"`
}

// Create makes an empty repository in dir, which is made if need be, and returns its path.
func Create(dir string) (string, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", fmt.Errorf("create repository: %w", err)
	}
	for _, sub := range []string{"objects", "packages", "executions", "workspaces", "dataflows", "events", "locks", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, sub), 0o755); err != nil {
			return "", fmt.Errorf("create repository: %w", err)
		}
	}
	// The last step, and exclusive: a folder with this file is a whole repository.
	text, err := json.Marshal(format{E3: "repository", Version: LayoutVersion})
	if err != nil {
		return "", err
	}
	// The name is that of a session which nobody holds, so that a sweep removes what a crash leaves.
	aside := filepath.Join(root, "tmp", fmt.Sprintf("session-format-%d", os.Getpid()))
	defer os.Remove(aside)
	if err := writeSynced(aside, append(text, '\n')); err != nil {
		return "", fmt.Errorf("create repository: %w", err)
	}
	err = os.Link(aside, filepath.Join(root, formatFile))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) && isRepository(root) { // another's sweep came by
		return root, fmt.Errorf("%w in %s", ErrExists, root)
	}
	return root, err
}

// writeSynced writes a file whose bytes are on disk before it gets its final name: a loss of
// power must not leave a repository that nobody can open.
func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Find returns the root of the repository that a location means: "." is the .e3 folder
// here or in a folder above; any other location is a repository or a folder with one in it.
func Find(location string) (string, error) {
	if strings.Contains(location, "://") {
		return "", fmt.Errorf("%w at %s: this e3 knows only repositories in folders", ErrNoRepository, location)
	}
	dir, err := filepath.Abs(location)
	if err != nil {
		return "", err
	}
	if location != "." {
		for _, root := range []string{dir, filepath.Join(dir, DirName)} {
			if isRepository(root) {
				return root, nil
			}
		}
		return "", fmt.Errorf("%w at %s; make one with: e3 init %s", ErrNoRepository, location, location)
	}
	for d := dir; ; d = filepath.Dir(d) {
		if root := filepath.Join(d, DirName); isRepository(root) {
			return root, nil
		}
		if isRepository(d) {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%w here or in a folder above; make one with: e3 init", ErrNoRepository)
		}
	}
}

func isRepository(dir string) bool {
	info, err := os.Lstat(filepath.Join(dir, formatFile))
	return err == nil && info.Mode().IsRegular()
}

// Options adjust an open repository.
type Options struct {
	Version string           // of e3, for the records
	Now     func() time.Time // nil: time.Now
}

// A Repo is an open repository.
type Repo struct {
	Root       string
	Records    *reffs.Store
	Objects    *objectstore.Dir
	Executions *executions.Store
	Workspaces *workspace.Workspaces

	opts   Options
	user   func() string
	runner *runner.Supervisor
}

// Open opens the repository that location means. It writes nothing.
func Open(location string, opts Options) (*Repo, error) {
	root, err := Find(location)
	if err != nil {
		return nil, err
	}
	if err := checkFormat(root); err != nil {
		return nil, err
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Repo{Root: root, opts: opts, user: sync.OnceValue(UserAtHost)}
	records, err := reffs.Open(root, reffs.Options{
		Now: opts.Now, Mend: r.mend,
		Boot: sync.OnceValue(func() string { return boot(root) }),
	})
	if err != nil {
		return nil, err
	}
	objects, err := objectstore.OpenDir(filepath.Join(root, "objects"), objectstore.Options{Session: records.Session})
	if err != nil {
		records.Close()
		return nil, err
	}
	r.Records, r.Objects = records, objects
	r.Executions = executions.NewStore(records, objects)
	r.Workspaces = workspace.New(workspace.Stores{
		Records: records, Locks: records, Objects: objects, Local: records, Sessions: records, Now: opts.Now, Holder: holder,
		Sweep: func(ctx context.Context) error {
			_, err := records.Sweep(ctx)
			return err
		},
	})
	return r, nil
}

// boot identifies this start of the machine and this mount of the repository's file system, as
// far as that is known.
func boot(root string) string {
	id := self().BootID
	if id == "" {
		return ""
	}
	return id + " " + mountID(root)
}

// mend is called by the sweep of the first start after a loss of power.
func (r *Repo) mend(ctx context.Context, since time.Time) error {
	return r.Executions.Mend(ctx, r.Objects, executions.NewGeneration(r.Records, r.Records), since)
}

func checkFormat(root string) error {
	path := filepath.Join(root, formatFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("open repository: %w", err)
	}
	var f format
	if err := json.Unmarshal(data, &f); err != nil || f.E3 != "repository" || f.Version < 1 {
		return fmt.Errorf("open repository: %s does not describe a repository", path)
	}
	if f.Version > LayoutVersion {
		return fmt.Errorf("%w: %s has layout %d, this program knows up to %d; use a newer e3", ErrTooNew, root, f.Version, LayoutVersion)
	}
	return nil
}

// Close ends whatever still runs and releases what this process holds.
func (r *Repo) Close() error {
	var err error
	if r.runner != nil {
		err = r.runner.Close()
	}
	return errors.Join(err, r.Records.Close())
}

// ExecutorOptions adjust how commands are run.
type ExecutorOptions struct {
	Grace time.Duration // between TERM and KILL; 0: the runner's default
	Full  bool          // every execution is durable when it is reported
}

// Executor returns what runs commands on this machine. A process has one.
func (r *Repo) Executor(o ExecutorOptions) (*executions.Executor, error) {
	sup, err := runner.New(runner.Options{Grace: o.Grace})
	if err != nil {
		return nil, err
	}
	r.runner = sup
	opts := executions.Options{
		Worker: r.user(), Version: r.opts.Version, Path: searchPath(), Getenv: os.LookupEnv,
		Scratch: r.Records.SessionDir, Grace: o.Grace, Now: r.opts.Now,
	}
	if o.Full {
		opts.Sync = r.Records.Sync
	}
	return executions.NewExecutor(r.Executions, r.Objects, r.Records, sup, opts), nil
}

// searchPath is PATH, or what a login would have.
func searchPath() string {
	if p := os.Getenv("PATH"); p != "" {
		return p
	}
	return "/usr/local/bin:/usr/bin:/bin"
}

// Process describes this process for the history.
func (r *Repo) Process() *events.Process {
	self := self()
	name, _, _ := strings.Cut(r.user(), "@")
	return &events.Process{PID: self.PID, StartTime: self.StartTime, BootID: self.BootID, Host: self.Host, User: name}
}

// self identifies this process; where the system tells nothing, by its pid alone.
func self() runner.Process {
	p, err := runner.Self()
	if err != nil {
		p.PID = os.Getpid()
	}
	return p
}

// UserAtHost is what records say of who did something: the user of this process and the machine.
func UserAtHost() string {
	name := os.Getenv("USER")
	if name == "" {
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// holder describes this process as the reference does, in East text.
func holder() string {
	self := self()
	return fmt.Sprintf(".process (pid=%d, bootId=%q, startTime=%d, command=%q)", self.PID, self.BootID, self.StartTime, strings.Join(os.Args, " "))
}
