package beneath

import "path/filepath"

// Path is the name of an entry in messages.
func (d *Dir) Path(rel string) string {
	if rel == "." {
		return d.name
	}
	return d.name + string(filepath.Separator) + rel
}
