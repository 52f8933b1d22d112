package tools

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"e3/internal/host/atomicfile"
	"e3/internal/host/stamp"
)

// facts is what was read from a file.
type facts struct {
	Hash        string   `json:"hash"`
	Interpreter []string `json:"interpreter,omitempty"` // the words after #!
	Loader      string   `json:"loader,omitempty"`      // loader of an ELF program
	Machine     string   `json:"-"`
	Kind        []byte   `json:"machine,omitempty"` // Machine, as bytes
	Needed      []string `json:"needed,omitempty"`
	RPath       []string `json:"rpath,omitempty"`
	RunPath     []string `json:"runpath,omitempty"`
}

// A remembered file holds the facts of a file's content at these times.
type remembered struct {
	Size     int64 `json:"size"`
	Modified int64 `json:"modified"`
	Changed  int64 `json:"changed"`
	Inode    int64 `json:"inode"`
	Facts    facts `json:"facts"`
}

// memory keeps the facts of files from one process to the next. If a file's times could hide a change, the file is read
// again.
type memory struct {
	file  string
	files map[string]*remembered
	fresh bool // has facts that are not in the memory's file
	opens int  // files opened so far, for tests
}

// maxRemembered bounds the memory's file; a larger one begins anew.
const maxRemembered = 4 << 20

func newMemory(cache string) *memory {
	m := &memory{files: map[string]*remembered{}}
	if cache == "" {
		return m
	}
	m.file = filepath.Join(cache, "tools.json")
	data, err := os.ReadFile(m.file)
	if err != nil || len(data) > maxRemembered || json.Unmarshal(data, &m.files) != nil || m.files == nil {
		m.files = map[string]*remembered{} // anything else in its place is read as nothing
	}
	for path, r := range m.files {
		if r == nil {
			delete(m.files, path)
			continue
		}
		r.Facts.Machine = string(r.Facts.Kind)
	}
	return m
}

// known returns the present state of a file, and the remembered facts; nil if the file may have changed since.
func (m *memory) known(path string) (now, then *remembered, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	changed, inode := status(info)
	now = &remembered{Size: info.Size(), Modified: info.ModTime().UnixNano(), Changed: changed, Inode: inode}
	if r := m.files[path]; r != nil && r.Size == now.Size && r.Modified == now.Modified && r.Changed == changed && r.Inode == inode {
		return now, r, nil
	}
	return now, nil, nil
}

func (m *memory) open(path string) (*os.File, error) {
	m.opens++
	return os.Open(path)
}

// read returns the facts of a file.
func (m *memory) read(path string) (*facts, error) {
	now, r, err := m.known(path)
	if err != nil {
		return nil, err
	}
	if r != nil {
		return &r.Facts, nil
	}
	seen := time.Now().UnixNano()
	if err := m.examine(path, &now.Facts); err != nil {
		return nil, err
	}
	if now.Changed != 0 && stamp.Settled(seen, now.Modified, now.Changed) { // any later change changes the times
		m.files[path], m.fresh = now, true
	}
	return &now.Facts, nil
}

// content returns the facts of a file by its SHA-256. They never change.
func (m *memory) content(hash string, open func() (io.ReadCloser, error)) (*facts, error) {
	key := "sha256:" + hash
	if r := m.files[key]; r != nil && r.Facts.Hash == hash {
		return &r.Facts, nil
	}
	r, err := open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	spool, err := os.CreateTemp("", "e3-program-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(spool.Name())
	defer spool.Close()
	if _, err := io.Copy(spool, r); err != nil {
		return nil, err
	}
	found := &remembered{}
	if err := look(spool, &found.Facts); err != nil {
		return nil, err
	}
	if found.Facts.Hash != hash {
		return nil, fmt.Errorf("it has changed while it was read")
	}
	m.files[key], m.fresh = found, true
	return &found.Facts, nil
}

// examine reads a file.
func (m *memory) examine(path string, into *facts) error {
	f, err := m.open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return look(f, into)
}

// look reads a file from its beginning.
func look(f *os.File, into *facts) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(h, bufio.NewReaderSize(f, 1<<18)); err != nil {
		return err
	}
	into.Hash = hex.EncodeToString(h.Sum(nil))
	var head [256]byte
	n, err := f.ReadAt(head[:], 0)
	if err != nil && err != io.EOF {
		return err
	}
	if line, ok := strings.CutPrefix(string(head[:n]), "#!"); ok {
		line, _, _ = strings.Cut(line, "\n")
		if words := strings.Fields(line); len(words) > 0 && filepath.IsAbs(words[0]) {
			into.Interpreter = words
		}
		return nil
	}
	links(f, into)
	into.Kind = []byte(into.Machine)
	return nil
}

// save keeps the facts for the next process.
func (m *memory) save() {
	if m.file == "" || !m.fresh {
		return
	}
	data, err := json.Marshal(m.files)
	if err != nil || len(data) > maxRemembered {
		return
	}
	if os.MkdirAll(filepath.Dir(m.file), 0o700) == nil {
		_ = atomicfile.WriteFile(m.file, data, atomicfile.Options{Perm: 0o600})
		m.fresh = false
	}
}

// executable reports whether anyone may execute a file.
func executable(info fs.FileInfo) bool { return info.Mode().Perm()&0o111 != 0 }
