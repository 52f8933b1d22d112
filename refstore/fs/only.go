package fs

import "e3/refstore"

// OnlyExecution reports whether an execution's folder is certainly the only one of its key: its folder's number of links
// says so in one system call, where a list takes five. false: list them.
func OnlyExecution(s *Store, key refstore.Key) bool {
	sl, err := s.files.slot(key)
	return err == nil && sl.shape == dirShape && !s.files.looks.network && s.files.subfolders(sl.dir) == 1
}
