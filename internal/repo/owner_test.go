package repo

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/dynamo"
)

// A table that was restored under another name says the same of itself as the first: what only that one names must not
// be collected.
func TestOwnsObjects(t *testing.T) {
	credentials(t)
	dynamo, s3, ctx := testserver.Minidyn(t), testserver.GoFakeS3(t), t.Context()
	open := func(name string) *Repo {
		r, err := Open(ctx, shared(name, dynamo, s3, "one"), Options{Getenv: func(name string) string {
			if name == CacheSizeVariable {
				return ""
			}
			return t.TempDir()
		}, Settle: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r
	}
	for _, name := range []string{"first", "copy"} {
		if _, err := Init(ctx, shared(name, dynamo, s3, "one"), InitOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	first, restored := open("first"), open("copy")
	if err := first.OwnsObjects(ctx); err != nil {
		t.Errorf("the first: %v", err)
	}
	theirs, err := first.Records.Get(ctx, formatKeys[0])
	if err != nil {
		t.Fatal(err)
	}
	ours, err := restored.Records.Get(ctx, formatKeys[0])
	if err != nil {
		t.Fatal(err)
	}
	theirs.Version = ours.Version
	if _, err := restored.Records.Put(ctx, theirs); err != nil {
		t.Fatal(err)
	}
	if err := open("copy").OwnsObjects(ctx); err == nil || !strings.Contains(err.Error(), `objects of "dynamodb://team/first" in the table `) {
		t.Errorf("the one that says the same: got error %v, want one that names the first", err)
	}
	if err := first.place.bucket().DeleteBlob(ctx, ownerBlob); err != nil {
		t.Fatal(err)
	}
	if err := first.OwnsObjects(ctx); err == nil || !strings.Contains(err.Error(), ownerBlob) {
		t.Errorf("without word of whose they are: got error %v, want one that names %s", err, ownerBlob)
	}
}

// restore copies a table under another name, and on another server, as a backup is restored.
func restore(t *testing.T, from, to *dynamodb.Client, table, as string) {
	t.Helper()
	items, err := from.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table})
	if err != nil {
		t.Fatal(err)
	}
	key := func(name string, role types.KeyType) types.KeySchemaElement {
		return types.KeySchemaElement{AttributeName: &name, KeyType: role}
	}
	attribute := func(name string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: types.ScalarAttributeTypeS}
	}
	_, err = to.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &as, BillingMode: types.BillingModePayPerRequest,
		KeySchema:            []types.KeySchemaElement{key("PK", types.KeyTypeHash), key("SK", types.KeyTypeRange)},
		AttributeDefinitions: []types.AttributeDefinition{attribute("PK"), attribute("SK")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items.Items {
		if _, err := to.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &as, Item: item}); err != nil {
			t.Fatal(err)
		}
	}
}

func client(endpoint string) *dynamodb.Client {
	return dynamodb.NewFromConfig(testserver.Config(), func(o *dynamodb.Options) { o.BaseEndpoint = &endpoint })
}

// The records of a restored table name the same objects as those of the original: a writer through it deletes none of
// them. It stores none beside them either, since the original's gc would remove those.
func TestRestoredTable(t *testing.T) {
	credentials(t)
	here, there, s3, ctx := testserver.Minidyn(t), testserver.Minidyn(t), testserver.GoFakeS3(t), t.Context()
	location := shared("a", here, s3, "one")
	if _, err := Init(ctx, location, InitOptions{}); err != nil {
		t.Fatal(err)
	}
	first := visit(t, location, Options{})
	key := refstore.Key{Partition: "WORKSPACE/w", Sort: "state"}
	try := func(r *Repo, text string, times int) error {
		t.Helper()
		rec, err := r.Records.Get(ctx, key)
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			t.Fatal(err)
		}
		_, err = r.Records.Put(ctx, refstore.Record{Key: key, Value: []byte(strings.Repeat(text, times)), Version: rec.Version})
		return err
	}
	put := func(r *Repo, text string) {
		t.Helper()
		if err := try(r, text, 100_000); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (n int) {
		t.Helper()
		for _, err := range first.place.bucket().ListBlobs(ctx, "records/") {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	put(first, "a")
	restore(t, client(here), client(here), "team", "restored")
	restore(t, client(here), client(there), "team", "team")
	for name, location := range map[string]string{
		"under another name": strings.Replace(location, "//team/", "//restored/", 1),
		"on another server":  shared("a", there, s3, "one"),
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var warned []error
			r := visit(t, location, Options{Warn: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				warned = append(warned, err)
			}})
			before := count()
			if err := try(r, "b", 100_000); err == nil || !strings.Contains(err.Error(), "nothing is written") || !strings.Contains(err.Error(), `objects of "dynamodb://team/a"`) {
				t.Errorf("put what goes to S3: got error %v, want one that says that nothing is written and whose they are", err)
			}
			for range 2 {
				if err := try(r, "c", 1); err != nil {
					t.Errorf("put what stays in the table: %v", err)
				}
			}
			if n := count(); n != before {
				t.Errorf("%d blobs, want the %d that there were", n, before)
			}
			if rec, err := first.Records.Get(ctx, key); err != nil || !strings.HasPrefix(string(rec.Value), "a") {
				t.Errorf("the original's record: got error %v, want it whole", err)
			}
			if len(warned) != 1 || !strings.Contains(warned[0].Error(), "dynamodb://team/a") {
				t.Errorf("warned of %v, want once of whose they are", warned)
			}
		})
	}
	before := count()
	put(first, "d")
	if n := count(); n != before {
		t.Errorf("%d blobs after the original has replaced its own, want %d as before", n, before)
	}
}

