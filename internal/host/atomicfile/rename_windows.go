package atomicfile

import (
	"os"

	"golang.org/x/sys/windows"
)

func renameExclusive(from, to string) error {
	oldName, err := windows.UTF16PtrFromString(from)
	if err != nil {
		return err
	}
	newName, err := windows.UTF16PtrFromString(to)
	if err != nil {
		return err
	}
	return windows.MoveFileEx(oldName, newName, 0) // without MOVEFILE_REPLACE_EXISTING
}

// syncDir does nothing: Windows has no such call for folders, and NTFS journals names by itself.
func syncDir(*os.File) error { return nil }
