//go:build !linux

package repo

// mountID is not known here: a loss of power shows in the boot id alone.
func mountID(string) string { return "" }

// sameMount reports whether a file can be renamed from one folder into the other, as far as file systems decide that.
func sameMount(a, b string) bool { return sameDevice(a, b) }
