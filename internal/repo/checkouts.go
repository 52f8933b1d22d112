package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"e3/executions"
	"e3/internal/host/modes"
	"e3/objectstore/tree"
)

// CheckoutsSizeVariable is the bound on what the kept checkouts of a repository take of the disk, such as 2GiB.
const CheckoutsSizeVariable = "E3_CHECKOUTS_SIZE"

// checkoutsName begins the name of the folder of kept checkouts.
const checkoutsName = "checkouts"

// CheckoutsFilesVariable is the bound on their files, folders and links: file systems of clusters count them for each group.
const CheckoutsFilesVariable = "E3_CHECKOUTS_FILES"

func (r *Repo) checkoutsBound() (bound tree.Usage, err error) {
	bound = executions.DefaultCheckouts
	if bound.Bytes, err = r.size(CheckoutsSizeVariable, bound.Bytes); err != nil {
		return bound, err
	}
	if text := r.opts.Getenv(CheckoutsFilesVariable); text != "" {
		if bound.Files, err = strconv.ParseInt(text, 10, 64); err != nil || bound.Files < 0 {
			return bound, fmt.Errorf("%s: %q is no number of files, such as 50000 or 0", CheckoutsFilesVariable, text)
		}
	}
	return bound, nil
}

// TrimCheckouts removes old checkouts of this repository that this user's commands have left on this machine, or all
// that no process uses. A dry run only counts them.
func (r *Repo) TrimCheckouts(all, dry bool) (executions.TrimmedCheckouts, error) {
	folder := ofUser(r.stores.here.Temp(), checkoutsName)
	if _, err := os.Lstat(folder); err != nil || modes.Alone(folder) != nil { // there are none, or not of this user alone
		return executions.TrimmedCheckouts{}, nil
	}
	bound, err := r.checkoutsBound()
	if err != nil {
		return executions.TrimmedCheckouts{}, err
	}
	return executions.StoredCheckouts(folder).Trim(r.opts.Now(), bound, all, dry)
}

// ofUser is a folder of this user beside the folders of processes.
func ofUser(temp, what string) string {
	return filepath.Join(temp, fmt.Sprintf("%s-%d", what, os.Getuid()))
}
