package fs

import "e3/refstore"

// OnlyExecution reports whether an execution is certainly the only one of its task and inputs. The link count of the
// folder of the inputs tells this in one system call, where a list takes five. After false, list them.
func OnlyExecution(s *Store, key refstore.Key) bool {
	sl, err := s.files.slot(key)
	return err == nil && sl.shape == dirShape && !s.files.looks.network && s.files.subfolders(sl.dir) == 1
}
