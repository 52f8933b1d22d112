package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// An account is what a netrc file has for a machine.
type account struct{ login, password, file string }

// netrc is the path of the user's netrc file; "" if the user has no home.
func (c *Client) netrc() string {
	if path := c.Getenv("NETRC"); path != "" {
		return path
	}
	home := c.Getenv("HOME")
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".netrc")
}

// accountAt finds the user's account at a machine. An entry "default" is for no machine: a package file may name any.
func (c *Client) accountAt(machine string) (*account, error) {
	path := c.netrc()
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("passwords: %w", err)
	}
	login, password, ok := findAccount(string(text), machine)
	if !ok {
		return nil, nil
	}
	return &account{login, password, path}, nil
}

// findAccount reads a netrc file: words, of which machine, login, password and account have one each behind them.
// macdef begins a macro, which ends with an empty line; a word that begins with # begins a comment.
func findAccount(text, machine string) (login, password string, found bool) {
	inMacro, key := false, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if inMacro {
			inMacro = line != ""
			continue
		}
		for word := range strings.FieldsSeq(line) {
			switch {
			case key == "machine" && found: // the first entry counts
				return login, password, true
			case key == "machine":
				found, key = strings.EqualFold(word, machine), ""
			case key == "login" && found:
				login, key = word, ""
			case key == "password" && found:
				password, key = word, ""
			case key != "":
				key = ""
			case strings.HasPrefix(word, "#"):
				goto next
			case word == "default" && found:
				return login, password, true
			case word == "macdef":
				inMacro = true
				goto next
			case word == "machine", word == "login", word == "password", word == "account":
				key = word
			}
		}
	next:
	}
	return login, password, found
}
