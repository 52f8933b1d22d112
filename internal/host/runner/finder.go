package runner

import (
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// foundFor is the time for which a Finder relies on the path of a program.
const foundFor = 100 * time.Millisecond

// A Finder is LookPath with a memory, for many commands in a row: LookPath asks the system once for each folder of the
// PATH. A program that appears in an earlier folder is found after foundFor at the latest. If a program is gone, or no
// longer executable, the Finder notices at once. It remembers nothing of a PATH with a relative folder, which each
// command resolves by its own working directory. The zero value is ready to use, by several goroutines.
type Finder struct {
	mu    sync.Mutex
	found map[where]place
}

// where identifies a search.
type where struct{ command, search string }

// place is the result of a search.
type place struct {
	path string
	at   time.Time
}

// maxFound bounds the number of results that a Finder remembers.
const maxFound = 256

// Look is LookPath with the Finder's memory.
func (f *Finder) Look(command, dir string, env []string) (string, error) {
	search, _ := getenv(env, "PATH")
	if filepath.Base(command) != command || search == "" || slices.ContainsFunc(filepath.SplitList(search), isRelative) {
		return LookPath(command, dir, env)
	}
	key := where{command, search}
	now := time.Now()
	f.mu.Lock()
	known, ok := f.found[key]
	f.mu.Unlock()
	if ok && now.Sub(known.at) < foundFor && executable(known.path) == nil {
		return known.path, nil
	}
	path, err := LookPath(command, dir, env)
	if err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.found) >= maxFound {
		clear(f.found)
	}
	if f.found == nil {
		f.found = map[where]place{}
	}
	f.found[key] = place{path, now}
	return path, nil
}

// isRelative tells whether an entry of the PATH depends on the working directory; an empty one is that directory.
func isRelative(entry string) bool { return !filepath.IsAbs(entry) }
