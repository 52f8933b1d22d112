package repo

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"e3/internal/host/remains"
)

// Taken is what one kind of thing takes of the disks of this machine.
type Taken struct {
	Kind   string `json:"kind"`
	Files  int64  `json:"files"`  // files, folders and links: quotas count each
	Bytes  int64  `json:"bytes"`  // of contents
	Blocks int64  `json:"blocks"` // in bytes: what the contents take, in whole blocks
}

// takenBy says what the folders of a repository are for. All others together are "other".
var takenBy = map[string]string{
	"objects": "objects", "executions": "executions",
	"dataflows": "runs", "events": "runs", "journals": "runs",
	"index": "indexes",
}

// takenKinds is the order in which the kinds are told.
var takenKinds = []string{"objects", "executions", "runs", "indexes", "other", "checkouts", "failed", "scratch"}

// ErrShared is the error of Taken where the repository is in no folder.
var ErrShared = errors.New("the repository is in no folder of this machine")

// Taken counts the files of a repository in a folder by kind, and those that its processes have left on this machine: kept
// checkouts, folders of failed commands, scratch. It looks at each file, which takes some microseconds, follows no link, and
// leaves out what this user may not read and what goes meanwhile.
func (r *Repo) Taken(ctx context.Context) ([]Taken, error) {
	if !filepath.IsAbs(r.Root) {
		return nil, ErrShared
	}
	c := &takenCount{ctx: ctx, of: map[string]*Taken{}, seen: map[[2]uint64]bool{}}
	for _, kind := range takenKinds {
		c.of[kind] = &Taken{Kind: kind}
	}
	temp := r.stores.here.Temp()
	c.add(r.Root, temp, func(first string) string { return cmp.Or(takenBy[first], "other") })
	c.add(temp, "", func(first string) string {
		switch {
		case strings.HasPrefix(first, checkoutsName+"-"):
			return "checkouts"
		case strings.HasPrefix(first, remains.Prefix):
			return "failed"
		}
		return "scratch"
	})
	list := make([]Taken, len(takenKinds))
	for i, kind := range takenKinds {
		list[i] = *c.of[kind]
	}
	return list, c.err
}

// takenCount adds up files.
type takenCount struct {
	ctx  context.Context
	of   map[string]*Taken
	seen map[[2]uint64]bool // files of several names
	err  error
}

// add counts a folder and what is in it, by the first part of the path in it, without the folder except.
func (c *takenCount) add(root, except string, kind func(first string) string) {
	if c.err != nil {
		return
	}
	c.err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case c.ctx.Err() != nil:
			return context.Cause(c.ctx)
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
			return nil
		case err != nil:
			return err
		case path == except && d.IsDir():
			return fs.SkipDir
		case path == root && !d.IsDir(): // no folder for scratch can be had
			return nil
		}
		info, err := d.Info()
		if err != nil { // it is gone
			return nil
		}
		rel, _ := filepath.Rel(root, path)
		first, _, _ := strings.Cut(rel, string(filepath.Separator))
		c.count(c.of[kind(first)], info)
		return nil
	})
}

// count adds a file that was not counted by another name.
func (c *takenCount) count(t *Taken, info fs.FileInfo) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Files, t.Bytes = t.Files+1, t.Bytes+info.Size()
		return
	}
	if st.Nlink > 1 && !info.IsDir() {
		id := [2]uint64{uint64(st.Dev), st.Ino}
		if c.seen[id] {
			return
		}
		c.seen[id] = true
	}
	t.Files, t.Blocks = t.Files+1, t.Blocks+512*st.Blocks
	if !info.IsDir() {
		t.Bytes += info.Size()
	}
}
