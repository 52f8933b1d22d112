package executions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"e3/internal/host/beneath"
	"e3/internal/host/modes"
	"e3/internal/host/runner"
	"e3/internal/host/stamp"
)

// FileMode is fs.FileMode.
type FileMode = fs.FileMode

// A sandbox is where one command runs: an empty working directory, a private HOME and TMPDIR beside it, and the two
// files that take its output. Sandboxes are reused, which saves a tenth or more of the cost of a command of one
// millisecond. Whatever the last command touched is made anew. A sandbox in which a process may have something open is
// never reused.
type sandbox struct {
	place
	real              string    // work without links: what a command calls its working directory
	homeTime, tmpTime time.Time // their change times when made: any later change shows
	strips            bool      // this process's umask takes bits from the modes of staged files
	journal           *os.File  // of files moved out; nil: none was
	modes             modes.Modes
	logs              sandboxLogs
	note              sandboxNote

	// Why it is not reused.
	inhabited bool // a descendant of the command may be alive
	moved     bool // its folders are elsewhere now
	replaced  bool // another folder than the command's working directory lies in its place

	// Paths below work, as declared. spare holds folders of earlier commands, which are empty but for old; dirs,
	// files and inputs belong to the present command. The inode of an input that is a small file takes the next
	// content.
	spare  map[string]bool
	dirs   []string // parents before children
	files  []string // removed afterwards
	inputs []string
	old    []string    // inputs of the latest command, still there
	stash  int         // number of further such files, in root
	mixed  bool        // the inputs include a tree, whose files no other file must replace
	kept   []*checkout // in work

	scripted bool // the script lies in room

	// For a command in a closed room, which sees only the folder around work, home and tmp.
	closed  bool
	lent    []*layer // mounted below work
	scratch string   // work folder of the overlay mount; "": there is no layer
}

// sandboxLogs are the two files that take what the command prints.
type sandboxLogs struct {
	stdout, stderr *os.File  // opened for appending
	numbers        [2]uint64 // inode numbers
	used           bool      // the command has printed something
	moved          bool      // the files were moved to the execution's record
}

// sandboxNote is the file that says which command has begun (note.go).
type sandboxNote struct {
	file    *os.File
	written bool
	text    []byte // the latest note, kept to reuse its memory
	time    int64  // of the latest note by the file system's clock, in nanoseconds since 1970
}

// Bounds of the files whose inodes take the next content. The next sync writes to the disk what is in them.
const (
	maxReused = 64 << 10 // bytes of a file
	maxStash  = 16
)

// maxUsed is how many sandboxes wait for a scan for processes in them. A scan costs as much as making ten to fifty
// sandboxes, whatever their number. Each sandbox has six files open.
const maxUsed = 64

// sandboxes is a pool. All of them lie in a directory that belongs to this process and is swept after its death.
//
// A sandbox in which a process works, or has a folder open, is never reused: the process could write into another
// command's folder or outputs. The runner says whether a command's descendants are gone. Other processes, such as a
// person's shell, are found by scanning all processes of the machine for many sandboxes at once (maxUsed).
type sandboxes struct {
	scratch   func() (string, error)
	checkouts *checkouts
	modes     modes.Modes
	mu        sync.Mutex
	free      []*sandbox // clean, and known to be empty of processes
	used      []*sandbox // clean, not yet scanned for processes
	count     int        // sandboxes made
	ground    *ground    // where sandboxes are made; nil: none was
	searching bool       // a scan goes on
	occupants runner.Occupants

	unfinished atomic.Bool // a sandbox was dropped with its note
}

func (p *sandboxes) acquire() (*sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 && len(p.used) >= maxUsed && !p.searching {
		p.scan()
	}
	if n := len(p.free); n > 0 {
		box := p.free[n-1]
		p.free = p.free[:n-1]
		return box, nil
	}
	box, err := p.makeSandbox()
	if err != nil {
		return nil, fmt.Errorf("make sandbox: %w", err)
	}
	return box, nil
}

// scan frees the used sandboxes without processes, and drops the others. Other commands get new sandboxes meanwhile: it
// holds the lock only before and after the search.
func (p *sandboxes) scan() {
	boxes := p.used
	p.used, p.searching = nil, true
	p.mu.Unlock()
	occupied, known := p.occupants.In(boxes[0].in.Name())
	p.mu.Lock()
	p.searching = false
	for _, box := range boxes {
		if known && !occupied[box.name] {
			p.free = append(p.free, box)
		} else {
			box.drop()
		}
	}
}

