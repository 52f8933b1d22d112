package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"e3/executions"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/refstore"
)

// links tell which package file a workspace follows on this machine and, where machines share the workspace, which
// other machine it follows.
type links struct {
	Stores
	shared bool // other machines have their own links
}

// Where machines share a workspace, each machine has its own link, and links may contradict each other. The last
// deployment decides. So the state has a field that identifies the deployment and lists the set inputs. It is written
// in one swap with the state. A machine that deploys a package file notes the file under the deployment's id before
// the deployment is visible. It follows the file as long as it knows the id in the state. Neither the path nor the
// properties of the inputs' files leave the machine.
//
// A crash before the swap leaves a note without effect. After a crash past the swap, the next start on this machine
// deploys the file again.
//
// A folder has no such field: all its users share the link, which holds the marks itself.

// FieldDeployment is the field of the state that holds its record.WorkspaceDeployment.
const FieldDeployment = "deployment.beast2"

// readState reads the state record of a workspace.
func (w *States) readState(ctx context.Context, ws string) (refstore.Record, error) {
	if w.links.shared {
		return w.Records.Get(ctx, stateKey(ws), FieldDeployment)
	}
	return w.Records.Get(ctx, stateKey(ws))
}

// decodeDeployment decodes the deployment field of the state record.
func (s *State) decodeDeployment(ws string, rec refstore.Record) {
	data, ok := rec.Field(FieldDeployment)
	if !ok || len(data) == 0 || !s.Deployed { // the field counts only in a state with a package
		return
	}
	d, err := record.DecodeWorkspaceDeployment(data)
	if err != nil {
		s.unreadable = fmt.Errorf("deployment of workspace %s: %w; %w", ws, err, errBadLink)
		return
	}
	s.deployment, s.stored = d, d
}

// fields returns the fields to write with the state. An unchanged field is not written.
func (s *State) fields() []refstore.Field {
	if s.deployment == s.stored {
		return nil
	}
	return []refstore.Field{{Name: FieldDeployment, Value: s.deployment.Encode()}}
}

// marks are the inputs that "e3 set" has unlinked. If the state has no deployment record, the link holds them.
func (s *State) marks(link *record.Link) []string {
	if s.deployment != nil {
		return s.deployment.Set
	}
	return link.Set
}

// marked returns the present marks; false if none are kept.
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

// mark records in a state that is about to be swapped whether an input is set, and reports whether that changed. It
// does nothing if links hold the marks, or if no file is followed.
func (s *State) mark(name string, set bool) bool {
	if s.deployment == nil || s.deployment.File == "" {
		return false
	}
	i, is := slices.BinarySearch(s.deployment.Set, name)
	marked := func(mark string) bool { return covers(name, mark) }
	if set && is || !set && !slices.ContainsFunc(s.deployment.Set, marked) {
		return false
	}
	d := *s.deployment
	if d.Set = slices.Clone(d.Set); set {
		d.Set = slices.Insert(d.Set, i, name)
	} else {
		d.Set = slices.DeleteFunc(d.Set, marked)
	}
	s.deployment = &d
	return true
}

// notes is the partition of the package files that this machine has deployed in a workspace. Their keys are the ids
// of the deployments.
func notes(ws string) string { return "INDEX/deployments/" + ws }

// followed returns this machine's package file that is deployed in a shared workspace, or "".
func (w *links) followed(ctx context.Context, ws string, s *State) (string, error) {
	if s.deployment == nil || s.deployment.File == "" {
		return "", s.unreadable
	}
	key := refstore.Key{Partition: notes(ws), Sort: s.deployment.ID}
	if key.Validate() != nil {
		return "", nil // not an id of this format
	}
	rec, err := w.Local.Get(ctx, key)
	switch {
	case errors.Is(err, refstore.ErrNotFound):
		return "", nil
	case errors.Is(err, refstore.ErrDamaged):
		return "", fmt.Errorf("link of workspace %s: %w; %w", ws, err, errBadLink)
	case err != nil:
		return "", fmt.Errorf("link of workspace %s: %w", ws, err)
	case len(rec.Value) == 0: // lost by a power loss
		return "", fmt.Errorf("link of workspace %s: its file is lost; %w", ws, errBadLink)
	}
	return string(rec.Value), nil
}

