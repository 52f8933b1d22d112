package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/refstore"
)

// links tell which package file a workspace follows, on this machine and, where machines share the workspace, on another.
type links struct {
	Stores
	shared bool // other machines have links of their own
}

// Where machines share a workspace each has a link of its own, and links may contradict each other: the last deployment
// decides. So the state has a field, written with it in one swap, that says whose deployment this is and which inputs are
// set; and a machine that deploys a package file notes, before the deployment is visible, the file under its id. It
// follows the file as long as the state has an id that it knows. Neither the path nor what the inputs looked like leaves it.
//
// A crash before the swap leaves a note that means nothing, after it one by which the next start here deploys the file again.
//
// A folder has no such field: the link is the one of all who use it, and holds the marks itself.

// FieldDeployment is the field of the state that holds its record.WorkspaceDeployment.
const FieldDeployment = "deployment.beast2"

// readState reads the record of a workspace's state.
func (w *States) readState(ctx context.Context, ws string) (refstore.Record, error) {
	if w.links.shared {
		return w.Records.Get(ctx, stateKey(ws), FieldDeployment)
	}
	return w.Records.Get(ctx, stateKey(ws))
}

// decodeDeployment takes up what the state's record says of the deployment.
func (s *State) decodeDeployment(ws string, rec refstore.Record) {
	data, ok := rec.Field(FieldDeployment)
	if !ok || len(data) == 0 || !s.Deployed { // what an emptied state had means nothing, and Restore empties what is damaged
		return
	}
	d, err := record.DecodeWorkspaceDeployment(data)
	if err != nil {
		s.unreadable = fmt.Errorf("deployment of workspace %s: %w; %w", ws, err, errBadLink)
		return
	}
	s.deployment, s.stored = d, d
}

// fields are those that go into the record together with the state: what is as it was read stays without.
func (s *State) fields() []refstore.Field {
	if s.deployment == s.stored {
		return nil
	}
	return []refstore.Field{{Name: FieldDeployment, Value: s.deployment.Encode()}}
}

// marks are the inputs that "e3 set" has unlinked: the link has them where there is none but this one.
func (s *State) marks(link *record.Link) []string {
	if s.deployment != nil {
		return s.deployment.Set
	}
	return link.Set
}

// marked returns the marks of now; false where nothing keeps any.
func (w *links) marked(ctx context.Context, ws string, s *State) ([]string, bool, error) {
	switch {
	case s.unreadable != nil:
		return nil, false, s.unreadable
	case w.shared && (s.deployment == nil || s.deployment.File == ""):
		return nil, false, nil
	case w.shared:
		return s.deployment.Set, true, nil
	}
	link, err := w.anyLink(ctx, ws)
	if err != nil || link == nil {
		return nil, false, err
	}
	return link.Set, true, nil
}

// mark notes in a state that is going to be swapped whether an input is set, and tells whether that is new. Where links keep
// the marks, or no file is followed, there is nothing to note.
func (s *State) mark(name string, set bool) bool {
	if s.deployment == nil || s.deployment.File == "" {
		return false
	}
	i, is := slices.BinarySearch(s.deployment.Set, name)
	if is == set {
		return false
	}
	d := *s.deployment
	if d.Set = slices.Clone(d.Set); set {
		d.Set = slices.Insert(d.Set, i, name)
	} else {
		d.Set = slices.Delete(d.Set, i, i+1)
	}
	s.deployment = &d
	return true
}

// notes is the partition of the package files that this machine has deployed in a workspace, by the ids of the deployments.
func notes(ws string) string { return "INDEX/deployments/" + ws }

// followed returns the package file of this machine that is deployed in a shared workspace, "" if it is none.
func (w *links) followed(ctx context.Context, ws string, s *State) (string, error) {
	if s.deployment == nil || s.deployment.File == "" {
		return "", s.unreadable
	}
	key := refstore.Key{Partition: notes(ws), Sort: s.deployment.ID}
	if key.Validate() != nil {
		return "", nil // no id of ours
	}
	rec, err := w.Local.Get(ctx, key)
	switch {
	case errors.Is(err, refstore.ErrNotFound):
		return "", nil
	case errors.Is(err, refstore.ErrDamaged):
		return "", fmt.Errorf("link of workspace %s: %w; %w", ws, err, errBadLink)
	case err != nil:
		return "", fmt.Errorf("link of workspace %s: %w", ws, err)
	case len(rec.Value) == 0: // lost with the power
		return "", fmt.Errorf("link of workspace %s: its file is lost; %w", ws, errBadLink)
	}
	return string(rec.Value), nil
}

// link returns what this machine remembers of the package file that the workspace follows in a state; nil if it follows none,
// or another machine's. One that cannot be read is an error: forgetting it would unlink the workspace silently.
func (w *links) link(ctx context.Context, ws string, s *State) (*record.Link, error) {
	if !w.shared {
		return w.remembered(ctx, ws)
	}
	file, err := w.followed(ctx, ws, s)
	if err != nil || file == "" {
		return nil, err
	}
	link, err := w.remembered(ctx, ws)
	if err != nil && !errors.Is(err, errBadLink) {
		return nil, err
	}
	if link == nil || !sameFile(link.File, file) {
		link = &record.Link{File: file} // a deploy was cut off before it saved more: it looks like a file that has changed
	}
	return link, nil
}

