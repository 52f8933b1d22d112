package repo

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseShared(t *testing.T) {
	for _, c := range []struct {
		name, location string
		want           string // the database
		of             sharedLocation
		wrong          string // what the error names
	}{
		{name: "a table of two letters", location: "dynamodb://e3/forecast", wrong: `"e3" cannot be the name of a table`},
		{name: "a table and a repository", location: "dynamodb://team/forecast",
			want: "dynamodb://team", of: sharedLocation{repository: "forecast", objects: bucketLocation{Prefix: "team/forecast"}}},
		{name: "one endpoint", location: "dynamodb://team/a?endpoint=http://127.0.0.1:4566&bucket=b-1&region=eu-west-1",
			want: "dynamodb://team region=eu-west-1 endpoint=http://127.0.0.1:4566", of: sharedLocation{repository: "a",
				objects: bucketLocation{Bucket: "b-1", Prefix: "team/a", Region: "eu-west-1"}}},
		{name: "everything", location: "dynamodb://team/a.b?endpoint=http://d&s3-endpoint=https://s&bucket=bkt&prefix=/x/y/&s3-region=r2&region=r1&lease=2s",
			want: "dynamodb://team region=r1 endpoint=http://d", of: sharedLocation{repository: "a.b", lease: 2 * time.Second,
				objects: bucketLocation{Bucket: "bkt", Prefix: "x/y", Region: "r2", Endpoint: "https://s"}}},
		{name: "a database", location: "postgres://db.acme.example/e3/forecast",
			want: "postgres://db.acme.example/e3", of: sharedLocation{repository: "forecast", objects: bucketLocation{Prefix: "e3/forecast"}}},
		{name: "two hosts, a user and TLS", location: "postgres://ada@h1:5433,h2/e3/forecast?sslmode=verify-full&sslrootcert=/ca.pem&bucket=bkt&settle=1s",
			want: "postgres://h1:5433,h2/e3 sslmode=verify-full sslrootcert=/ca.pem", of: sharedLocation{user: "ada", repository: "forecast", settle: time.Second, objects: bucketLocation{Bucket: "bkt", Prefix: "e3/forecast"}}},
		{name: "a service", location: "postgres:///e3/forecast?service=team",
			want: "postgres:///e3 service=team", of: sharedLocation{repository: "forecast", objects: bucketLocation{Prefix: "e3/forecast"}}},
		{name: "objects in a folder", location: "postgres://h/e3/forecast?objects=/mnt/team/objects&prefix=x",
			want: "postgres://h/e3", of: sharedLocation{repository: "forecast", objects: bucketLocation{Folder: "/mnt/team/objects", Prefix: "x"}}},
		{name: "a folder by a relative path", location: "postgres://h/e3/forecast?objects=team/objects", wrong: "no absolute path"},
		{name: "a folder with a detour", location: "postgres://h/e3/forecast?objects=/mnt/../etc", wrong: "no absolute path"},
		{name: "a folder and a bucket", location: "postgres://h/e3/forecast?objects=/mnt/team&bucket=b-1", wrong: "in a folder or in a bucket"},
		{name: "a folder beside DynamoDB", location: "dynamodb://team/a?objects=/mnt/team", wrong: `"objects"`},
		{name: "a password of PostgreSQL", location: "postgres://ada:secret@h/e3/forecast", wrong: "~/.pgpass"},
		{name: "a database without a repository", location: "postgres://h/e3", wrong: "<database>/<repository>"},
		{name: "a host that is none", location: "postgres://h%20x/e3/forecast", wrong: "h%20x"},
		{name: "one slash too few", location: "postgres:/h/e3/forecast", wrong: "postgres://h/e3/forecast"},
		{name: "another scheme", location: "s3://team/a", wrong: "dynamodb://"},
		{name: "no repository", location: "dynamodb://team", wrong: "dynamodb://team/<repository>"},
		{name: "two repositories", location: "dynamodb://team/a/b", wrong: "<repository>"},
		{name: "a repository of dots", location: "dynamodb://team/..", wrong: "<repository>"},
		{name: "an unknown parameter", location: "dynamodb://team/a?bukcet=b", wrong: `"bukcet"`},
		{name: "a parameter twice", location: "dynamodb://team/a?bucket=b-1&bucket=b-2", wrong: "bucket is given twice"},
		{name: "a password", location: "dynamodb://u:p@team/a", wrong: "dynamodb://…"},
		{name: "a fragment", location: "dynamodb://team/a#b", wrong: "dynamodb://…"},
		{name: "a lease of nothing", location: "dynamodb://team/a?lease=0s", wrong: "lease=0s"},
		{name: "a lease for ever", location: "dynamodb://team/a?lease=1000h", wrong: "lease=1000h"},
		{name: "no time", location: "dynamodb://team/a?lease=long", wrong: "lease=long"},
		{name: "an endpoint that is a file", location: "dynamodb://team/a?endpoint=file:///etc/passwd", wrong: "endpoint"},
		{name: "a bucket that is none", location: "dynamodb://team/a?bucket=a%20b", wrong: `"a b"`},
		{name: "a prefix that climbs", location: "dynamodb://team/a?bucket=abc&prefix=a/../b", wrong: "dots"},
		{name: "bad escapes", location: "dynamodb://team/a?bucket=%zz", wrong: "%zz"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseShared(c.location)
			if c.wrong != "" {
				if !errors.Is(err, ErrLocation) || !strings.Contains(err.Error(), c.wrong) {
					t.Fatalf("got %v, error %v; want an ErrLocation that says %q", got, err, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			where := got.database.String()
			for _, p := range got.params() {
				if p[1] != "" {
					where += " " + p[0] + "=" + p[1]
				}
			}
			if where != c.want {
				t.Errorf("got the database %s, want %s", where, c.want)
			}
			rest := *got
			rest.database, rest.defaults = nil, bucketLocation{}
			if rest != c.of {
				t.Errorf("got %+v, want %+v", rest, c.of)
			}
		})
	}
}

func TestParseBucket(t *testing.T) {
	got, err := parseBucket("s3://acme-e3/team/forecast?endpoint=http://127.0.0.1:7070&region=eu")
	if want := (bucketLocation{Bucket: "acme-e3", Prefix: "team/forecast", Endpoint: "http://127.0.0.1:7070", Region: "eu"}); err != nil || *got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, location := range []string{"s3://", "s3:///a", "s3://a%20b", "s3://abc/..", "s3://abc/a//b", "s3://abc?lease=1s", "dynamodb://abc/x"} {
		if got, err := parseBucket(location); !errors.Is(err, ErrLocation) {
			t.Errorf("%s: got %+v, %v; want ErrLocation", location, got, err)
		}
	}
}

func FuzzParseLocation(f *testing.F) {
	f.Add("dynamodb://team/a?endpoint=http://d&bucket=bkt&lease=2s")
	f.Add("postgres://ada@h1:5433,h2/e3/forecast?sslmode=verify-full&bucket=bkt&settle=1s")
	f.Add("s3://acme-e3/team/forecast?endpoint=http://127.0.0.1:7070")
	f.Fuzz(func(t *testing.T, location string) {
		if l, err := parseShared(location); err == nil {
			again, err := parseShared(l.String())
			if err != nil || again.owner() != l.owner() || again.repository != l.repository {
				t.Errorf("%q is shown as %q, which is %+v, %v", location, l, again, err)
			}
		} else if !errors.Is(err, ErrLocation) {
			t.Errorf("%q: error %v is no ErrLocation", location, err)
		}
		if l, err := parseBucket(location); err == nil {
			if again, err := parseBucket(l.String()); err != nil || again.Bucket != l.Bucket || again.Prefix != l.Prefix {
				t.Errorf("%q is shown as %q, which is %+v, %v", location, l, again, err)
			}
		} else if !errors.Is(err, ErrLocation) {
			t.Errorf("%q: error %v is no ErrLocation", location, err)
		}
	})
}

func FuzzDecodeFormat(f *testing.F) {
	for _, text := range []string{
		`{"e3":"repository","version":1}`, `{"e3":"repository","version":1,"location":"dynamodb://team/a"}`,
		`{"e3":"repository","version":1,"id":"a","objects":{"bucket":"abc","prefix":"x/y"}}`,
	} {
		f.Add(append(withSum([]byte(text)), '\n'))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeFormat(data, "here")
		if err != nil {
			return
		}
		text, err := got.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeFormat(text, "here"); err != nil {
			t.Errorf("%s became %s, which is refused: %v", data, text, err)
		}
	})
}
