package notation

import (
	"iter"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Nearest returns the candidate that a misspelt word probably means, or "": the first candidate with the smallest edit
// distance, if this distance is at most a third of the word's length. The comparison ignores case. A candidate equal
// to word is no answer, but one with other numerals of the same numbers is the nearest.
func Nearest(word string, candidates iter.Seq[string]) string {
	const longest = 128 // for longer words a suggestion does not help, and takes quadratic time
	if word == "" || len(word) > longest {
		return ""
	}
	lower := alike(word)
	best, bestDistance := "", max(1, len(word)/3)+1
	for c := range candidates {
		if c == word || max(len(c)-len(word), len(word)-len(c)) > longest {
			continue
		}
		name := alike(c)
		if max(len(name)-len(lower), len(lower)-len(name)) >= bestDistance {
			continue
		}
		if d := distance(lower, name); d < bestDistance && d < max(len(c), len(word)) {
			best, bestDistance = c, d
		}
	}
	return best
}

var numerals = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\b\d+(?:\.\d+)?(?:e[-+]?\d+)?\b`) })

// alike is a name in small letters, with one numeral for each number.
func alike(name string) string {
	return numerals().ReplaceAllStringFunc(strings.ToLower(name), func(numeral string) string {
		if v, err := strconv.ParseFloat(numeral, 64); err == nil {
			return strconv.FormatFloat(v, 'g', -1, 64)
		}
		return numeral
	})
}

// distance is the optimal string alignment distance in bytes: insertions, deletions, substitutions and
// swaps of neighbours.
func distance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
