package resultdir

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
)

// A RefusedError says why something may not be written where a person wants it.
type RefusedError struct{ Msg string }

func (e *RefusedError) Error() string { return e.Msg }

func refused(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// A Place is a folder for the results of a workspace, checked but perhaps not made yet.
type Place struct {
	Shown  string                 // the folder as a person named it, with a slash at the end
	Choice workspace.ResultChoice // the outputs that are left there

	repo    *repo.Repo
	ws      string
	project *workspace.Project
	path    string // absolute
	rel     string // of a folder in the project: relative to the package file, with slashes; else ""
	ignore  bool   // files .gitignore name what is left
}

// PlaceOf finds the folder for the results of a workspace: dir, or else the one that the package file names; nil if
// there is none.
func PlaceOf(ctx context.Context, r *repo.Repo, ws, dir string, of []string) (*Place, error) {
	project, err := r.Workspaces.Datasets.Project(ctx, ws)
	if err != nil {
		return nil, err
	}
	p := &Place{Shown: dir, Choice: workspace.ResultChoice{Of: of}, repo: r, ws: ws, project: project}
	if len(of) == 0 {
		p.Choice.Of = project.Plan.Of
	}
	switch {
	case dir != "":
		p.path, err = realPath(dir)
	case project.Plan.Dir != "" && project.Folder != "":
		p.Shown = project.Plan.Dir
		p.path = filepath.Join(project.Folder, filepath.FromSlash(project.Plan.Dir))
		p.Choice.InPlace, p.ignore = project.Plan.Dir == manifest.InPlace, project.Plan.GitIgnore
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p.Shown = strings.TrimSuffix(filepath.ToSlash(p.Shown), "/") + "/"
	return p, p.check()
}

// CheckFolder refuses a file as the folder of results. PlaceOf does so too.
func CheckFolder(dir string) error {
	return notFolder(dir, strings.TrimSuffix(filepath.ToSlash(dir), "/")+"/")
}

func notFolder(path, shown string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return refused("results cannot lie in %s: there is a file of that name; name a folder, as: -o results/", shown)
	}
	return nil
}

// realPath is the absolute path of a folder that need not exist, below the real path of the current folder.
func realPath(dir string) (string, error) {
	if filepath.IsAbs(dir) {
		return filepath.Clean(dir), nil
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	if here, err = filepath.EvalSymlinks(here); err != nil {
		return "", err
	}
	return filepath.Join(here, dir), nil
}

// check refuses folders that must not hold results.
func (p *Place) check() error {
	if p.Choice.InPlace { // refuse looks at each path
		p.rel = "."
		return nil
	}
	if err := notFolder(p.path, p.Shown); err != nil {
		return err
	}
	if slices.Contains(strings.Split(filepath.ToSlash(p.path), "/"), repo.DirName) {
		return p.refused("that is the repository's own folder; name another, as: -o results/")
	}
	holds := []string{p.repo.Root}
	if folder := p.project.Folder; folder != "" {
		holds = append(holds, folder)
		if rel, err := filepath.Rel(folder, p.path); err == nil && filepath.IsLocal(rel) && rel != "." {
			p.rel = filepath.ToSlash(rel)
		}
	}
	for _, inside := range holds {
		if repo.IsURL(inside) || p.rel != "" {
			continue
		}
		if is, err := holdsFolder(p.path, inside); err == nil && is {
			return p.refused("it holds %s; name a folder for results alone, as: -o results/", human.Line(inside))
		}
	}
	if p.rel == "" {
		return nil
	}
	if top, err := os.OpenRoot(p.project.Folder); err == nil {
		_, err = top.Stat(filepath.FromSlash(p.rel))
		top.Close()
		if err := p.escapes(err); err != nil {
			return err
		}
	}
	for i := range p.project.Inputs {
		if in := &p.project.Inputs[i]; in.Source == record.FromDir && p.project.Takes(i, p.rel) {
			return p.refused("the input %s takes in that folder (%s), so each start would change its own input; name another",
				in.Name, in.Location)
		}
	}
	return nil
}

// refused is the error of a folder that must not hold results.
func (p *Place) refused(format string, args ...any) error {
	return refused("results cannot lie in %s: %s", p.Shown, fmt.Sprintf(format, args...))
}

// open makes the folder. In the project no symbolic link leads out of it.
func (p *Place) open() (*os.Root, error) {
	if p.rel == "" {
		if err := os.MkdirAll(p.path, 0o777); err != nil {
			return nil, err
		}
		return os.OpenRoot(p.path)
	}
	top, err := os.OpenRoot(p.project.Folder)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	rel := filepath.FromSlash(p.rel)
	err = top.MkdirAll(rel, 0o777)
	if err == nil {
		var root *os.Root
		if root, err = top.OpenRoot(rel); err == nil {
			return root, nil
		}
	}
	return nil, cmp.Or(p.escapes(err), err)
}

// escapes is the error for a folder to which a link out of the project leads.
func (p *Place) escapes(err error) error {
	if err == nil || !strings.Contains(err.Error(), "escapes") {
		return nil
	}
	return p.refused("a symbolic link leads out of the project there; to write outside, name the folder itself with -o")
}

// refuse says why a result may not have a path in the folder: an input would take it in, or it is another's in the
// project.
func (p *Place) refuse(result string) string {
	if p.rel == "" {
		return ""
	}
	if p.Choice.InPlace {
		if why := p.reserved(result); why != "" {
			return why
		}
	}
	at := path.Join(p.rel, result)
	in := p.project.TakesIn(at)
	switch {
	case in == nil:
		return ""
	case in.Source == record.FromGlob:
		return fmt.Sprintf("the input %s would take it in, by its pattern %s", in.Name, in.Location)
	case in.Source == record.FromDir:
		return "it lies in the input " + in.Name
	case in.Source == record.FromSheet && in.Location != at:
		return "the sheet " + in.Location + " names it"
	}
	return "it is the input " + in.Name
}

// reserved says whose a path of the project is, if no result may lie there. A folder of git or e3 in an output could
// bring settings that run commands.
func (p *Place) reserved(result string) string {
	for name := range strings.SplitSeq(result, "/") {
		switch strings.ToLower(name) {
		case ".git":
			return "that is git's own folder"
		case repo.DirName:
			return "that is a repository's own folder"
		}
	}
	if p.project.File == filepath.Join(p.project.Folder, filepath.FromSlash(result)) {
		return "it is the package file"
	}
	return ""
}
