package modes

import (
	"errors"
	"os"
)

func takeGroup(*os.File, string) error { return nil }

// PrivateFolder makes a folder that only this user can enter: unsupported here.
func PrivateFolder(string) (string, error) { return "", errors.ErrUnsupported }

// Alone is not known here.
func Alone(string) error { return nil }
