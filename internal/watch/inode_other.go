//go:build !unix

package watch

import "io/fs"

func number(fs.FileInfo) any { return nil }
