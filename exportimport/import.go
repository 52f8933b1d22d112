package exportimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/format/zipfile"
	"e3/internal/insight/runview"
	"e3/internal/settings"
	"e3/workspace"
)

// ImportOptions adjust an import. The zero value is usable.
type ImportOptions struct {
	File string // the zip's name, for provenance and messages
	// As gives the package another name and version; both or none are set.
	As workspace.PackageRef
	// NewWorkspace makes a workspace with the exported state. Its name is Workspace or, if that is "", its exported
	// name.
	NewWorkspace bool
	Workspace    string
	// RequireSigned refuses a zip without a signature by a trusted key, like the repository's setting of that name.
	RequireSigned bool
	DryRun        bool // find out what would be done, and write nothing
	Workers       int  // objects stored at a time; 0: one for each core
	// Progress receives the number of bytes read and their total, from several goroutines.
	Progress func(done, total int64)
}

// Imported is what was imported, or would be.
type Imported struct {
	File         string               `json:"file"`
	DryRun       bool                 `json:"dryRun,omitempty"`
	Package      workspace.PackageRef `json:"package"`             // as registered here
	PackageAdded bool                 `json:"packageAdded"`        // a note says why not
	Workspace    string               `json:"workspace,omitempty"` // the new one
	RunID        string               `json:"run,omitempty"`
	RunWorkspace string               `json:"runWorkspace,omitempty"` // the workspace of the run
	RunAdded     bool                 `json:"runAdded"`
	Executions   int                  `json:"executions"` // in the zip
	// by added, overwritten, skippedSuccess, skippedFailure, skippedRunning or
	// skippedUnfinished
	Outcomes     map[executions.Outcome]int `json:"outcomes"`
	Objects      int                        `json:"objects"`             // in the zip
	ObjectsAdded int                        `json:"objectsAdded"`        // new here
	ObjectsLeft  int                        `json:"objectsLeftOut"`      // nothing in the zip refers to them
	Content      int64                      `json:"contentBytes"`        // of all entries
	Source       string                     `json:"source"`              // user@host and repository
	Exported     moment.Time                `json:"exportedAt"`          // time of the exported state
	Trust        string                     `json:"trust"`               // unsigned, unknown or trusted
	TrustedAs    string                     `json:"trustedAs,omitempty"` // the key's name here
	Signer       *runview.Signer            `json:"signer"`              // null: unsigned
	Notes        []string                   `json:"notes"`

	From    string           `json:"-"` // user@host that exported; "" if the zip does not say
	Verdict settings.Verdict `json:"-"`
}

// Taken is the number of executions that were added or overwritten.
func (i *Imported) Taken() int {
	return i.Outcomes[executions.Added] + i.Outcomes[executions.Overwritten]
}

// A ConflictError says that the name and version of a package have other content here.
type ConflictError struct {
	Package workspace.PackageRef
	Here    string // hash of the registered package
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("package %s holds other content here (%.8s, and %.8s in the zip)", e.Package, e.Here, e.Package.Hash)
}

// Unwrap makes errors.Is(err, workspace.ErrExists) true.
func (e *ConflictError) Unwrap() error { return workspace.ErrExists }

// Import imports a zip of size bytes. A *ZipError, a *ConflictError or an error of settings.Decide says that the zip
// was refused before anything was written. After a later *ZipError there may be unreferenced objects and, if the zip
// changed during the import, complete executions. An interrupted import is repeated as a whole.
func (r *Repository) Import(ctx context.Context, zip io.ReaderAt, size int64, o ImportOptions) (*Imported, error) {
	m := &importer{repo: r, opts: o, now: r.Now().UTC().Truncate(time.Millisecond), sums: newSums(),
		res: &Imported{Outcomes: map[executions.Outcome]int{}, DryRun: o.DryRun, Notes: []string{}}}
	for out := executions.Added; out <= executions.SkippedUnfinished; out++ {
		m.res.Outcomes[out] = 0 // programs see each
	}
	var err error
	m.zip, err = zipfile.Open(ctx, zip, size, zipfile.Limits{Entries: maxEntries, MayRepeat: mayRepeat})
	if err != nil {
		return nil, format(err)
	}
	if err := m.check(ctx); err != nil {
		return nil, format(err)
	}
	if err := m.plan(ctx); err != nil {
		return nil, format(err)
	}
	if o.DryRun {
		err = m.foresee(ctx)
	} else {
		err = m.apply(ctx)
	}
	if err != nil {
		return nil, format(err)
	}
	m.more()
	return m.res, nil
}

