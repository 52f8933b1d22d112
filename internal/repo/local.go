package repo

import "e3/workspace"

// Local is the store of what never leaves this machine.
func (r *Repo) Local() workspace.Local { return r.stores.local }
