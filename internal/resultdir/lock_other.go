//go:build !unix

package resultdir

import "context"

// lock does nothing: this system cannot lock a folder.
func (f *Folder) lock(context.Context) (unlock func(), err error) { return func() {}, nil }
