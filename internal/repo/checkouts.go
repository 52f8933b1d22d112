package repo

import (
	"fmt"
	"os"
	"path/filepath"

	"e3/executions"
	"e3/internal/host/modes"
)

// CheckoutsSizeVariable is the bound on what the kept checkouts of a repository take of the disk, such as 2GiB.
const CheckoutsSizeVariable = "E3_CHECKOUTS_SIZE"

// checkoutsName begins the name of the folder of kept checkouts.
const checkoutsName = "checkouts"

func checkoutsSize(r *Repo) (int64, error) {
	return r.size(CheckoutsSizeVariable, executions.DefaultCheckoutBytes)
}

// TrimCheckouts removes old checkouts of this repository that this user's commands have left on this machine, or all
// that no process uses. A dry run only counts them.
func (r *Repo) TrimCheckouts(all, dry bool) (executions.TrimmedCheckouts, error) {
	folder := ofUser(r.stores.here.Temp(), checkoutsName)
	if _, err := os.Lstat(folder); err != nil || modes.Alone(folder) != nil { // there are none, or not of this user alone
		return executions.TrimmedCheckouts{}, nil
	}
	size, err := checkoutsSize(r)
	if err != nil {
		return executions.TrimmedCheckouts{}, err
	}
	return executions.StoredCheckouts(folder).Trim(r.opts.Now(), size, all, dry)
}

// ofUser is a folder of this user beside the folders of processes.
func ofUser(temp, what string) string {
	return filepath.Join(temp, fmt.Sprintf("%s-%d", what, os.Getuid()))
}
