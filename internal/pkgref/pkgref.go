// Package pkgref reads and compares the names and versions of packages, as they are written on a command line, in records and in the
// register. Names of the reference may have a scope: @acme/err.
package pkgref

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// Split takes name@version apart. Without a version, it is "". The @ of a scope is no separator.
func Split(text string) (name, version string) {
	if i := strings.LastIndexByte(text, '@'); i > 0 {
		return text[:i], text[i+1:]
	}
	return text, ""
}

// Join is name@version.
func Join(name, version string) string { return name + "@" + version }

// Key is what the register calls a package: name/version.
func Key(name, version string) string { return name + "/" + version }

// SplitKey takes a key of the register apart.
func SplitKey(key string) (name, version string, ok bool) {
	i := strings.LastIndexByte(key, '/')
	if i < 0 {
		return key, "", false
	}
	return key[:i], key[i+1:], true
}

// OfKey is name@version of a key of the register, for people.
func OfKey(key string) string {
	name, version, ok := SplitKey(key)
	if !ok {
		return key
	}
	return Join(name, version)
}

// Mark takes the mark of an export off a version: "+" of ours or "-" of the reference, and 8 hex digits. Other versions
// may look so; whether it is one the package tells.
func Mark(version string) (base, mark string) {
	at := len(version) - len("+01234567")
	if at < 0 || version[at] != '+' && version[at] != '-' || strings.Trim(version[at+1:], "0123456789abcdef") != "" {
		return version, ""
	}
	return version[:at], version[at:]
}

// Greatest returns the greatest of these versions by Semantic Versioning 2.0.0, in which build metadata counts for nothing. Releases come
// before pre-releases: without any release it is the greatest pre-release. 1 and 1.2 stand for 1.0.0 and 1.2.0. Where several are the
// greatest, or one is no version, an error says why. A single version is the greatest, whatever it is.
func Greatest(versions []string) (string, error) {
	if len(versions) == 1 {
		return versions[0], nil
	}
	var releases, pre []string
	for _, v := range versions {
		switch {
		case !semver.IsValid("v" + v):
			return "", fmt.Errorf("%q is no version of Semantic Versioning, so it cannot be compared", v)
		case semver.Prerelease("v"+v) == "":
			releases = append(releases, v)
		default:
			pre = append(pre, v)
		}
	}
	if len(releases) == 0 {
		releases = pre
	}
	if len(releases) == 0 {
		return "", fmt.Errorf("there are no versions")
	}
	best := slices.MaxFunc(releases, compare)
	var same []string
	for _, v := range releases {
		if compare(v, best) == 0 {
			same = append(same, v)
		}
	}
	if len(same) > 1 {
		return "", fmt.Errorf("%s are the same version", strings.Join(same, " and "))
	}
	return best, nil
}

func compare(a, b string) int { return semver.Compare("v"+a, "v"+b) }
