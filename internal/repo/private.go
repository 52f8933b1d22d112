package repo

import (
	"fmt"
	"os"
	"path/filepath"
)

// PrivateDir is a folder that only this user can enter, for files that a program keeps on this machine. It lies below
// E3_STATE_DIR, or e3 in the user's state folder, and is made if it is missing.
func PrivateDir(getenv func(string) string, name string) (string, error) {
	dir := getenv(StateDirVariable)
	if dir == "" {
		user, err := stateDir()
		if err != nil {
			return "", fmt.Errorf("no folder for what this machine keeps: %w; set %s", err, StateDirVariable)
		}
		dir = filepath.Join(user, "e3")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err == nil {
		err = os.Chmod(path, 0o700)
	}
	if err == nil {
		err = checkOwned(path)
	}
	if err != nil {
		return "", fmt.Errorf("the folder for what this machine keeps: %w; %s names another", err, StateDirVariable)
	}
	return path, nil
}
