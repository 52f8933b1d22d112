//go:build !unix

package repo

// folderNumber does not know one: copies of folders are not recognized here.
func folderNumber(string) string { return "" }
