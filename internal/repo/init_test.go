package repo

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/internal/testing/testserver"
)

// credentials are those of the test servers.
func credentials(t *testing.T) {
	t.Helper()
	for _, pair := range testserver.Env() {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

func shared(name, dynamo, s3, bucket string) string {
	query := url.Values{"region": {"us-east-1"}, "endpoint": {dynamo}, "s3-endpoint": {s3}, "bucket": {bucket}}
	return "dynamodb://team/" + name + "?" + query.Encode()
}

// Two repositories of one name, in tables of two servers, must not share a place: one's gc would remove the other's objects.
func TestInitElsewhere(t *testing.T) {
	credentials(t)
	here, there, s3, ctx := testserver.Minidyn(t), testserver.Minidyn(t), testserver.GoFakeS3(t), t.Context()
	if _, err := Init(ctx, shared("a", here, s3, "one"), InitOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := Init(ctx, shared("a", there, s3, "one"), InitOptions{})
	if !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), here) {
		t.Errorf("the same place for a repository on another server: got error %v, want an ErrExists that names %s", err, here)
	}
}

// An init says which table and which bucket it has made, also where it fails after that.
func TestInitMade(t *testing.T) {
	credentials(t)
	here, there, s3, ctx := testserver.Minidyn(t), testserver.Minidyn(t), testserver.GoFakeS3(t), t.Context()
	for _, c := range []struct {
		location, made string
		fails          bool
	}{
		{shared("a", here, s3, "one"), "table team, bucket one", false},
		{shared("b", here, s3, "one"), "", false},
		{shared("c", here, s3, "two"), "bucket two", false},
		{shared("a", there, s3, "one"), "table team", true}, // the place is taken
		{shared("a", there, s3, "one"), "", true},
	} {
		made, err := Init(ctx, c.location, InitOptions{})
		switch {
		case !c.fails && err != nil:
			t.Fatal(err)
		case !c.fails && made.Extras() != c.made:
			t.Errorf("%s: made %q, want %q", c.location, made.Extras(), c.made)
		case c.fails && (!errors.Is(err, ErrExists) || strings.Contains(err.Error(), "; made by then, and left there: "+c.made) != (c.made != "")):
			t.Errorf("%s: got error %v, want an ErrExists that says %q was made", c.location, err, c.made)
		}
	}

	t.Chdir(t.TempDir())
	objects := "s3://three/place?region=us-east-1&endpoint=" + s3
	if made, err := Init(ctx, "first", InitOptions{Objects: objects}); err != nil || made.Extras() != "bucket three" {
		t.Errorf("made %+v, %v, want the bucket three", made, err)
	}
	if here, err := filepath.Abs("first"); err != nil {
		t.Error(err)
	} else if _, err := Init(ctx, "second", InitOptions{Objects: objects}); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), ":"+here+`"`) {
		t.Errorf("got error %v, want an ErrExists that names %s", err, here)
	}
}

func TestInitAgain(t *testing.T) {
	credentials(t)
	dynamo, s3, ctx := testserver.Minidyn(t), testserver.GoFakeS3(t), t.Context()
	if _, err := Init(ctx, shared("a", dynamo, s3, "one"), InitOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Init(ctx, shared("a", dynamo, s3, "two"), InitOptions{}); !errors.Is(err, ErrExists) {
		t.Errorf("again, with another bucket: got error %v, want ErrExists", err)
	}
	_, err := Open(ctx, shared("b", dynamo, s3, "two"), Options{Getenv: os.Getenv})
	if want := "e3 init 'dynamodb://team/b?region=us-east-1&endpoint=" + dynamo + "&s3-endpoint=" + s3 + "&bucket=two'"; !errors.Is(err, ErrNoRepository) || !strings.Contains(err.Error(), want) {
		t.Errorf("open one that is not there: got error %v, want an ErrNoRepository that says %s", err, want)
	}
}

// A table that is for something else is told apart from one without the repository, by its keys. Nothing is made beside it.
func TestOtherTable(t *testing.T) {
	credentials(t)
	dynamo, s3, ctx, name := testserver.Minidyn(t), testserver.GoFakeS3(t), t.Context(), "other"
	id := "id"
	if _, err := client(dynamo).CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{{AttributeName: &id, KeyType: types.KeyTypeHash}},
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &id, AttributeType: types.ScalarAttributeTypeS}},
	}); err != nil {
		t.Fatal(err)
	}
	location := strings.Replace(shared("a", dynamo, s3, "one"), "//team/", "//other/", 1)
	_, opened := Open(ctx, location, Options{Getenv: os.Getenv})
	_, made := Init(ctx, location, InitOptions{})
	for _, err := range []error{opened, made} {
		if !errors.Is(err, ErrLocation) || !strings.Contains(err.Error(), `table other is for something else: its keys are ["HASH id `) || strings.Contains(err.Error(), "left there") {
			t.Errorf("got error %v, want an ErrLocation that names the table's keys", err)
		}
	}
}

// Of many that make a folder's repository at one place, one does.
func TestInitTogether(t *testing.T) {
	credentials(t)
	location, dir := "s3://one/place?region=us-east-1&endpoint="+testserver.GoFakeS3(t), t.TempDir()
	errs := make([]error, 8)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			_, errs[i] = Init(t.Context(), filepath.Join(dir, string(rune('a'+i))), InitOptions{Objects: location})
		})
	}
	all.Wait()
	made := 0
	for _, err := range errs {
		switch {
		case err == nil:
			made++
		case !errors.Is(err, ErrExists):
			t.Errorf("got error %v, want ErrExists", err)
		}
	}
	if made != 1 {
		t.Errorf("got %d repositories at one place, want 1", made)
	}
}
