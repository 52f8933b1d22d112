package repo

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// found is what a check finds at a location: how many cases there were of each kind, and what is not met.
func found(t *testing.T, location string, o InitOptions) (all map[string]int, unfit, lacks []string) {
	t.Helper()
	all = map[string]int{}
	err := Check(t.Context(), location, o, func(c Checked) {
		all[c.Of]++
		switch {
		case c.Err == nil:
		case c.Without == "":
			t.Logf("%s: %s: %v", c.Of, c.Name, c.Err)
			unfit = append(unfit, c.Name)
		default:
			lacks = append(lacks, c.Name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, unfit, lacks
}

// lacking is what gofakes3 lacks.
var lacking = []string{"bytes that differ from their SHA-256 are refused", "an upload in parts creates a name only once"}

// TestCheck checks places where a repository can be; nothing stays there.
func TestCheck(t *testing.T) {
	suite.Thorough(t)
	credentials(t)
	t.Setenv(CacheDirVariable, t.TempDir())
	dir, s3 := t.TempDir(), testserver.GoFakeS3(t)
	objects := url.Values{"s3-region": {testserver.Region}, "s3-endpoint": {s3}, "bucket": {"one"}}
	inDynamo := "dynamodb://acme/fore?endpoint=" + url.QueryEscape(testserver.Minidyn(t)) + "&region=us-east-1&" + objects.Encode()
	for _, tt := range []struct {
		name     string
		location func(t *testing.T) string
		o        InitOptions
		lacks    []string
	}{
		{"folder", func(*testing.T) string { return dir + "/project/.e3" }, InitOptions{}, nil},
		{"folder, objects in S3", func(*testing.T) string { return dir }, InitOptions{Objects: "s3://two/below?region=us-east-1&endpoint=" + url.QueryEscape(s3)}, lacking},
		{"DynamoDB", func(*testing.T) string { return inDynamo }, InitOptions{}, lacking},
		{"PostgreSQL", func(t *testing.T) string {
			location, query := inPostgres(t, "a", s3, "three")
			location, _, _ = strings.Cut(location, "?")
			return location + "?" + query.Encode()
		}, InitOptions{}, lacking},
		{"PostgreSQL, objects in a folder", func(t *testing.T) string {
			u, err := url.Parse(testserver.Postgres(t))
			if err != nil {
				t.Fatal(err)
			}
			u.Path += "/a"
			u.RawQuery += "&objects=" + url.QueryEscape(dir)
			return u.String()
		}, InitOptions{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all, unfit, lacks := found(t, tt.location(t), tt.o)
			if len(unfit) > 0 || !slices.Equal(lacks, tt.lacks) {
				t.Errorf("unfit for %q, and it lacks %q, want nothing, and %q", unfit, lacks, tt.lacks)
			}
			for _, kind := range []string{"records", "locks", "objects"} {
				if all[kind] < 10 {
					t.Errorf("%d cases of %s, want 10 at least", all[kind], kind)
				}
			}
		})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the folder has %v, %v, want nothing", left, err)
	}
	for _, bucket := range []string{"one", "two", "three"} {
		b, err := (&Repo{}).bucket(t.Context(), &bucketLocation{Bucket: bucket, Region: testserver.Region, Endpoint: s3}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for blob, err := range b.ListBlobs(t.Context(), "") {
			t.Errorf("bucket %s has %v, %v, want nothing", bucket, blob, err)
		}
	}
}

// TestCheckFindsFaults: servers that ignore conditions are not fit.
func TestCheckFindsFaults(t *testing.T) {
	suite.Thorough(t)
	credentials(t)
	t.Setenv(CacheDirVariable, t.TempDir())
	unconditional := func(target string, change func(*http.Request)) string {
		to, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(&httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			change(r.Out)
		}})
		t.Cleanup(s.Close)
		return s.URL
	}
	withoutConditions := func(r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		var body map[string]any
		if json.Unmarshal(data, &body) == nil && body["ConditionExpression"] != nil && body["UpdateExpression"] == nil {
			for _, name := range []string{"ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues"} {
				delete(body, name)
			}
			data, _ = json.Marshal(body)
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	}
	overwriting := func(r *http.Request) { r.Header.Del("If-None-Match") }
	dynamodb, s3 := testserver.Minidyn(t), testserver.GoFakeS3(t)
	for _, tt := range []struct{ name, dynamodb, s3, want string }{
		{"DynamoDB", unconditional(dynamodb, withoutConditions), s3, "one creator of many"},
		{"S3", dynamodb, unconditional(s3, overwriting), "a name that is taken is not overwritten"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			query := url.Values{"endpoint": {tt.dynamodb}, "region": {testserver.Region}, "s3-endpoint": {tt.s3}, "bucket": {"one"}}
			if _, unfit, _ := found(t, "dynamodb://acme/fore?"+query.Encode(), InitOptions{}); !slices.Contains(unfit, tt.want) {
				t.Errorf("unfit for %q, want %q among them", unfit, tt.want)
			}
		})
	}
}
