package tools

import (
	"path/filepath"
	"slices"
	"strings"
)

// valued are the options of env(1) whose value may be the next word.
var valued = []string{"-u", "--unset", "-C", "--chdir", "-a", "--argv0", "-P"}

// ofEnv is the program that "env" starts, "" for another interpreter. Linux passes the words after the interpreter as
// one argument, which env -S splits. Without -S a second word is part of a program's name, and the script does not start.
func ofEnv(words []string) string {
	if filepath.Base(words[0]) != "env" {
		return ""
	}
	words = words[1:]
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case slices.Contains(valued, word):
			i++
		case word == "--split-string" || word == "--":
		case strings.HasPrefix(word, "--split-string="):
			words = append([]string{word[len("--split-string="):]}, words[i+1:]...)
			i = -1
		case strings.HasPrefix(word, "--"):
		case len(word) > 1 && word[0] == '-':
			// -S may follow other letters, and the text to split may follow it at once, as in -vSpython3.
			if _, text, split := strings.Cut(word, "S"); split && text != "" {
				words = append([]string{text}, words[i+1:]...)
				i = -1
			}
		case word == "-" || strings.Contains(word, "="):
		default:
			return strings.Trim(word, `"'`)
		}
	}
	return ""
}
