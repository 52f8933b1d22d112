package runner

import "os"

// executable reports whether path names a file.
func executable(path string) error {
	_, err := os.Stat(path)
	return err
}

// searchable is left to the system: entering the directory tells.
func searchable(string) error { return nil }
