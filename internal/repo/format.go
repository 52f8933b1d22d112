package repo

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"e3/refstore/dynamo"
)

// formatFile says that a folder is a repository and which layout it has (doc/format.md). A shared repository has the same text
// as a record.
const formatFile = "format.json"

// Versions of repositories that this program reads and writes.
const (
	LayoutVersion = 1 // of a folder with everything in it
	remoteVersion = 2 // of whatever has its objects, or everything, elsewhere
)

// format is what a repository says of itself.
type format struct {
	E3      string `json:"e3"`
	Version int    `json:"version"`
	// ID tells a repository with objects in S3 from every other: the objects' place says whose they are.
	ID string `json:"id,omitempty"`
	// Objects is where they are if not in the folder.
	Objects *bucketLocation `json:"objects,omitempty"`
	// Location is the shared repository that a folder stands for.
	Location string `json:"location,omitempty"`
}

func (f *format) encode() ([]byte, error) {
	f.E3, f.Version = "repository", LayoutVersion
	if f.Objects != nil || f.Location != "" {
		f.Version = remoteVersion
	}
	text, err := json.Marshal(f)
	return append(text, '\n'), err
}

// decodeFormat reads what a repository says of itself; where is its place, for errors.
func decodeFormat(data []byte, where string) (*format, error) {
	var f format
	if err := json.Unmarshal(data, &f); err != nil || f.E3 != "repository" || f.Version < 1 {
		return nil, fmt.Errorf("open repository: %s does not describe a repository", where)
	}
	if f.Version > remoteVersion {
		return nil, fmt.Errorf("%w: %s has layout %d, this program knows up to %d; use a newer e3", ErrTooNew, where, f.Version, remoteVersion)
	}
	if f.Objects != nil {
		if err := errors.Join(f.Objects.check(where), needID(f.ID)); err != nil {
			return nil, fmt.Errorf("open repository: %w", err)
		}
	}
	return &f, nil
}

func needID(id string) error {
	if !dynamo.ValidRepository(id) {
		return errors.New("it has objects elsewhere, and no id by which they are known")
	}
	return nil
}

// readFormat reads the format of the repository in a folder.
func readFormat(root string) (*format, error) {
	path := filepath.Join(root, formatFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("open repository: %w", err)
	}
	return decodeFormat(data, path)
}