func (p *sandboxes) makeSandbox() (*sandbox, error) {
	dir, err := p.scratch()
	if err != nil {
		return nil, err
	}
	if p.ground == nil || p.ground.Name() != dir {
		if p.ground, err = survey(dir); err != nil {
			return nil, err
		}
	}
	p.count++
	name := "w" + strconv.Itoa(p.count)
	box := &sandbox{
		place: place{in: p.ground.Dir, name: name},
		real:  filepath.Join(p.ground.real, name, roomFolder, workFolder), strips: p.ground.strips, modes: p.modes,
	}
	err = box.makeRoot()
	if err == nil {
		err = box.renew(true)
	}
	if err != nil {
		box.drop()
		return nil, err
	}
	return box, nil
}

// release cleans the sandbox and keeps it for other commands. A sandbox that cannot be cleaned, or may have processes
// in it, is dropped, and removed with this process's scratch directory.
func (p *sandboxes) release(box *sandbox) {
	if box.note.written {
		p.unfinished.Store(true)
	}
	if box.moved && !box.note.written && !box.inhabited { // its folder is kept, with what the command wrote into layers
		p.checkouts.returnLayers(box.lent)
		box.lent = nil
	}
	if box.note.written || box.inhabited || box.moved || box.replaced || p.checkouts.takeBack(box) != nil {
		for _, c := range box.kept {
			c.dir.Close()
		}
		box.drop()
		return
	}
	for _, c := range box.kept {
		p.checkouts.giveBack(c, box.work)
	}
	box.kept = box.kept[:0]
	if box.renew(false) != nil {
		box.drop()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used = append(p.used, box)
}

// The modes of staged files and folders, whatever the umask. They are not part of the key.
const (
	stagedDir        FileMode = 0o755
	stagedFile       FileMode = 0o644
	stagedExecutable FileMode = 0o755
)

// makeRoot makes the sandbox's own folder. Only this user may enter, because files are moved from here into the repository.
func (b *sandbox) makeRoot() error {
	err := b.in.Mkdir(b.name, 0o700)
	if err == nil && b.strips {
		err = b.in.Chmod(b.name, 0o700)
	}
	if err == nil {
		b.root, err = b.in.Sub(b.name)
	}
	if err == nil {
		b.note.file, err = b.root.OpenFile(noteFile, newFlags, 0o600)
	}
	if err == nil {
		b.room, err = b.folder(b.root, roomFolder)
	}
	return err
}

// newFlags make a file for reading and writing.
const newFlags = os.O_CREATE | os.O_EXCL | os.O_RDWR

// makeFolder makes a folder of a command, with the same mode in every repository.
func (b *sandbox) makeFolder(in *beneath.Dir, name string) error {
	err := in.Mkdir(name, 0o700)
	if err == nil && b.strips {
		err = in.Chmod(name, 0o700)
	}
	return err
}

// folder is makeFolder, and opens it.
func (b *sandbox) folder(in *beneath.Dir, name string) (*beneath.Dir, error) {
	if err := b.makeFolder(in, name); err != nil {
		return nil, err
	}
	return in.Sub(name)
}

// fixMode restores the mode of the staged file or folder at rel if the umask has taken bits from it.
func (b *sandbox) fixMode(rel string, mode FileMode) error {
	if !b.strips {
		return nil
	}
	return b.work.Chmod(rel, mode)
}

// renew makes whatever is missing or has been touched.
func (b *sandbox) renew(fresh bool) error {
	if b.scripted {
		if err := b.removeScript(); err != nil {
			return err
		}
	}
	if b.closed && !b.room.HasEntries(3) {
		return fmt.Errorf("the command has left something beside its folders in %s", b.room.Name())
	}
	b.closed = false
	if fresh || !b.tidy() {
		b.work.Close()
		if !fresh {
			if err := b.room.Discard(workFolder); err != nil {
				return err
			}
		}
		var err error
		if b.work, err = b.folder(b.room, workFolder); err != nil {
			return err
		}
		b.spare, b.old = map[string]bool{}, b.old[:0]
	}
	if b.journal != nil {
		if err := b.root.Remove(journalFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		b.closeJournal()
	}
	b.dirs, b.files, b.inputs = b.dirs[:0], b.files[:0], b.inputs[:0]
	for _, d := range []struct {
		name  string
		ctime *time.Time
	}{{homeFolder, &b.homeTime}, {tempFolder, &b.tmpTime}} {
		if !fresh {
			// The ctime shows an entry that came and went, unless within one tick. On file systems with coarse time
			// stamps it shows nothing.
			if info, err := b.room.Lstat(d.name); err == nil && changeTime(info).Equal(*d.ctime) && stamp.Step(d.ctime.UnixNano()) == 0 &&
				(stamp.Settled(b.note.time, 0, d.ctime.UnixNano()) || isEmpty(b.room, d.name)) {
				continue
			}
			if err := b.room.Discard(d.name); err != nil {
				return err
			}
		}
		if err := b.makeFolder(b.room, d.name); err != nil {
			return err
		}
		info, err := b.room.Lstat(d.name)
		if err != nil {
			return err
		}
		*d.ctime = changeTime(info)
	}
	if !fresh && !b.logs.used && !b.logs.moved {
		return nil
	}
	b.closeLogs()
	for i, log := range []struct {
		name string
		file **os.File
	}{{"stdout", &b.logs.stdout}, {"stderr", &b.logs.stderr}} {
		// The old file is unlinked, not truncated: a child that escaped may hold it.
		if !fresh {
			if err := b.root.Unlink(log.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		var err error
		if *log.file, err = b.root.OpenFile(log.name, newFlags|os.O_APPEND, b.modes.File()); err != nil {
			return err
		}
		if err := errors.Join(b.modes.Take(*log.file), b.modes.Fix(*log.file, b.modes.File())); err != nil {
			return err
		}
		info, err := (*log.file).Stat()
		if err != nil {
			return err
		}
		b.logs.numbers[i] = fileNumber(info)
	}
	b.logs.used, b.logs.moved = false, false
	return nil
}

// mkdir makes a folder for the command, and its parents. rel is a local path; "." is the work folder itself.
func (b *sandbox) mkdir(rel string) error {
	if rel == "." || slices.Contains(b.dirs, rel) {
		return nil
	}
	if err := b.mkdir(filepath.Dir(rel)); err != nil {
		return err
	}
	b.dirs = append(b.dirs, rel)
	if err := b.forgetInput(rel); err != nil {
		return err
	}
	if b.spare[rel] {
		delete(b.spare, rel)
		return nil
	}
	err := b.work.Mkdir(rel, stagedDir)
	if errors.Is(err, fs.ErrExist) && b.work.IsDir(rel) { // a directory input has brought it
		return nil
	}
	if err != nil {
		return err
	}
	return b.fixMode(rel, stagedDir)
}

// placeFile prepares the place of a file that is removed afterwards: it makes the parent folder and removes what an earlier
// command had there.
func (b *sandbox) placeFile(rel string) error {
	if err := b.mkdir(filepath.Dir(rel)); err != nil {
		return err
	}
	b.files = append(b.files, rel)
	if err := b.forgetInput(rel); err != nil {
		return err
	}
	return b.clearFolder(rel)
}

// placeInput prepares the place of an input, as placeFile does. It returns true if a file is there whose inode may
// take the new content (objectstore.Rewrite).
func (b *sandbox) placeInput(rel string) (reused bool, err error) {
	if slices.Contains(b.inputs, rel) {
		return false, nil // a glob has staged it
	}
	if err := b.mkdir(filepath.Dir(rel)); err != nil {
		return false, err
	}
	if err := b.clearFolder(rel); err != nil {
		return false, err
	}
	b.inputs = append(b.inputs, rel)
	if b.mixed {
		return false, nil
	}
	switch i := slices.Index(b.old, rel); {
	case i >= 0:
		b.old = slices.Delete(b.old, i, i+1)
		return true, nil
	case len(b.old) > 0:
		last := len(b.old) - 1
		err = b.work.Rename(b.old[last], b.work, rel)
		b.old = b.old[:last]
	case b.stash > 0:
		b.stash--
		err = b.root.Rename(stashed(b.stash), b.work, rel)
	default:
		return false, nil
	}
	if errors.Is(err, fs.ErrNotExist) { // an earlier command may have removed the file
		return false, nil
	}
	return err == nil, err
}

func stashed(i int) string { return "s" + strconv.Itoa(i) }

// forgetInput removes an input of the latest command, unless the present one has it too.
func (b *sandbox) forgetInput(rel string) error {
	i := slices.Index(b.old, rel)
	if i < 0 {
		return nil
	}
	b.old = slices.Delete(b.old, i, i+1)
	return b.work.Discard(rel)
}

// putAside moves the inputs of the latest command that are still there out of the command's reach.
func (b *sandbox) putAside() error {
	for _, rel := range b.old {
		if b.stash < maxStash && b.work.Rename(rel, b.root, stashed(b.stash)) == nil {
			b.stash++
		} else if err := b.work.Discard(rel); err != nil {
			return err
		}
	}
	b.old = b.old[:0]
	return nil
}

// clearFolder removes a folder of earlier commands.
func (b *sandbox) clearFolder(rel string) error {
	if !b.spare[rel] {
		return nil
	}
	for other := range b.spare {
		if other == rel || strings.HasPrefix(other, rel+string(filepath.Separator)) {
			delete(b.spare, other)
		}
	}
	b.old = slices.DeleteFunc(b.old, func(other string) bool { return strings.HasPrefix(other, rel+string(filepath.Separator)) })
	return b.work.Discard(rel)
}

// clearSpare removes the folders and files of earlier commands that this one does not use.
func (b *sandbox) clearSpare() error {
	if err := b.putAside(); err != nil {
		return err
	}
	for len(b.spare) > 0 {
		for rel := range b.spare {
			if err := b.work.Discard(rel); err != nil {
				return err
			}
			delete(b.spare, rel)
		}
	}
	return nil
}

// tidy removes the staged files, except small ones, which it keeps in old. It keeps the folders, because making
// folders costs most. It returns false if the command left anything of its own or changed a folder. A folder is used
// only after every folder on the way is known to be one: the command may have put a link in its place.
func (b *sandbox) tidy() bool {
	if info, err := b.work.Lstat("."); err != nil || info.Mode().Perm() != 0o700 {
		return false
	}
	folders := map[string]*tidied{".": {Dir: b.work}}
	defer func() {
		delete(folders, ".")
		for _, f := range folders {
			f.Close()
		}
	}()
	for _, rel := range b.dirs { // parents first
		f, err := tidyFolder(b.work, rel)
		if err != nil {
			return false
		}
		folders[rel] = f
		folders[filepath.Dir(rel)].entries++
	}
	for _, rel := range b.files {
		f, known := folders[filepath.Dir(rel)]
		if !known {
			return false
		}
		if err := f.Unlink(filepath.Base(rel)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	for _, rel := range b.inputs {
		f, known := folders[filepath.Dir(rel)]
		if !known {
			return false
		}
		name := filepath.Base(rel)
		if info, err := f.Lstat(name); err == nil && info.Mode().IsRegular() && info.Size() <= maxReused {
			b.old = append(b.old, rel)
			f.entries++
		} else if err := f.Unlink(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	for _, f := range folders {
		if !f.HasEntries(f.entries) {
			return false
		}
	}
	for _, rel := range b.dirs {
		b.spare[rel] = true
	}
	return true
}

// tidied is a folder that is being tidied.
type tidied struct {
	*beneath.Dir
	entries int // that stay
}

// tidyFolder opens a folder that was staged, if it is as it was.
func tidyFolder(work *beneath.Dir, rel string) (*tidied, error) {
	d, err := work.Sub(rel)
	if err != nil {
		return nil, err
	}
	info, err := d.Lstat(".")
	if err == nil && info.Mode().Perm() != stagedDir {
		err = fs.ErrPermission
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return &tidied{Dir: d}, nil
}

// drop closes the sandbox's files and folders and leaves them as they are.
func (b *sandbox) drop() {
	b.closeLogs()
	b.closeJournal()
	if b.note.file != nil {
		b.note.file.Close()
		b.note.file = nil
	}
	b.close()
}

func (b *sandbox) closeLogs() {
	for _, f := range []**os.File{&b.logs.stdout, &b.logs.stderr} {
		if *f != nil {
			(*f).Close()
			*f = nil
		}
	}
}