// A copy of the same names, elsewhere, says the same of itself as the first.
func TestOwnsObjectsElsewhere(t *testing.T) {
	credentials(t)
	here, there, s3, ctx := testserver.Minidyn(t), testserver.Minidyn(t), testserver.GoFakeS3(t), t.Context()
	location := shared("a", here, s3, "one")
	if _, err := Init(ctx, location, InitOptions{}); err != nil {
		t.Fatal(err)
	}
	restore(t, client(here), client(there), "team", "team")
	first, elsewhere := visit(t, location, Options{}), visit(t, shared("a", there, s3, "one"), Options{})
	if err := visit(t, shared("a", here+"/", s3, "one"), Options{}).OwnsObjects(ctx); err != nil {
		t.Errorf("the first: %v", err)
	}
	if err := elsewhere.OwnsObjects(ctx); err == nil || !strings.Contains(err.Error(), here) || !strings.Contains(err.Error(), there) {
		t.Errorf("the copy: got error %v, want one that names both servers", err)
	}
	changeOwner(t, first, func(o *owner) { o.Table = there })
	if err := elsewhere.OwnsObjects(ctx); err != nil {
		t.Errorf("the copy, when it was given to it: %v", err)
	}
	if err := first.OwnsObjects(ctx); err == nil {
		t.Error("the first, when it was given away: got no error")
	}
	changeOwner(t, first, func(o *owner) { o.Table = "" })
	for _, r := range []*Repo{first, elsewhere} {
		if err := r.OwnsObjects(ctx); err != nil {
			t.Errorf("where no table is named: %v", err)
		}
	}
}

// changeOwner changes the owner, as a user may do on purpose.
func changeOwner(t *testing.T, r *Repo, change func(*owner)) {
	t.Helper()
	o, err := readOwner(t.Context(), r.place.objects)
	if err != nil {
		t.Fatal(err)
	}
	change(&o)
	text, err := json.Marshal(o)
	if err == nil {
		err = r.place.objects.PutBlob(t.Context(), ownerBlob, text)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// On AWS there is no endpoint: a table is told by its ARN.
func TestTableName(t *testing.T) {
	const (
		arn, local = "arn:aws:dynamodb:eu-west-1:123456789012:table/team", "arn:aws:dynamodb:ddblocal:000000000000:table/team"
		id, region = "5bd3b6c5-9a4c-4d2b-8f2e-0d6f6c1f7f60", "eu-west-1"
		own        = "http://server:8000"
	)
	for _, row := range []struct {
		endpoint string
		is       dynamo.Identity
		want     string
	}{
		{"", dynamo.Identity{ARN: arn, ID: id}, arn}, {"", dynamo.Identity{}, region},
		{"https://vpce-1.dynamodb.eu-west-1.vpce.amazonaws.com", dynamo.Identity{ARN: arn}, arn},
		{"http://Server:8000/", dynamo.Identity{ARN: local, ID: id}, id},
		{"http://Server:8000/", dynamo.Identity{ARN: local}, own},
		{"http://Server:8000/", dynamo.Identity{}, own},
	} {
		if got := tableName(row.endpoint, row.is, region); got != row.want {
			t.Errorf("tableName(%q, %+v, %q) = %q, want %q", row.endpoint, row.is, region, got, row.want)
		}
	}
}

// A folder that was copied says the same of itself as the first; one that was moved is the same.
func TestOwnsObjectsOfFolder(t *testing.T) {
	credentials(t)
	dir, ctx := t.TempDir(), t.Context()
	root, copied, moved := filepath.Join(dir, "a", DirName), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	if _, err := Init(ctx, root, InitOptions{Objects: "s3://one/place?region=us-east-1&endpoint=" + testserver.GoFakeS3(t)}); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(copied, os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(root, moved); err != nil {
		t.Fatal(err)
	}
	first, second := visit(t, moved, Options{}), visit(t, copied, Options{})
	if err := first.OwnsObjects(ctx); err != nil {
		t.Errorf("the first, which was moved: %v", err)
	}
	err := second.OwnsObjects(ctx)
	if err == nil || !strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), "e3 init --take-over "+copied) {
		t.Errorf("the copy: got error %v, want one that names the first and says what to do", err)
	}
	changeOwner(t, first, func(o *owner) { o.Folder = folderNumber(copied) })
	if err := second.OwnsObjects(ctx); err != nil {
		t.Errorf("the copy, when it was given to it: %v", err)
	}
	changeOwner(t, first, func(o *owner) { o.Folder = "" }) // as where a folder has no number
	if err := first.OwnsObjects(ctx); err != nil {
		t.Errorf("where no folder is named: %v", err)
	}
}
