package repo

import (
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"e3/internal/testing/testserver"
)

// inPostgres is the location of a repository in a new database.
func inPostgres(t *testing.T, name, s3, bucket string) (location string, rest url.Values) {
	t.Helper()
	u, err := url.Parse(testserver.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Path += "/" + name
	return u.String(), url.Values{"sslmode": {"disable"}, "s3-region": {testserver.Region}, "s3-endpoint": {s3}, "bucket": {bucket}}
}

// TestPostgres: a database holds several repositories, each of which is made once; a link needs no parameters of S3.
func TestPostgres(t *testing.T) {
	credentials(t)
	t.Setenv(CacheDirVariable, t.TempDir())
	t.Setenv(StateDirVariable, t.TempDir())
	s3, ctx := testserver.GoFakeS3(t), t.Context()
	location, query := inPostgres(t, "a", s3, "one")
	location, _, _ = strings.Cut(location, "?")
	reach := location + "?sslmode=disable"

	_, err := Open(ctx, reach, Options{Getenv: os.Getenv})
	if !errors.Is(err, ErrNoRepository) || !strings.Contains(err.Error(), "schema e3") || !strings.Contains(err.Error(), "e3 init") {
		t.Errorf("open before it is made: got error %v, want an ErrNoRepository that names the schema and e3 init", err)
	}
	made, err := Init(ctx, location+"?"+query.Encode(), InitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(made.Extras(), "bucket one") || made.Schema == "" {
		t.Errorf("init made %q, want a schema and the bucket", made.Extras())
	}
	if _, err := Init(ctx, location+"?"+query.Encode(), InitOptions{}); !errors.Is(err, ErrExists) {
		t.Errorf("init again: got error %v, want ErrExists", err)
	}
	other := strings.Replace(location, "/a", "/b", 1)
	if made, err := Init(ctx, other+"?"+query.Encode(), InitOptions{}); err != nil || made.Extras() != "" {
		t.Errorf("init of another: made %+v, %v, want nothing beside it", made, err)
	}
	r, err := Open(ctx, reach, Options{Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.OwnsObjects(ctx); err != nil {
		t.Errorf("its objects: %v", err)
	}
	if _, err := r.Objects.PutBytes(ctx, []byte("content")); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := Open(ctx, strings.Replace(reach, "/a", "/c", 1), Options{Getenv: os.Getenv}); !errors.Is(err, ErrNoRepository) {
		t.Errorf("open one that is not there: got error %v, want ErrNoRepository", err)
	}
	if _, err := Open(ctx, strings.Replace(reach, "/e3-", "/no-", 1), Options{Getenv: os.Getenv}); err == nil || !strings.Contains(err.Error(), "createdb no-") {
		t.Errorf("open in no database: got error %v, want one that says how to make it", err)
	}
}
