package repo

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"e3/internal/host/room"
)

// hidden returns the folders of projects that closed rooms must cover, because they may lie where the system's
// programs are: the folder around the repository, the folders of package files that workspaces follow here, the
// current folder, and the user's home.
func hidden(r *Repo) func() ([]string, error) {
	return sync.OnceValues(func() ([]string, error) {
		var list []string
		if r.stores.folder != "" {
			list = append(list, filepath.Dir(r.stores.folder))
		}
		files, err := r.Workspaces.Deployer.Followed(context.Background())
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			list = append(list, filepath.Dir(file))
		}
		if list, err = room.Hidden(list...); err != nil {
			return nil, err
		}
		home, _ := os.UserHomeDir()
		for _, folder := range []string{r.opts.From, home} { // either may be no project
			if more, err := room.Hidden(folder); err == nil && folder != "" {
				list = append(list, more...)
			}
		}
		return room.Hidden(list...)
	})
}
