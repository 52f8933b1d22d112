package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// A Base holds the folders, files and accounts that a root file system needs, whatever the layers have at these paths.
type Base struct {
	Folders  []string          // no one is a link
	Files    map[string]string // by path: the content
	Accounts map[string]string // a line of a file of users or groups, by the file's path
}

// Prepare puts a base over the layers.
func (u *Unpacker) Prepare(b *Base) error {
	for _, name := range b.Folders {
		if err := u.realFolder(name); err != nil {
			return err
		}
	}
	for name, content := range b.Files {
		if err := u.file(name, content); err != nil {
			return err
		}
	}
	for name, line := range b.Accounts {
		if err := u.account(name, line); err != nil {
			return err
		}
	}
	return nil
}

// realFolder makes sure that a path is a folder, and that no link is on the way to it. Any other file there is removed.
func (u *Unpacker) realFolder(name string) error {
	at := "."
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		info, err := u.root.Lstat(at)
		if err == nil && info.IsDir() {
			continue
		}
		if err := u.clear(at); err != nil {
			return err
		}
		if err := u.root.Mkdir(at, 0o755); err != nil {
			return err
		}
		if err := u.root.Chmod(at, 0o755); err != nil { // whatever the umask
			return err
		}
	}
	return nil
}

// file gives a file a content, in a folder that is no link.
func (u *Unpacker) file(name, content string) error {
	if err := u.realFolder(path.Dir(name)); err != nil {
		return err
	}
	if err := u.clear(name); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, content)
	if e := f.Chmod(0o644); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// maxAccounts bounds the size of a file of users or groups.
const maxAccounts = 4 << 20

// account adds a line to a file of users or groups (passwd, group), unless the file has a line with the same number.
// The number is the third field of a line.
func (u *Unpacker) account(name, line string) error {
	number := func(line string) string {
		if fields := strings.Split(line, ":"); len(fields) > 2 {
			return fields[2]
		}
		return ""
	}
	text, err := u.read(name)
	if err != nil {
		return err
	}
	for have := range strings.Lines(text) {
		if number(strings.TrimSuffix(have, "\n")) == number(line) {
			return nil
		}
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return u.file(name, text+line+"\n")
}

// read returns the content of a file of accounts; "" if there is none.
func (u *Unpacker) read(name string) (string, error) {
	if info, err := u.root.Lstat(name); errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return "", nil
	}
	f, err := u.root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, maxAccounts+1))
	if err == nil && len(data) > maxAccounts {
		err = fmt.Errorf("%w: %s has more than %d bytes", ErrLayer, name, maxAccounts)
	}
	return string(data), err
}
