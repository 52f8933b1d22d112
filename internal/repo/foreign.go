package repo

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"e3/internal/host/beneath"
	"e3/objectstore"
)

// ForeignEntries tells of the links, pipes, sockets and devices in the repository's folder, and of files in the place of
// its folders: where each is in the repository, and what is wrong with it. e3 has not made them, and nothing behind them
// belongs to the repository. In tmp only direct entries count: everything deeper belongs to processes.
func (r *Repo) ForeignEntries(ctx context.Context, tell func(where, problem string)) error {
	if r.stores.folder == "" || r.stores.overlaid {
		return nil
	}
	return foreignIn(ctx, r.stores.files.Root(), ".", func(name, problem string) { tell(filepath.ToSlash(name), problem) })
}

// folders are the entries of a repository that are folders.
var folders = map[string]bool{
	"objects": true, "packages": true, "executions": true, "workspaces": true, "dataflows": true, "events": true, "journals": true, "locks": true,
	"tmp": true, "index": true, "queue": true, "pins": true, "tombstones": true, "cancels": true, "approvals": true, "blocks": true, "settings": true,
}

// madeAsFolder reports whether a name is one that e3 gives to folders: of objects, tasks, inputs or executions.
func madeAsFolder(name string) bool {
	parts := strings.Split(name, string(filepath.Separator))
	last := parts[len(parts)-1]
	switch {
	case len(parts) == 2 && parts[0] == "objects":
		_, err := hex.DecodeString(last)
		return err == nil && len(last) == 2
	case len(parts) == 2 && parts[0] == "executions", len(parts) == 3 && parts[0] == "executions":
		_, err := objectstore.ParseHash(last)
		return err == nil
	case len(parts) == 4 && parts[0] == "executions":
		return uuid.Validate(last) == nil
	}
	return false
}

func foreignIn(ctx context.Context, d *beneath.Dir, at string, tell func(name, problem string)) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	entries, err := d.ReadDir()
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if at != "." {
			name = at + string(filepath.Separator) + name
		}
		top := !strings.ContainsRune(name, filepath.Separator)
		switch kind := e.Type(); {
		case kind.IsDir():
			if at == "tmp" {
				continue
			}
			sub, err := d.Sub(e.Name())
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // such as another member's folder
				continue
			}
			if err == nil {
				err = errors.Join(foreignIn(ctx, sub, name, tell), sub.Close())
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, beneath.ErrLink) { // it was exchanged meanwhile
				return err
			}
		case kind.IsRegular() && (top && folders[name] || madeAsFolder(name)):
			tell(name, "it is a file; e3 makes a folder there: remove it")
		case !kind.IsRegular():
			tell(name, "it is "+objectstore.KindOf(kind)+"; e3 makes none here: remove it")
		}
	}
	return nil
}
