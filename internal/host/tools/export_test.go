package tools

// Opens is the number of files that a Finder has opened.
func Opens(f *Finder) int { return f.memory.opens }
