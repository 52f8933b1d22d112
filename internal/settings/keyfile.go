package settings

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"e3/internal/format/signature"
	"e3/internal/host/atomicfile"
)

// KeyVariable is the environment variable with the path of a key file that is not in the usual place.
const KeyVariable = "E3_KEY"

// ErrNoKey reports that the user has no key.
var ErrNoKey = errors.New("there is no key")

// KeyPath is the path of the user's key: E3_KEY, or a file in the user's configuration folder.
func KeyPath(getenv func(string) string) (string, error) {
	if path := getenv(KeyVariable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of the key: %w; name a file with %s", err, KeyVariable)
	}
	return filepath.Join(dir, "e3", "key"), nil
}

// FindKey returns the user's key; ErrNoKey if there is none. A file that E3_KEY names must exist, though, so that a
// mistake in the variable does not lead to unsigned exports.
func FindKey(getenv func(string) string) (*signature.Key, error) {
	path, err := KeyPath(getenv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	k, err := LoadKey(path)
	if errors.Is(err, ErrNoKey) && getenv(KeyVariable) != "" {
		return nil, fmt.Errorf("%s: %w", KeyVariable, errors.Unwrap(err))
	}
	return k, err
}

// LoadKey reads a key file. It refuses a file that other users can read, since they could sign with the key. ErrNoKey
// if there is none.
func LoadKey(path string) (*signature.Key, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &missingKeyError{path: path, err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its other end
		return nil, fmt.Errorf("read key: %s is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, fmt.Errorf("read key: other users can read %s (mode %04o); if none has, restrict it with: chmod 600 %[1]s", path, perm)
	}
	data, err := io.ReadAll(io.LimitReader(f, signature.MaxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	k, err := signature.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", path, err)
	}
	return k, nil
}

// missingKeyError is an ErrNoKey with the system's error.
type missingKeyError struct {
	path string
	err  error
}

func (e *missingKeyError) Error() string {
	return fmt.Sprintf("%v at %s; make one with: e3 key generate", ErrNoKey, e.path)
}

func (e *missingKeyError) Is(target error) bool { return target == ErrNoKey }

func (e *missingKeyError) Unwrap() error { return e.err }

// SaveKey writes the key file so that only the user can read it, and makes its folder. Without replace the path must
// be free: otherwise the error matches [fs.ErrExist].
func SaveKey(k *signature.Key, path string, replace bool) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("save key: %w", err)
	}
	write := atomicfile.CreateFile
	if replace {
		write = atomicfile.WriteFile
	}
	if err := write(path, k.Encode(), atomicfile.Options{Perm: 0o600, Sync: true}); err != nil {
		return fmt.Errorf("save key: %w", err)
	}
	return nil
}
