package repo

import (
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"e3/internal/testing/testserver"
	"e3/refstore"
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
	if !errors.Is(err, ErrNoRepository) || !strings.Contains(err.Error(), "schema e3") || !strings.Contains(err.Error(), "e3 init 'postgres://postgres@") {
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

// TestPostgresRights applies doc/rights/postgres.sql: a reader writes nothing, a writer no settings, neither drops anything
// or sees another repository.
func TestPostgresRights(t *testing.T) {
	credentials(t)
	t.Setenv(CacheDirVariable, t.TempDir())
	t.Setenv(StateDirVariable, t.TempDir())
	s3, ctx := testserver.GoFakeS3(t), t.Context()
	name := "r" + strings.ReplaceAll(testserver.Name(), "-", "") // roles are the whole server's
	location, query := inPostgres(t, name, s3, "one")
	location, _, _ = strings.Cut(location, "?")
	other := strings.Replace(location, "/"+name, "/other", 1)
	for _, l := range []string{location, other} {
		if _, err := Init(ctx, l+"?"+query.Encode(), InitOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	address := strings.TrimSuffix(location, "/"+name) + "?sslmode=disable"
	text, err := os.ReadFile("../../doc/rights/postgres.sql")
	if err != nil {
		t.Fatal(err)
	}
	run := func(address, text string) error {
		c, err := pgx.Connect(ctx, address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(ctx)
		_, err = c.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	if err := run(address, strings.ReplaceAll(string(text), "REPOSITORY", name)); err != nil {
		t.Fatal(err)
	}
	execution := refstore.Record{Key: refstore.Key{Partition: "EXECUTION/task/inputs", Sort: "id"}, Value: []byte("v")}
	settings := refstore.Record{Key: refstore.Key{Partition: "SETTINGS", Sort: "a"}, Value: []byte("v")}
	for _, c := range []struct {
		role                             string
		creates, configures, deletes     bool
		lacksPut, lacksSettings, lacksIt string
	}{
		{"reader", false, false, false, "writer", "administrator", ""},
		{"writer", true, false, false, "", "administrator", "administrator"},
		{"administrator", true, true, true, "", "", ""},
	} {
		t.Run(c.role, func(t *testing.T) {
			user := name + "_" + c.role + "_user"
			if err := run(address, `CREATE USER "`+user+`" IN ROLE "`+name+"_"+c.role+`"`); err != nil {
				t.Fatal(err)
			}
			as := strings.Replace(location, "//postgres@", "//"+user+"@", 1) + "?sslmode=disable"
			r, err := Open(ctx, as, Options{Getenv: os.Getenv})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if err := r.OwnsObjects(ctx); err != nil {
				t.Errorf("owner of the objects: %v", err)
			}
			may := func(what string, err error, allowed bool, role string) {
				t.Helper()
				d, denied := Denied(err)
				if (err == nil) != allowed || !allowed && (!denied || d.Role != role) {
					t.Errorf("%s: got error %v (%+v), want allowed: %v, else the role %s", what, err, d, allowed, role)
				}
			}
			_, err = r.Records.SessionBegan(ctx)
			if c.creates != (err == nil) || !c.creates && !errors.Is(err, refstore.ErrReadOnly) {
				t.Errorf("session: got error %v, want ErrReadOnly unless it may write", err)
			}
			v, err := r.Records.Put(ctx, execution)
			may("put an execution", err, c.creates, c.lacksPut)
			if err == nil {
				may("delete it", r.Records.Delete(ctx, execution.Key, v), c.deletes, c.lacksIt)
				execution.Key.Sort += "x"
			}
			_, err = r.Records.Put(ctx, settings)
			may("put settings", err, c.configures, c.lacksSettings)
			err = run(strings.Replace(address, "//postgres@", "//"+user+"@", 1), "DROP TABLE e3.records")
			if err == nil {
				t.Error("may drop the table")
			}
			if _, err := Open(ctx, strings.Replace(as, "/"+name+"?", "/other?", 1), Options{Getenv: os.Getenv}); !errors.Is(err, ErrNoRepository) {
				t.Errorf("open another repository: got error %v, want ErrNoRepository", err)
			}
		})
	}
}
