package report

import (
	"bytes"
	"regexp"
	"sync"
	"unicode/utf8"
)

// signatures are how pictures begin that every browser shows.
var signatures = []struct{ begin, format string }{
	{"\x89PNG\r\n\x1a\n", "image/png"}, {"\xff\xd8\xff", "image/jpeg"}, {"GIF87a", "image/gif"}, {"GIF89a", "image/gif"},
}

// sniff tells what bytes are by themselves, whatever their file is called: image/…, text/html, text/plain, or "".
func sniff(data []byte) string {
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

// greeters are elements for which browsers were seen to look up or greet another host before they ask the policy whether they may.
var greeters = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)<(/?)(link|meta|base|i?frame|frameset|object|embed|portal)\b`)
})

// harmless takes them out of a document; nothing that they bring could be shown. Scripts, which the frame does not run, styles and
// pictures stay.
func harmless(html string) string { return greeters().ReplaceAllString(html, "<${1}x-$2") }
