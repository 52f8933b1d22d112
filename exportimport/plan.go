package exportimport

import (
	"context"
	"errors"
	"fmt"

	"e3/internal/format/eastref"
	"e3/internal/format/notation"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/workspace"
)

// plan compares the zip with the repository and decides what to write. It writes nothing.
func (m *importer) plan(ctx context.Context) error {
	if err := m.agree(); err != nil {
		return err
	}
	if err := m.planPackage(ctx); err != nil {
		return err
	}
	if m.opts.NewWorkspace {
		return m.planWorkspace(ctx)
	}
	return nil
}

// agree checks the records of the zip against each other.
func (m *importer) agree() error {
	if m.state != nil {
		if m.state.PackageHash != m.pkg.Hash || m.state.PackageName != m.pkg.Name || m.state.PackageVersion != m.pkg.Version {
			return refused("", "its workspace has package %s@%s (%.8s), but it holds %s (%.8s)",
				m.state.PackageName, m.state.PackageVersion, m.state.PackageHash, m.pkg, m.pkg.Hash)
		}
		if m.run != nil && m.run.WorkspaceName != m.stateOf {
			return refused("", "its run is of workspace %q, but it holds workspace %q", m.run.WorkspaceName, m.stateOf)
		}
		if id := m.state.CurrentRunID; id != "" && (m.run == nil || m.run.RunID != id) {
			return refused("", "its workspace names run %s, which is not in it", id)
		}
	}
	if m.events != nil {
		n, err := parseName(m.events.Name)
		if err != nil {
			return refused(m.events.Name, "%w", err)
		}
		if m.run == nil || m.run.RunID != n.id || m.run.WorkspaceName != n.workspace {
			return refused(m.events.Name, "the run of these events is not in it")
		}
	}
	if m.run != nil && m.run.State == record.RunRunning {
		m.note("run %s had not ended when it was exported; it is not taken in", m.run.RunID)
		if m.state != nil {
			m.state.CurrentRunID = ""
		}
		m.run, m.events = nil, nil
	}
	if m.run != nil {
		m.res.RunID, m.res.RunWorkspace = m.run.RunID, m.runWorkspace()
	}
	return nil
}

// planPackage decides the name and version of the package, and checks whether these are free.
func (m *importer) planPackage(ctx context.Context) error {
	m.res.Package = m.pkg
	if as := m.opts.As; as.Name != "" {
		m.res.Package = workspace.PackageRef{Name: as.Name, Version: as.Version, Hash: m.pkg.Hash}
		renamed, err := m.renamed(ctx)
		if err != nil {
			return err
		}
		if renamed != nil {
			m.renamedPackage = renamed
			m.res.Package.Hash = objectstore.Sum(renamed).String()
		}
	}
	have, err := m.repo.Workspaces.Packages.Find(ctx, m.res.Package.Name, m.res.Package.Version)
	switch {
	case errors.Is(err, workspace.ErrNotFound):
		m.res.PackageAdded = true
		return nil
	case err != nil:
		return err
	case have.Hash == m.res.Package.Hash:
		return nil
	case m.opts.NewWorkspace:
		m.note("package %s holds other content here; the workspace does not need it, and it is not registered", m.res.Package)
		m.foreign = true
		return nil
	}
	return &ConflictError{Package: m.res.Package, Here: have.Hash}
}

// maxPackageMemory bounds the memory of a decoded package beyond its bytes: some 200,000 tasks.
const maxPackageMemory = 80 << 20

// renamed returns the package object with the name and version of --as; nil for a package of the reference, whose
// object has neither.
func (m *importer) renamed(ctx context.Context) ([]byte, error) {
	data, err := m.object(ctx, m.pkg.Hash)
	if err != nil {
		return nil, err
	}
	pkg, err := record.DecodePackageWithin(data, maxPackageMemory)
	if errors.Is(err, record.ErrType) && eastref.IsPackage(data) {
		return nil, nil
	}
	if err != nil {
		return nil, refused("", "package %s: %w", m.pkg, err)
	}
	pkg.Name, pkg.Version = m.opts.As.Name, m.opts.As.Version
	return pkg.Encode(), nil
}

// object reads an object from the zip, or else from this repository.
func (m *importer) object(ctx context.Context, hash string) ([]byte, error) {
	h, err := objectstore.ParseHash(hash)
	if err != nil {
		return nil, err
	}
	for e, err := range m.zip.Entries() {
		if err != nil {
			return nil, err
		}
		n, err := parseName(e.Name)
		if err != nil || n.part != objectPart || n.object != h {
			continue
		}
		data, err := m.read(e, maxStructure)
		if err == nil && objectstore.Sum(data) != h {
			err = refused(e.Name, "its content is not what its name says")
		}
		return data, err
	}
	data, err := objectstore.ReadAll(ctx, m.repo.Objects, h, maxStructure)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, refused("", "package %s: its object is neither in it nor here", m.pkg)
	}
	return data, err
}

// planWorkspace checks whether the workspace can be made.
func (m *importer) planWorkspace(ctx context.Context) error {
	name := m.workspaceName()
	switch {
	case name == "":
		return &NameError{Err: errors.New("it holds no workspace; say how the new one is to be called")}
	case name != m.stateOf && !notation.ValidName(name):
		return &NameError{Err: fmt.Errorf("%q cannot be the name of a workspace: letters, digits, _ and -, at most 64, not beginning with -",
			shorten(name))}
	}
	m.res.Workspace = name
	have, err := m.repo.Workspaces.State(ctx, name)
	switch {
	case errors.Is(err, workspace.ErrNotFound), err == nil && !have.Deployed:
		return nil
	case err != nil:
		return err
	case m.state != nil && *m.state == have.WorkspaceState, m.state == nil && have.PackageHash == m.pkg.Hash:
		m.note("workspace %s is here already, as it is in the zip", name)
		m.exists = true
		return nil
	}
	return fmt.Errorf("workspace %s: %w", name, workspace.ErrExists)
}

// A NameError says that the name of the new workspace is missing or invalid.
type NameError struct{ Err error }

func (e *NameError) Error() string { return e.Err.Error() }

func (e *NameError) Unwrap() error { return e.Err }
