package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// GlobEnters says whether the folder at the clean relative path rel may hold, at any depth, a
// file that matches the pattern: one that it refuses need not be read.
func GlobEnters(pattern, rel string) bool {
	p := strings.Split(pattern, "/")
	at := globStart(p)
	for part := range strings.SplitSeq(rel, "/") {
		if part == repositoryDir {
			return false
		}
		if at = globStep(p, at, part); len(at) == 0 {
			return false
		}
	}
	return at[0] < len(p)
}

// SizeOf reads a number of bytes as the file has them: "2GiB", "512MB", "1048576".
func SizeOf(s string) (int64, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	n, ok := parseSize(s)
	if !ok {
		return 0, fmt.Errorf("%q is not a size like 2GiB or 512MB", s)
	}
	return n, nil
}

// DurationOf reads a length of time as the file has it, and weeks: "2w", "30d", "1h30m".
func DurationOf(s string) (time.Duration, error) {
	weeks := unit{"w", 7 * 24 * float64(time.Hour)}
	d, ok := parseTime(s, append([]unit{weeks}, durationUnits...))
	if !ok {
		return 0, fmt.Errorf("%q is not a length of time like 2w, 30d or 12h", s)
	}
	return d, nil
}

// Nearest returns the candidate that a misspelt word probably means, "" if none is near.
func Nearest(word string, candidates []string) string {
	return nearest(word, slices.Values(candidates))
}
