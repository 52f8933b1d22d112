package notation

import "strings"

// S3Object reads the URL of an object in S3: s3://bucket/key, or s3://bucket/key?versionId=v for one version of it. The
// key is written as it is, without escapes. ok is false for any other text, and for a folder.
func S3Object(url string) (bucket, key, version string, ok bool) {
	rest, ok := strings.CutPrefix(url, "s3://")
	bucket, key, _ = strings.Cut(rest, "/")
	versioned := false
	if at := strings.LastIndex(key, "?versionId="); at >= 0 {
		key, version, versioned = key[:at], key[at+len("?versionId="):], true
	}
	ok = ok && bucket != "" && key != "" && !strings.HasSuffix(key, "/") && versioned == (version != "")
	return bucket, key, version, ok
}
