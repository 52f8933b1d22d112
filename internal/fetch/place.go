package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"e3/internal/host/atomicfile"
	"e3/internal/host/filelock"
)

// Of each URL the folder has up to three files, under the URL's hash: the lock, the note, and the bytes that have come.
const (
	lockSuffix = ".lock"
	noteSuffix = ".json"
	partSuffix = ".part"
)

// Keep is how long bytes of an unfinished file, and the note of a finished one, are kept without a use.
const Keep = 14 * 24 * time.Hour

// A note says what is known of a URL.
type note struct {
	URL   string `json:"url"`
	Seen  string `json:"seen,omitempty"`  // what the server said of the bytes that have come
	Total int64  `json:"total,omitempty"` // bytes of that file; -1: unknown
	Known Known  `json:"known,omitzero"`  // what was handed over last
}

// A place is where one URL is fetched to. It is locked.
type place struct {
	dir  *os.Root
	path string // of dir
	name string
	lock *os.File
	note note
	part *os.File // open for writing; nil: not yet
	size int64    // of part
}

func placeName(url string) string {
	sum := sha256.Sum256([]byte("e3 fetch\x00" + url))
	return hex.EncodeToString(sum[:16])
}

// readNote reads the note of a URL. If there is none, or a damaged one, nothing is known.
func readNote(dir *os.Root, name, url string) note {
	var n note
	text, err := dir.ReadFile(name + noteSuffix)
	if err == nil {
		err = json.Unmarshal(text, &n)
	}
	if err != nil || n.URL != url {
		return note{URL: url}
	}
	return n
}

// openPlace locks the place of a URL.
func openPlace(ctx context.Context, folder, url string, waiting filelock.Waiter) (_ *place, err error) {
	p := &place{path: folder, name: placeName(url)}
	if p.dir, err = os.OpenRoot(folder); err != nil {
		return nil, err
	}
	if err := p.take(ctx, waiting); err != nil {
		return nil, errors.Join(err, p.dir.Close())
	}
	p.note = readNote(p.dir, p.name, url)
	info, err := p.dir.Lstat(p.name + partSuffix)
	if err == nil && info.Mode().IsRegular() && p.note.Seen != "" {
		p.size = info.Size()
	}
	return p, nil
}

// take locks the lock's file, and makes sure that it is still at its path: Trim removes it.
func (p *place) take(ctx context.Context, waiting filelock.Waiter) error {
	for {
		f, err := p.dir.OpenFile(p.name+lockSuffix, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		if err := waiting.Wait(ctx, f, true); err != nil {
			return err // f is closed
		}
		held, err := f.Stat()
		there, gone := p.dir.Lstat(p.name + lockSuffix)
		if err == nil && gone == nil && os.SameFile(held, there) {
			p.lock = f
			return nil
		}
		f.Close()
	}
}

func (p *place) close() {
	if p.part != nil {
		p.part.Close()
	}
	p.lock.Close()
	p.dir.Close()
}

func (p *place) save() error {
	text, err := json.Marshal(&p.note)
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(p.path, p.name+noteSuffix), append(text, '\n'), atomicfile.Options{Perm: 0o600})
}

func (p *place) open() error {
	if p.part != nil {
		return nil
	}
	f, err := p.dir.OpenFile(p.name+partSuffix, os.O_WRONLY|os.O_CREATE, 0o600)
	p.part = f
	return err
}

// cut drops the bytes from an offset on. Bytes that were not on the disk when the power failed count as arrived by the
// file's size alone if their file system does not order its writes; a sum finds that.
func (p *place) cut(at int64) error {
	if err := p.open(); err != nil {
		return err
	}
	if err := p.part.Truncate(at); err != nil {
		return err
	}
	_, err := p.part.Seek(at, 0)
	p.size = at
	return err
}

// restart begins a file anew. The note comes after the old bytes are gone: it never describes bytes of another file.
func (p *place) restart(seen string, total int64) error {
	if err := p.cut(0); err != nil {
		return err
	}
	p.note.Seen, p.note.Total = seen, total
	return p.save()
}

func (p *place) write(b []byte) error {
	n, err := p.part.Write(b)
	p.size += int64(n)
	return err
}

// hand gives the complete file away. If the content is not the wanted one, it is gone.
func (p *place) hand(ctx context.Context, take func(context.Context, *os.Root, string) (string, error)) (mark string, err error) {
	if err := p.part.Close(); err != nil {
		return "", err
	}
	p.part = nil
	mark, err = take(ctx, p.dir, p.name+partSuffix)
	if err != nil && !errors.Is(err, ErrContent) {
		return "", err // the bytes stay for another attempt
	}
	p.size, p.note.Seen, p.note.Total = 0, "", 0
	if gone := p.dir.Remove(p.name + partSuffix); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	if err != nil {
		return "", errors.Join(err, p.save())
	}
	return mark, nil
}

// Trim removes what was not used for a time from the folder of a Client, unless a process is using it. It returns the
// number and the bytes of unfinished files that it removed; a dry run only counts.
func Trim(folder string, before time.Time, dry bool) (files int, bytes int64, err error) {
	dir, err := os.OpenRoot(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, err
	}
	defer dir.Close()
	entries, err := os.ReadDir(folder)
	if err != nil {
		return 0, 0, err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), lockSuffix)
		if !ok || used(dir, name).After(before) {
			continue
		}
		f, err := dir.OpenFile(e.Name(), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if filelock.Try(f, true) == nil {
			if info, err := dir.Lstat(name + partSuffix); err == nil {
				files, bytes = files+1, bytes+info.Size()
			}
			for _, suffix := range []string{partSuffix, noteSuffix, lockSuffix} { // the lock comes last
				if !dry {
					_ = dir.Remove(name + suffix)
				}
			}
		}
		f.Close()
	}
	return files, bytes, nil
}

// used is the time of the last use of a URL's files.
func used(dir *os.Root, name string) (last time.Time) {
	for _, suffix := range []string{partSuffix, noteSuffix, lockSuffix} {
		if info, err := dir.Lstat(name + suffix); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
