package repo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"e3/internal/host/beneath"
	"e3/internal/host/modes"
	"e3/refstore"
)

// formatFile marks a folder as a repository and describes it (doc/format.md, "Version"). Its copy does the same. A
// shared repository has the same texts as records.
const (
	formatFile = "format.json"
	formatCopy = "format.copy"
)

// FormatVersion is the version of the only form of repositories.
const FormatVersion = 1

// format is a repository's description of itself.
type format struct {
	E3      string `json:"e3"`
	Version int    `json:"version"`
	// ID identifies a repository with objects in S3; the objects' place names it.
	ID string `json:"id,omitempty"`
	// Objects is the place of the objects if not in the folder.
	Objects *bucketLocation `json:"objects,omitempty"`
	// Location is the shared repository that a folder stands for.
	Location string `json:"location,omitempty"`
	// Access says which users can use a folder; empty in repositories that go by the umask.
	Access modes.Access `json:"access,omitempty"`
	// SignedExecutions says that only executions that a trusted key has signed are answers.
	SignedExecutions bool `json:"signedExecutions,omitempty"`
	// Partitions says that records which all tasks write are spread over several partitions: the enumeration of
	// tasks, and the jobs of a queue. It never changes.
	Partitions bool `json:"partitions,omitempty"`
	// Sum is the sum of the encoded JSON without the member sum; later versions have it too.
	Sum string `json:"sum,omitempty"`
}

func (f *format) encode() ([]byte, error) {
	f.E3, f.Version, f.Sum = "repository", FormatVersion, ""
	text, err := json.Marshal(f)
	return append(withSum(text), '\n'), err
}

// withSum adds the member sum to a JSON object, as the last.
func withSum(text []byte) []byte {
	sum := crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(text[:len(text)-1:len(text)-1], `,"sum":"%08x"}`, sum)
}

// sumHolds reports whether the text matches its sum.
func sumHolds(data []byte) bool {
	end := len(data) - len(`,"sum":"01234567"}`+"\n")
	if end < 0 {
		return false
	}
	return bytes.Equal(data, append(withSum(append(bytes.Clone(data[:end]), '}')), '\n'))
}

// errFormatDamaged reports a text that does not match its sum.
var errFormatDamaged = errors.New("it is damaged")

// decodeFormat reads a repository's description; where is its place, for errors.
func decodeFormat(data []byte, where string) (*format, error) {
	var f format
	if err := json.Unmarshal(data, &f); err != nil || f.E3 != "repository" || f.Version < 1 {
		return nil, fmt.Errorf("open repository: %s does not describe a repository", where)
	}
	if (f.Sum != "" || f.Version == FormatVersion) && !sumHolds(data) {
		return nil, fmt.Errorf("open repository: %s: %w", where, errFormatDamaged)
	}
	if f.Version != FormatVersion {
		return nil, fmt.Errorf("%w: %s has version %d, which an unreleased e3 made, or a newer one than this; "+
			"use a newer e3, or run its package file in a new repository", ErrOtherFormat, where, f.Version)
	}
	if !f.Access.Known() {
		return nil, fmt.Errorf("%w: %s says that its access is %q; use a newer e3", ErrOtherFormat, where, f.Access)
	}
	if f.Objects != nil {
		if err := errors.Join(f.Objects.check(where), needID(f.ID)); err != nil {
			return nil, fmt.Errorf("open repository: %w", err)
		}
	}
	return &f, nil
}

func needID(id string) error {
	if !validID(id) {
		return errors.New("it has objects elsewhere, and no id by which they are known")
	}
	return nil
}

// formatTexts are the two places of a repository's description.
type formatTexts struct {
	where [2]string // for people
	read  func(ctx context.Context, i int) ([]byte, error)
	write func(ctx context.Context, i int, text []byte) error
}

