package reach

import (
	"fmt"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/pkgref"
)

// An OwnerKind is a kind of root.
type OwnerKind uint8

// The kinds of owners.
const (
	APackage    OwnerKind = iota // a registered package
	AWorkspace                   // a workspace
	AnExecution                  // an execution
	ATask                        // the executions of a task, all of them
	ARun                         // a run
	APin                         // a pin of an execution
	ATombstone                   // an execution that was pruned
	ASession                     // a session that protects objects
	AJob                         // a job that is not finished
)

// An Owner is the thing that names a root. It is cheap: details are read when it is shown.
type Owner struct {
	Kind  OwnerKind
	Name  string         // of a package: name/version, as in its record; of a workspace or run: the workspace
	ID    string         // of the execution, run or job
	Key   executions.Key // of the execution. ATask: only Task is set
	Role  string         // of the object, for the owner: "output", "tree", …
	Since time.Time      // session: when it began
}

// String describes the owner in a few words.
func (o Owner) String() string {
	switch o.Kind {
	case APackage:
		return "package " + pkgref.OfKey(o.Name)
	case AWorkspace:
		return "workspace " + o.Name
	case AnExecution:
		return "execution " + o.ID
	case ATask:
		return "the executions of task " + o.Key.Task.Short()
	case ARun:
		return "run " + o.ID + " of workspace " + o.Name
	case APin:
		return "the pin of execution " + o.ID
	case ATombstone:
		return "execution " + o.ID + ", which was pruned"
	case ASession:
		return "an e3 at work since " + o.Since.Local().Format("15:04:05")
	case AJob:
		return "job " + o.ID
	}
	return fmt.Sprintf("owner(%d)", o.Kind)
}

// A Root is a reference from which others are followed.
type Root struct {
	Ref
	// Weak: the object, and everything below it, may be missing by design.
	Weak  bool
	Owner Owner

	followed bool // the references in its object are roots too: the object need not be read
}

// A Fault is a reference that could not be followed, or a record that could not be read.
type Fault struct {
	Ref   Ref // the zero Ref if the owner's own record is at fault
	Weak  bool
	Owner Owner
	// Path are the names that lead from the owner to the object: of datasets, directory entries and tasks.
	Path []string
	// Err is objectstore.ErrNotFound for a missing object, a *MalformedError or *RecordError for wrong content, or an
	// error of the store.
	Err error
}

// Record reports whether the owner's record is at fault.
func (f *Fault) Record() bool { return f.Ref == Ref{} }

func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.Owner.String())
	if f.Owner.Role != "" {
		b.WriteString(": " + f.Owner.Role)
	}
	for _, name := range f.Path {
		b.WriteString("/" + name)
	}
	return fmt.Sprintf("%s: %v", &b, f.Err)
}

func (f *Fault) Unwrap() error { return f.Err }

// A RecordError says that a record cannot be read, so that its references are unknown.
type RecordError struct {
	Record string
	Err    error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("record %s cannot be read: %v", e.Record, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }
