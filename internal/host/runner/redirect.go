package runner

import "syscall"

// A Redirect makes a standard descriptor of a command refer to a file, or to the file of another descriptor at this
// point.
type Redirect struct {
	FD   int          // 0 to 2
	From int          // the other descriptor, if Path is empty
	Path string       // path of a regular file or a folder below Spec.Dir, on a way without links; or /dev/null
	Mode RedirectMode // errno of opening the file
}

// RedirectMode tells how a file is opened.
type RedirectMode byte

// The modes of redirections. A file that is opened for writing is made, with mode 0644, if it does not exist.
const (
	Read     RedirectMode = iota
	Truncate              // for writing, emptied
	Append                // for writing at its end
)

// validateRedirects refuses redirections that no system can carry out.
func (spec *Spec) validateRedirects() error {
	for _, r := range spec.Redirects {
		if !canRedirect() || r.FD < 0 || r.FD > 2 || r.From < 0 || r.From > 2 || r.Mode > Append {
			return &StartError{Op: OpSpec, Path: spec.Argv[0], Err: syscall.EINVAL, detail: "a redirection is not possible here"}
		}
	}
	return nil
}

// Redirects reports whether Specs may have Redirects on this system.
func (s *Supervisor) Redirects() bool { return canRedirect() }