// load reads the first text that is whole, and reports damaged texts to warn.
func (t *formatTexts) load(ctx context.Context, warn func(error)) (*format, error) {
	f, err := t.decode(ctx, 0)
	if err == nil || errors.Is(err, ErrOtherFormat) || ctx.Err() != nil {
		return f, err
	}
	f, failed := t.decode(ctx, 1)
	if failed != nil {
		return nil, err
	}
	warn(fmt.Errorf("%s is damaged: %w; its copy %s counts. Mend it with: e3 verify --repair", t.where[0], err, t.where[1]))
	return f, nil
}

func (t *formatTexts) decode(ctx context.Context, i int) (*format, error) {
	data, err := t.read(ctx, i)
	if err != nil {
		return nil, fmt.Errorf("open repository: %w", err)
	}
	return decodeFormat(data, t.where[i])
}

// A FormatFault is a damaged or missing description of a repository.
type FormatFault struct {
	Where string
	Err   error
	// Missing says that the copy does not exist: an interrupted init leaves none.
	Missing bool
	Mend    func(context.Context) error // writes it again from the other one
}

// FormatFaults checks the two descriptions of the repository.
func (r *Repo) FormatFaults(ctx context.Context) ([]FormatFault, error) {
	var faults []FormatFault
	for _, t := range r.formats {
		for i := range t.where {
			_, err := t.decode(ctx, i)
			if err == nil {
				continue
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			other, failed := t.read(ctx, 1-i)
			if _, bad := decodeFormat(other, t.where[1-i]); failed != nil || bad != nil {
				continue // the other text is unreadable too
			}
			missing := i == 1 && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, refstore.ErrNotFound))
			faults = append(faults, FormatFault{t.where[i], err, missing, func(ctx context.Context) error { return t.write(ctx, i, other) }})
		}
	}
	return faults, nil
}

// folderFormat are the texts of the repository in a folder.
func folderFormat(root string) *formatTexts {
	paths := [2]string{filepath.Join(root, formatFile), filepath.Join(root, formatCopy)}
	return &formatTexts{
		where: paths,
		read:  func(_ context.Context, i int) ([]byte, error) { return readFormat(paths[i]) },
		write: func(_ context.Context, i int, text []byte) error {
			f, err := decodeFormat(text, paths[i])
			if err != nil {
				return err
			}
			in, err := beneath.Open(root)
			if err != nil {
				return err
			}
			defer in.Close()
			aside := asideName()
			defer in.Unlink(aside) // unless it is renamed
			if err := writeSynced(in, aside, text, modes.Of(f.Access, root)); err != nil {
				return err
			}
			return in.Rename(aside, in, filepath.Base(paths[i]))
		},
	}
}

// maxFormat bounds a description.
const maxFormat = 1 << 20

// readFormat reads a description. It must be a file, not a link to one.
func readFormat(path string) ([]byte, error) {
	in, err := beneath.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	f, err := in.OpenFile(filepath.Base(path), os.O_RDONLY|beneath.Nonblock, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file: %w", path, errors.Join(err, refstore.ErrForeign))
	}
	return io.ReadAll(io.LimitReader(f, maxFormat))
}

// formatPath is the path of a text that marks a folder as a repository.
func formatPath(root string) (string, bool) {
	for _, name := range []string{formatFile, formatCopy} {
		path := filepath.Join(root, name)
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			return path, true
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return "", false
}

// formatKeys are a shared repository's records in place of a folder's two files.
var formatKeys = [2]refstore.Key{{Partition: "FORMAT", Sort: "repository"}, {Partition: "FORMAT", Sort: "copy"}}

// sharedFormat are the texts of a shared repository.
func sharedFormat(records refstore.Store, location string) *formatTexts {
	return &formatTexts{
		where: [2]string{location, location + " (" + formatKeys[1].String() + ")"},
		read: func(ctx context.Context, i int) ([]byte, error) {
			rec, err := records.Get(ctx, formatKeys[i])
			return rec.Value, err
		},
		write: func(ctx context.Context, i int, text []byte) error {
			rec, err := records.Get(ctx, formatKeys[i])
			if err != nil && !errors.Is(err, refstore.ErrNotFound) {
				return err
			}
			_, err = records.Put(ctx, refstore.Record{Key: formatKeys[i], Value: text, Version: rec.Version})
			return err
		},
	}
}
