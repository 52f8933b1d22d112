package repo

import (
	"errors"
	"io/fs"

	"e3/internal/host/beneath"
	"e3/internal/host/modes"
)

// ignoreFile keeps the repository's folder out of Git: it lies in the folder and ignores everything there, itself
// included. A folder that refers to a shared repository has no such file, because a team may want to commit the
// folder.
const ignoreFile = ".gitignore"

const ignoreText = "# Made by e3: results and logs are not for version control.\n*\n"

// ignore makes the file if there is none. An existing one stays.
func ignore(in *beneath.Dir, m modes.Modes) error {
	if _, err := in.Lstat(ignoreFile); err == nil {
		return nil
	}
	err := writeSynced(in, ignoreFile, []byte(ignoreText), m)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