// maxEntries bounds a zip.
const maxEntries = 1 << 22

// format turns the errors of a refused zip into a ZipError.
func format(err error) error {
	var bad *zipfile.FormatError
	var limit *zipfile.LimitError
	var zip *ZipError
	switch {
	case errors.As(err, &zip):
		return err
	case errors.As(err, &bad):
		return &ZipError{Entry: bad.Name, Err: errors.New(bad.Reason)}
	case errors.As(err, &limit):
		return &ZipError{Entry: limit.Name, Err: fmt.Errorf("it declares %d %s, and at most %d are allowed", limit.Got, limit.What, limit.Max)}
	}
	return err
}

// mayRepeat reports whether the reference may write an entry more than once.
func mayRepeat(name string) bool {
	n, err := parseName(name)
	return err == nil && n.part == objectPart
}

// importer is one import.
type importer struct {
	repo *Repository
	opts ImportOptions
	now  time.Time
	zip  *zipfile.Reader
	res  *Imported

	origin  origin
	pkg     workspace.PackageRef // as the zip has it
	run     *record.Run
	events  *eventsEntry
	fold    *runview.Fold // of the events; nil if they are too many to be compared
	state   *record.WorkspaceState
	stateOf string       // the name of the exported workspace
	stored  int64        // bytes of objects, by the directory of the zip
	done    atomic.Int64 // bytes of objects that are done
	content *incomingObjects
	sums    *sums          // of all entries read
	checked bool           // everything was read once
	noted   map[string]int // number of notes of each kind

	renamedPackage []byte // the package object under the name of --as; nil if unchanged
	foreign        bool   // the package's name and version have other content here
	exists         bool   // the workspace already exists here
}

// eventsEntry is the entry of a zip with the events of its run.
type eventsEntry struct {
	zipfile.Entry
	bounds events.BoundsOf // of the log
}

// workspaceName is the name of the new workspace.
func (m *importer) workspaceName() string {
	if m.opts.Workspace != "" || m.stateOf == "" {
		return m.opts.Workspace
	}
	return m.stateOf
}

// runWorkspace is the workspace that the exported run belongs to here.
func (m *importer) runWorkspace() string {
	if m.opts.NewWorkspace {
		return m.workspaceName()
	}
	return m.run.WorkspaceName
}

// maxNotes bounds the notes of a kind: a zip can cause millions.
const maxNotes = 10

// note adds a note about something odd. The format is its kind.
func (m *importer) note(format string, args ...any) {
	if m.noted == nil {
		m.noted = map[string]int{}
	}
	m.noted[format]++
	if m.noted[format] <= maxNotes {
		m.res.Notes = append(m.res.Notes, fmt.Sprintf(format, args...))
	}
}

// more adds notes about the number of notes that were left out.
func (m *importer) more() {
	left := 0
	for _, n := range m.noted {
		left += max(0, n-maxNotes)
	}
	if left > 0 {
		m.res.Notes = append(m.res.Notes, fmt.Sprintf("there are %d more notes like these", left))
	}
}

// open opens an entry whose content must be read to its end.
func (m *importer) open(e zipfile.Entry) (io.ReadCloser, error) {
	r, err := m.zip.OpenEntry(e)
	if err != nil {
		return nil, err
	}
	return m.sums.reader(e, r), nil
}

// read returns the content of an entry that is not larger than limit.
func (m *importer) read(e zipfile.Entry, limit int64) ([]byte, error) {
	if e.Size > limit {
		return nil, refused(e.Name, "it has %d bytes; such an entry has at most %d", e.Size, limit)
	}
	r, err := m.open(e)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	// An entry cannot declare more than 1032 times its bytes in the zip, and never yields more than it declares. The
	// last Read, which finds the end, has room for one byte.
	data := make([]byte, 0, e.Size+1)
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
