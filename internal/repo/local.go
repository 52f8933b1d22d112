package repo

import "e3/workspace"

// LocalOf is the repository's store of data that never leaves this machine.
func LocalOf(r *Repo) workspace.Local { return r.stores.local }