// link returns this machine's record of the package file that the workspace follows in a state. It returns nil if the
// workspace follows no file, or another machine's. An unreadable record is an error: ignoring it would unlink the
// workspace silently.
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
		link = &record.Link{File: file} // the deploy was cut off before it saved more, so the file counts as changed
	}
	return link, nil
}

// forgetLink removes this machine's records of the workspace's package files.
func (w *links) forgetLink(ctx context.Context, ws string) error {
	if err := refstore.Forget(ctx, w.Local, w.Locks, linkKey(ws)); err != nil {
		return err
	}
	return w.forgetNotes(ctx, ws, "")
}

// An origin is the source of a deployment.
type origin struct {
	id   string // "" if no machines share the workspace
	file string // "" for a registered package
}

// origin prepares a deployment that replaces the deployment of a state, and notes the new id on this machine. A
// deployment of the same file keeps its id.
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

// deployedFrom records the origin of a deployment in a state that is about to be swapped. For a package file, set
// tells for each input with a set value whether the value was kept. A registered package has no marks.
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

// forgetNotes removes the notes of all deployments but one. The notes are listed before the lease is confirmed, so
// none belongs to a later holder.
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

// Elsewhere says which other clone or machine decides what is deployed in a workspace.
type Elsewhere struct {
	By      string      `json:"by,omitempty"`   // user@host
	File    string      `json:"file,omitempty"` // the package file, by name, or by path if it is of this machine
	Here    bool        `json:"-"`              // another clone of this machine
	Gone    bool        `json:"-"`              // that clone was removed
	Unknown bool        `json:"-"`              // a clone whose place is not recorded any more
	Package string      `json:"-"`              // name@version
	Since   moment.Time `json:"since"`
	Mine    string      `json:"mine,omitempty"` // the package file that this machine deployed before
}

// String is a phrase to put after the workspace's name: "follows ann@lab's e3.yaml since 2026-11-21 06:43:00".
func (e *Elsewhere) String() string {
	switch {
	case e.Unknown:
		return "was deployed from a package file whose path is no longer known"
	case e.Gone:
		return "followed " + e.File + ", which is gone"
	case e.Here:
		return "follows " + e.File
	}
	since := e.Since.Local().Format(timeFormat)
	if e.File != "" {
		return fmt.Sprintf("follows %s's %s since %s", cmp.Or(e.By, "an unknown user"), e.File, since)
	}
	text := fmt.Sprintf("holds %s since %s", e.Package, since)
	if e.By != "" {
		text += ", deployed by " + e.By
	}
	return text
}

// elsewhere returns the clone or machine that made a state's deployment. It returns nil if that is this clone, or if
// the workspace is not shared.
func (w *links) elsewhere(ctx context.Context, ws string, s *State) (*Elsewhere, error) {
	if !w.shared {
		gone, err := w.lostLink(ctx, ws, s)
		if err != nil || !gone {
			return nil, err
		}
		return &Elsewhere{Unknown: true, Package: s.PackageName + "@" + s.PackageVersion, Since: moment.At(s.DeployedAt)}, nil
	}
	if !s.Deployed {
		return nil, nil
	}
	if file, err := w.followed(ctx, ws, s); err != nil && !errors.Is(err, errBadLink) || file != "" {
		return nil, err
	}
	e := &Elsewhere{Package: s.PackageName + "@" + s.PackageVersion, Since: moment.At(s.DeployedAt)}
	if d := s.deployment; d != nil {
		e.By, e.File, e.Since = d.By, d.File, moment.At(d.At)
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
