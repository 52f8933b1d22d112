package tools

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// linked adds the loader and the libraries of a program or library, as ld.so(8) finds them in the environment of a
// task, which has no LD_LIBRARY_PATH: DT_RPATH of the file and of the files that load it, DT_RUNPATH of the file,
// the folders of ld.so.conf, the usual folders. rpath is the DT_RPATH of the loading files.
func (c *closure) linked(facts *facts, path string, rpath []string) error {
	if facts.Loader != "" {
		if err := c.file(interpreter, filepath.Base(facts.Loader), facts.Loader); err != nil {
			return err
		}
	}
	for _, name := range facts.Needed {
		where := c.f.library(name, facts, path, rpath)
		if where == "" {
			if _, err := c.add(library, name, "", ""); err != nil {
				return err
			}
			continue
		}
		lib, err := c.f.memory.read(where)
		if err != nil {
			return err
		}
		again, err := c.add(library, name, where, lib.Hash)
		if err != nil {
			return err
		}
		if !again {
			own := rpath
			if len(lib.RunPath) == 0 {
				own = append(origin(lib.RPath, where), rpath...)
			}
			if err := c.linked(lib, where, own); err != nil {
				return err
			}
		}
	}
	return nil
}

// file adds a file that links nothing itself.
func (c *closure) file(role, name, path string) error {
	facts, err := c.f.memory.read(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = c.add(role, name, "", "")
		return err
	}
	if err != nil {
		return err
	}
	_, err = c.add(role, name, path, facts.Hash)
	return err
}

// library finds a library for a file; "" if it is missing.
func (f *Finder) library(name string, facts *facts, path string, rpath []string) string {
	if strings.Contains(name, "/") {
		if filepath.IsAbs(name) && f.memory.fits(name, facts) {
			return name
		}
		return ""
	}
	var dirs []string
	if len(facts.RunPath) == 0 {
		dirs = append(dirs, origin(rpath, path)...)
	}
	dirs = append(dirs, origin(facts.RunPath, path)...)
	for _, dir := range append(dirs, f.libraries()...) {
		if file := filepath.Join(dir, name); filepath.IsAbs(dir) && f.memory.fits(file, facts) {
			return file
		}
	}
	return ""
}

// origin fills in $ORIGIN, the folder of the file that names it.
func origin(dirs []string, path string) []string {
	if len(dirs) == 0 {
		return nil
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path = resolved
	}
	full := make([]string, len(dirs))
	for i, dir := range dirs {
		full[i] = strings.NewReplacer("$ORIGIN", filepath.Dir(path), "${ORIGIN}", filepath.Dir(path)).Replace(dir)
	}
	return full
}

// fits reports whether a file is there and made for the same kind of machine, as the loader checks.
func (m *memory) fits(path string, facts *facts) bool {
	_, r, err := m.known(path)
	if err != nil {
		return false
	}
	if r != nil {
		return r.Facts.Machine != "" && (facts.Machine == "" || facts.Machine == r.Facts.Machine)
	}
	f, err := m.open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [20]byte
	if _, err := io.ReadFull(f, head[:]); err != nil || string(head[:4]) != elf.ELFMAG {
		return false
	}
	return facts.Machine == "" || facts.Machine == machine(head[:])
}

// machine is the class, byte order and machine of an ELF header.
func machine(head []byte) string { return string(head[4:6]) + string(head[18:20]) }

// libraries are the folders that the loader searches on this machine, in order.
func (f *Finder) libraries() []string {
	if f.dirs == nil {
		f.dirs = append(loaderConfig("/etc/ld.so.conf", 0), "/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
	}
	return f.dirs
}

// loaderConfig reads the folders of an ld.so.conf, with the files that it includes.
func loaderConfig(file string, depth int) []string {
	data, err := os.ReadFile(file)
	if err != nil || depth == 8 {
		return nil // a system without one has the usual folders
	}
	var dirs []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "include":
			for _, pattern := range fields[1:] {
				if !filepath.IsAbs(pattern) {
					pattern = filepath.Join(filepath.Dir(file), pattern)
				}
				files, _ := filepath.Glob(pattern) // sorted, as ldconfig reads them
				for _, f := range files {
					dirs = append(dirs, loaderConfig(f, depth+1)...)
				}
			}
		case filepath.IsAbs(fields[0]):
			dirs = append(dirs, fields[0])
		}
	}
	return dirs
}

// links reads what an ELF file loads. Other files load nothing.
func links(file io.ReaderAt, into *facts) {
	var head [20]byte
	if n, _ := file.ReadAt(head[:], 0); n < len(head) || !bytes.HasPrefix(head[:], []byte(elf.ELFMAG)) {
		return
	}
	into.Machine = machine(head[:])
	f, err := elf.NewFile(file)
	if err != nil {
		return // its bytes are in the key anyway
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			text, err := io.ReadAll(p.Open())
			if err == nil {
				into.Loader = string(bytes.TrimRight(text, "\x00"))
			}
		}
	}
	into.Needed, _ = f.ImportedLibraries()
	into.RPath = searchPath(f, elf.DT_RPATH)
	into.RunPath = searchPath(f, elf.DT_RUNPATH)
}

func searchPath(f *elf.File, tag elf.DynTag) []string {
	list, _ := f.DynString(tag)
	var dirs []string
	for _, text := range list {
		dirs = append(dirs, strings.Split(text, ":")...)
	}
	return dirs
}