// forgetLink removes what this machine remembers of the workspace's package files.
func (w *links) forgetLink(ctx context.Context, ws string) error {
	if err := refstore.Forget(ctx, w.Local, w.Locks, linkKey(ws)); err != nil {
		return err
	}
	return w.forgetNotes(ctx, ws, "")
}

// An origin is where a deployment comes from.
type origin struct {
	id   string // "" where no machines share the workspace
	file string // "" of a registered package
}

// origin prepares a deployment in place of what a state has. This machine knows it from here on. One that goes on with the
// same file stays the same one.
func (w *links) origin(ctx context.Context, ws string, s *State, file string, durable bool) (origin, error) {
	if !w.shared {
		return origin{file: file}, nil
	}
	if file != "" {
		known, err := w.followed(ctx, ws, s)
		if err == nil && sameFile(known, file) {
			return origin{s.deployment.ID, file}, nil
		}
		if err != nil && !errors.Is(err, errBadLink) {
			return origin{}, err
		}
	}
	id, err := executions.NewID()
	if err != nil || file == "" {
		return origin{id, file}, err
	}
	put := w.Local.Put
	if durable {
		put = w.Local.PutSync
	}
	if _, err = put(ctx, refstore.Record{Key: refstore.Key{Partition: notes(ws), Sort: id}, Value: []byte(file)}); err != nil {
		err = fmt.Errorf("link of workspace %s: %w", ws, err)
	}
	return origin{id, file}, err
}

// deployedFrom writes into a state that is going to be swapped where what is deployed comes from. Of a package file, set tells
// for each input that held a set value whether it was kept; of a registered package there are no marks.
func (w *links) deployedFrom(s *State, from origin, pkg *record.Package, set map[string]bool) {
	if !w.shared {
		return
	}
	d, was := &record.WorkspaceDeployment{ID: from.id, At: w.Now()}, s.deployment
	if w.User != nil {
		d.By = w.User()
	}
	if was != nil && was.ID == d.ID {
		d.By, d.At = was.By, was.At
	}
	if from.file != "" {
		d.File = filepath.Base(from.file)
		var marked []string
		if was != nil {
			marked = slices.Clone(was.Set)
		}
		d.Set = keptMarks(pkg, marked, set)
	}
	s.deployment = d
}

// forgetNotes removes the notes of all deployments but one. They were listed before the lease is confirmed: none is a
// successor's.
func (w *links) forgetNotes(ctx context.Context, ws, except string) error {
	if !w.shared {
		return nil
	}
	var old []refstore.Key
	for rec, err := range w.Local.List(ctx, refstore.Query{Partition: notes(ws), KeysOnly: true}) {
		if err != nil {
			return fmt.Errorf("link of workspace %s: %w", ws, err)
		}
		if rec.Key.Sort != except {
			old = append(old, rec.Key)
		}
	}
	for _, key := range old {
		if err := refstore.Forget(ctx, w.Local, w.Locks, key); err != nil {
			return fmt.Errorf("link of workspace %s: %w", ws, err)
		}
	}
	return nil
}

// Elsewhere says who decides what is deployed in a workspace, if not the clone that is asked about.
type Elsewhere struct {
	By      string // user@host; "" if that is not known
	File    string // name of the package file there, or here its path; "" of a registered package
	Here    bool   // it is another clone of this machine
	Gone    bool   // which is not there any more
	Unknown bool   // it is one of which nothing tells any more where it is
	Package string // name@version
	Since   time.Time
	// Mine is the package file that this machine had deployed before, if it is still there; else "".
	Mine string
}

// String says it in words that go behind the workspace's name: "follows ann@lab's e3.yaml since 2026-11-21 06:43:00".
func (e *Elsewhere) String() string {
	switch {
	case e.Unknown:
		return "was deployed from a package file, and nothing tells any more from which"
	case e.Gone:
		return "followed " + e.File + ", which is gone"
	case e.Here:
		return "follows " + e.File
	}
	since := e.Since.Local().Format(timeFormat)
	if e.File != "" {
		return fmt.Sprintf("follows %s's %s since %s", cmp.Or(e.By, "somebody"), e.File, since)
	}
	text := fmt.Sprintf("holds %s since %s", e.Package, since)
	if e.By != "" {
		text += ", deployed by " + e.By
	}
	return text
}

// elsewhere returns the clone or machine whose deployment a state has; nil if it is this one, or the workspace is not shared.
func (w *links) elsewhere(ctx context.Context, ws string, s *State) (*Elsewhere, error) {
	if !w.shared {
		gone, err := w.lostLink(ctx, ws, s)
		if err != nil || !gone {
			return nil, err
		}
		return &Elsewhere{Unknown: true, Package: s.PackageName + "@" + s.PackageVersion, Since: s.DeployedAt}, nil
	}
	if !s.Deployed {
		return nil, nil
	}
	if file, err := w.followed(ctx, ws, s); err != nil && !errors.Is(err, errBadLink) || file != "" {
		return nil, err
	}
	e := &Elsewhere{Package: s.PackageName + "@" + s.PackageVersion, Since: s.DeployedAt}
	if d := s.deployment; d != nil {
		e.By, e.File, e.Since = d.By, d.File, d.At
	}
	link, err := w.remembered(ctx, ws)
	if err != nil && !errors.Is(err, errBadLink) {
		return nil, err
	}
	if link != nil {
		if _, err := os.Stat(link.File); err == nil {
			e.Mine = link.File
		}
	}
	return e, nil
}
