package markup

import "strings"

// isAddress reports whether an attribute holds an address that a browser follows.
func isAddress(name string) bool {
	switch name {
	case "href", "src", "action", "formaction":
		return true
	}
	return false
}

// isHarmless reports whether an address runs nothing: it is a path, or has a scheme that only shows something. A source
// may also be a picture itself.
func isHarmless(name, address string) bool {
	scheme, rest, ok := strings.Cut(address, ":")
	if !ok || strings.ContainsAny(scheme, "/?#") {
		return true
	}
	switch strings.ToLower(scheme) {
	case "http", "https", "mailto":
		return true
	case "data":
		return name == "src" && strings.HasPrefix(rest, "image/")
	}
	return false
}
