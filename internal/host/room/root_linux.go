//go:build amd64 || arm64

package room

import (
	"os"
	"strconv"
)

// RootFiles are the files, with their content, that every Room.Root has.
func RootFiles() map[string]string {
	return map[string]string{
		"etc/hosts":       loopbackHosts,
		"etc/hostname":    hostname + "\n",
		"etc/resolv.conf": "",
	}
}

// Accounts are the lines of this user in files of a Room.Root, which may have others.
func Accounts() map[string]string {
	s := thisSystem()
	return map[string]string{"etc/passwd": s.passwdLine(), "etc/group": s.groupLine()}
}

func (s *system) passwdLine() string {
	return s.user + ":x:" + strconv.Itoa(os.Geteuid()) + ":" + strconv.Itoa(os.Getegid()) + ":" + s.user + ":" + Home + ":/bin/sh"
}

func (s *system) groupLine() string { return s.group + ":x:" + strconv.Itoa(os.Getegid()) + ":" }
