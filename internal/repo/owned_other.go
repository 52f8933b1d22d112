//go:build !unix

package repo

// checkOwned does nothing: folders are as private here as the folder they are in.
func checkOwned(string) error { return nil }
