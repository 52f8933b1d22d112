package repo

import (
	"os"
	"path/filepath"
	"sync"

	"e3/internal/host/tools"
)

// programs reads the programs of this machine, from when a task names one.
type programs struct {
	once   sync.Once
	finder *tools.Finder
}

// tool returns what a program of this machine consists of.
func (r *Repo) tool(name string) (string, error) {
	r.stores.programs.once.Do(func() {
		dir := r.opts.Getenv(CacheDirVariable)
		if dir == "" {
			if user, err := os.UserCacheDir(); err == nil {
				dir = filepath.Join(user, "e3")
			}
		}
		r.stores.programs.finder = tools.New(searchPath(), dir)
	})
	parts, err := r.stores.programs.finder.Find(name)
	if err != nil {
		return "", err
	}
	r.stores.programs.finder.Close()
	return tools.Text(parts), nil
}
