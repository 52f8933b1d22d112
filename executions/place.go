package executions

import (
	"io/fs"
	"path/filepath"

	"e3/internal/host/beneath"
)

// The folders of a sandbox.
const (
	roomFolder = "room" // what a command in a closed room sees; it holds the others
	workFolder = "work"
	homeFolder = "home"
	tempFolder = "tmp"
)

// A place is the folders of a sandbox, opened before its command began. What the command wrote is reached through
// these open folders, without links and never upwards, whatever lies at their paths by then.
type place struct {
	in   *beneath.Dir // the folder that holds the sandbox
	name string       // of the sandbox in it
	root *beneath.Dir // logs and note are here
	room *beneath.Dir
	work *beneath.Dir
}

// openPlace opens a sandbox that another process has made.
func openPlace(in *beneath.Dir, name string) (p place, err error) {
	p = place{in: in, name: name}
	if p.root, err = in.Sub(name); err != nil {
		return p, err
	}
	if p.room, err = p.root.Sub(roomFolder); err == nil {
		p.work, err = p.room.Sub(workFolder)
	}
	if err != nil {
		p.close()
	}
	return p, err
}

// close closes the folders, but for the one around the sandbox.
func (p *place) close() {
	for _, d := range []*beneath.Dir{p.work, p.room, p.root} {
		d.Close()
	}
}

// home and temp are paths for the command.
func (p *place) home() string { return filepath.Join(p.room.Name(), homeFolder) }
func (p *place) temp() string { return filepath.Join(p.room.Name(), tempFolder) }

// remove removes the sandbox.
func (p *place) remove() error { return p.in.Discard(p.name) }

// isEmpty tells whether an entry of a folder is an empty folder.
func isEmpty(in *beneath.Dir, name string) bool {
	d, err := in.Sub(name)
	if err != nil {
		return false
	}
	defer d.Close()
	return d.HasEntries(0)
}

// ground is the folder of all sandboxes, with what they have in common.
type ground struct {
	*beneath.Dir
	real   string // its path without links
	strips bool   // this process's umask takes bits from the modes of staged files
}

// survey opens a folder, in which mounts are foreign. It makes a folder there to find out what the umask and the file
// system do to modes.
func survey(path string) (*ground, error) {
	dir, err := beneath.Open(path)
	if err != nil {
		return nil, err
	}
	const probe = "w0"
	err = dir.Confine().Mkdir(probe, stagedDir)
	var info fs.FileInfo
	if err == nil {
		info, err = dir.Lstat(probe)
	}
	if err == nil {
		err = dir.Remove(probe)
	}
	var real string
	if err == nil {
		real, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return &ground{Dir: dir, real: real, strips: info.Mode().Perm() != stagedDir}, nil
}
