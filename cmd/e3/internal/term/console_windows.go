package term

import (
	"os"

	"golang.org/x/sys/windows"
)

// sequences makes a console interpret control sequences, and reports whether it can.
func sequences(f *os.File) bool {
	var mode uint32
	h := windows.Handle(f.Fd())
	if windows.GetConsoleMode(h, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(h, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
