package manifest

import (
	"net/url"
	"path"
	"strings"
	"unicode"

	"e3/internal/format/notation"
	"e3/internal/format/pattern"
)

// A file on a server is an input like a file of the project: its content is what counts. Its URL is no part of a key.

// urlKeys are the keys of an input from a server.
type urlKeys struct{ url, sum, at *node }

// Location says where an input comes from: its URL, or its path or pattern in the project.
func (in *Input) Location() string {
	if in.Kind == URLInput {
		return in.URL
	}
	return in.Path
}

const longestURL = 2048

var (
	isScheme = pattern.Of(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	isSHA256 = pattern.Of(`^[0-9a-f]{64}$`)
)

// readURL reads the keys of an input from a server.
func (d *decoder) readURL(where string, in *Input, k *urlKeys) {
	if k.url == nil {
		for _, other := range []struct {
			key string
			n   *node
		}{{"sha256", k.sum}, {"at", k.at}} {
			if other.n != nil {
				d.report.add(other.n.pos, "", "%s: %s belongs to a url", where, other.key)
			}
		}
		return
	}
	if k.url.kind != stringNode {
		d.wrongType(where+": url", k.url, "a string such as https://host/data.csv")
		return
	}
	name, fault, hint := urlName(k.url.text)
	if fault != "" {
		d.report.add(k.url.pos, hint, "%s: url %q: %s", where, truncate(k.url.text), fault)
	}
	in.URL, in.Path = k.url.text, name
	if k.sum != nil {
		in.Sum = strings.TrimPrefix(strings.ToLower(k.sum.text), "sha256:")
		if k.sum.kind != stringNode || !isSHA256().MatchString(in.Sum) {
			d.report.add(k.sum.pos, "sha256sum prints it; e3 lint proposes that of the content that was fetched",
				"%s: sha256: want 64 hex digits in quotes", where)
		}
	}
	switch {
	case k.at != nil:
		in.Path = d.projectPath(where+": at", k.at, FileInput)
	case fault == "" && name == "":
		d.report.add(k.url.pos, "say where commands find it: at: data.csv", "%s: url %q: its end is no name of a file", where, truncate(k.url.text))
	}
}

// URLFile returns the name at the end of a URL that an input may have, "" if it tells none.
func URLFile(url string) (name string, ok bool) {
	name, fault, _ := urlName(url)
	return name, fault == ""
}

// urlName returns the name of the file that a URL means, "" if it tells none, or what is wrong with the URL.
func urlName(text string) (name, fault, hint string) {
	if bucket, key, _, ok := notation.S3Object(text); ok {
		if len(text) > longestURL || strings.ContainsFunc(text, unicode.IsControl) || strings.ContainsAny(bucket, " ?@") {
			return "", "it is no URL of an object", "s3://bucket/key"
		}
		return fileName(key), "", ""
	}
	if strings.HasPrefix(text, "s3://") {
		return "", "it names no single object", "s3://bucket/key, or s3://bucket/key?versionId=… for one version; each object is an input of its own"
	}
	u, err := url.Parse(text)
	switch {
	case err != nil, len(text) > longestURL, strings.ContainsFunc(text, unicode.IsSpace), !isScheme().MatchString(text):
		return "", "it is no URL", "a URL is like https://host/data.csv or s3://bucket/key"
	case u.Scheme != "http" && u.Scheme != "https":
		return "", "e3 fetches by https, http and s3", "let a task fetch it, or copy the file into the project"
	case u.User != nil:
		return "", "it holds a name or a password, which all readers of this file would see",
			"leave it out here, and write into ~/.netrc: machine " + u.Hostname() + " login NAME password SECRET"
	case u.Hostname() == "":
		return "", "it names no host", ""
	case u.Fragment != "" || strings.HasSuffix(text, "#"):
		return "", "what follows # is never sent", "leave it out"
	}
	for key := range u.Query() {
		switch strings.ToLower(key) {
		case "x-amz-signature", "x-goog-signature", "signature", "sig":
			return "", "it is signed: it holds a secret, and is good for a time only", "use a URL that lasts, such as s3://bucket/key"
		}
	}
	return fileName(u.Path), "", ""
}

// fileName is the last part of a path; "" if that is no name of a file.
func fileName(p string) string {
	name := path.Base(p)
	if clean, fault, _ := cleanPath(name); strings.HasSuffix(p, "/") || fault != "" || clean != name || name == "." ||
		strings.ContainsFunc(name, unicode.IsControl) {
		return ""
	}
	return name
}

// urlHint says what to write for a URL in the place of a path.
func urlHint(s string) string {
	if strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "s3://") {
		return "one file of a server: {url: " + truncate(s) + "}"
	}
	return "let a task fetch it, or copy the data into the project"
}
