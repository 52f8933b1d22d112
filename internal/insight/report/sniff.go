package report

import (
	"bytes"
	"unicode/utf8"

	"e3/internal/format/pattern"
)

// signatures are the first bytes of image formats that every browser shows.
var signatures = []struct{ begin, format string }{
	{"\x89PNG\r\n\x1a\n", "image/png"}, {"\xff\xd8\xff", "image/jpeg"}, {"GIF87a", "image/gif"}, {"GIF89a", "image/gif"},
}

// Sniff returns the type of data by its content, whatever the file's name is: image/…, text/html, text/plain, or "".
func Sniff(data []byte) string {
	for _, s := range signatures {
		if bytes.HasPrefix(data, []byte(s.begin)) {
			return s.format
		}
	}
	if len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP" {
		return "image/webp"
	}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return ""
	}
	head := bytes.ToLower(bytes.TrimLeft(bytes.TrimPrefix(data[:min(len(data), 2048)], []byte("\ufeff")), " \t\r\n"))
	if len(head) == 0 || head[0] != '<' {
		return "text/plain"
	}
	svg, html := bytes.Index(head, []byte("<svg")), bytes.Index(head, []byte("<html"))
	switch {
	case bytes.HasPrefix(head, []byte("<!doctype html")), html >= 0 && (svg < 0 || html < svg):
		return "text/html"
	case svg >= 0 && (svg == 0 || bytes.HasPrefix(head, []byte("<?xml")) || bytes.HasPrefix(head, []byte("<!"))):
		return "image/svg+xml"
	}
	for _, tag := range []string{"<head", "<body", "<h1", "<h2", "<p", "<div", "<table", "<title", "<style", "<meta", "<section", "<article"} {
		if bytes.HasPrefix(head, []byte(tag)) {
			return "text/html"
		}
	}
	return "text/plain"
}

// greeters are elements for which some browsers resolve or contact another host before they check the policy.
var greeters = pattern.Of(`(?i)<(/?)(link|meta|base|i?frame|frameset|object|embed|portal)\b`)

// Harmless disables the greeters of a document; the policy would block their content anyway. It keeps scripts (which
// the frame does not run), styles and pictures.
func Harmless(html string) string { return greeters().ReplaceAllString(html, "<${1}x-$2") }
