package runner

import (
	"encoding/binary"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// canRedirect reports whether the kernel has the calls that Redirect.open needs.
var canRedirect = sync.OnceValue(func() bool {
	fd, err := unix.Openat2(unix.AT_FDCWD, os.DevNull, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
})

// descriptors are a command's standard descriptors, and descriptors to close once the command has started.
type descriptors struct {
	standard [3]uintptr
	opened   []int
}

func (d *descriptors) close() {
	for _, fd := range d.opened {
		unix.Close(fd)
	}
}

// redirected carries out the redirections of a request. standard are the descriptors before these. Links and paths that
// leave the working directory are refused: they could lead to files of this process, or to a file that blocks.
func redirected(r *spawnRequest, standard [3]int) (d descriptors, err error) {
	for fd, to := range standard {
		d.standard[fd] = uintptr(to)
	}
	dir := -1
	for i := range r.redirects {
		redirect := &r.redirects[i]
		if redirect.Path == "" {
			d.standard[redirect.FD] = d.standard[redirect.From]
			continue
		}
		if dir < 0 && redirect.Path != os.DevNull {
			if dir, err = unix.Open(r.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
				return d, err
			}
			d.opened = append(d.opened, dir)
		}
		fd, err := redirect.open(dir)
		if err != nil {
			return d, err
		}
		d.opened = append(d.opened, fd)
		d.standard[redirect.FD] = uintptr(fd)
	}
	return d, nil
}

// open opens the file of a redirection, relative to dir.
func (r *Redirect) open(dir int) (fd int, err error) {
	how := unix.OpenHow{
		Flags:   unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	switch r.Mode {
	case Truncate:
		how.Flags |= unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC
	case Append:
		how.Flags |= unix.O_WRONLY | unix.O_CREAT | unix.O_APPEND
	}
	if how.Flags&unix.O_CREAT != 0 {
		how.Mode = 0o666 // less the umask of this process, which all commands share
	}
	for {
		if r.Path == os.DevNull {
			fd, err = unix.Open(r.Path, int(how.Flags)&^unix.O_CREAT, 0)
		} else {
			fd, err = unix.Openat2(dir, r.Path, &how)
		}
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// redirectBytes is the greatest number of bytes that appendRedirects appends.
func redirectBytes(list []Redirect) int {
	total := 4
	for i := range list {
		total += len(list[i].Path) + 7
	}
	return total
}

func appendRedirects(b []byte, list []Redirect) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
	for i := range list {
		r := &list[i]
		b = append(b, byte(r.FD), byte(r.From), byte(r.Mode))
		b = appendString(b, r.Path)
	}
	return b
}

func (c *cursor) redirects() []Redirect {
	n := int(c.integer(4))
	if n > len(c.s)/7 { // each redirection takes at least so many bytes
		c.bad = true
		return nil
	}
	var list []Redirect
	for range n {
		r := Redirect{FD: int(c.integer(1)), From: int(c.integer(1)), Mode: RedirectMode(c.integer(1)), Path: c.string()}
		if r.FD > 2 || r.From > 2 {
			c.bad = true
		}
		list = append(list, r)
	}
	return list
}
