package doc_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rights are the actions that requests to S3 need where they have another name.
var rights = map[string]string{
	"HeadBucket": "s3:ListBucket", "ListObjectsV2": "s3:ListBucket", "ListMultipartUploads": "s3:ListBucketMultipartUploads",
	"HeadObject": "s3:GetObject", "DeleteObjects": "s3:DeleteObject",
	"CreateMultipartUpload": "s3:PutObject", "UploadPart": "s3:PutObject", "CompleteMultipartUpload": "s3:PutObject",
}

// TestPolicy compares the policy in dynamodb.yaml, and what an error says that credentials need, with the requests that the program makes.
func TestPolicy(t *testing.T) {
	requested := func(service, pattern string) map[string]bool {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s: %v", pattern, err)
		}
		actions := map[string]bool{}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			for _, call := range regexp.MustCompile(`&`+service+`\.(\w+)Input\{`).FindAllStringSubmatch(read(t, f), -1) {
				action := service + ":" + call[1]
				if other, ok := rights[call[1]]; ok && service == "s3" {
					action = other
				}
				actions[action] = true
			}
		}
		return actions
	}
	named := func(text string) map[string]bool {
		actions := map[string]bool{}
		for _, action := range regexp.MustCompile(`\b(s3|dynamodb):[A-Z]\w+`).FindAllString(text, -1) {
			actions[action] = true
		}
		return actions
	}
	same := func(what string, got, want map[string]bool) {
		t.Helper()
		if !maps.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
	objects, records := requested("s3", "../objectstore/s3/*.go"), requested("dynamodb", "../refstore/dynamo/*.go")
	same("what an error says", named(read(t, "../objectstore/s3/errors.go")), objects)

	head, policy, found := strings.Cut(read(t, "dynamodb.yaml"), "AWSTemplateFormatVersion")
	if !found {
		t.Fatal("dynamodb.yaml is no template")
	}
	want := maps.Clone(objects)
	maps.Copy(want, records)
	making := map[string]bool{"s3:CreateBucket": true, "dynamodb:CreateTable": true, "dynamodb:DeleteTable": true}
	for action := range making {
		delete(want, action)
	}
	same("the policy", named(policy), want)
	same("what e3 init and e3 init --check need besides", named(head), making)
}
