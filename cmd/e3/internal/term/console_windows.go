package term

import (
	"os"

	"golang.org/x/sys/windows"
)

// sequences has a console understand control sequences and tells whether it does.
func sequences(f *os.File) bool {
	var mode uint32
	h := windows.Handle(f.Fd())
	if windows.GetConsoleMode(h, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
