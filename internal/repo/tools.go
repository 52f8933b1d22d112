package repo

import (
	"os"
	"path/filepath"

	"e3/internal/host/tools"
)

// programs finds the programs of this machine.
func programs(opts *Options) *tools.Finder {
	dir := opts.Getenv(CacheDirVariable)
	if dir == "" {
		if user, err := os.UserCacheDir(); err == nil {
			dir = filepath.Join(user, "e3")
		}
	}
	return tools.New(searchPath(), dir)
}
