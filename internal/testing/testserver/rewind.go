package testserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/truora/minidyn/server"
)

// An Item is an item of a table, each attribute as DynamoDB writes it in JSON: {"S": "…"}.
type Item map[string]map[string]any

// Tables is a [Minidyn] whose items a test looks at, changes behind the back of its clients, and puts back.
type Tables struct {
	URL string

	mu     sync.Mutex // one request at a time
	now    *server.Server
	create map[string][]byte // the request that made a table, by its name
}

// NewTables starts a DynamoDB server in this process.
func NewTables(tb TB) *Tables {
	tb.Helper()
	t := &Tables{now: server.NewServer(), create: map[string][]byte{}}
	t.URL = serve(tb, t)
	return t
}

// ServeHTTP implements [http.Handler].
func (t *Tables) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it is gone
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	t.mu.Lock()
	status, answer, header := t.ask(op, body)
	t.mu.Unlock()
	maps.Copy(w.Header(), header)
	w.Header().Set("Connection", "close") // its clients are many, each in a process that does not end
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

// ask answers one request. A table that was made is remembered.
func (t *Tables) ask(op string, body []byte) (int, []byte, http.Header) {
	answer := ask(t.now, op, body)
	if op == "CreateTable" && answer.Code == http.StatusOK {
		var request struct{ TableName string }
		if json.Unmarshal(body, &request) == nil {
			t.create[request.TableName] = bytes.Clone(body)
		}
	}
	return answer.Code, answer.Body.Bytes(), answer.Header()
}

// must makes a request of the test's own.
func (t *Tables) must(op string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	code, text, _ := t.ask(op, body)
	if code != http.StatusOK {
		return fmt.Errorf("%s: %d %s", op, code, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// Names are those of the tables, in order.
func (t *Tables) Names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.create))
}

// Items are all items of a table.
func (t *Tables) Items(table string) ([]Item, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var items []Item
	request := map[string]any{"TableName": table, "ConsistentRead": true}
	for {
		var answer struct {
			Items            []Item
			LastEvaluatedKey Item
		}
		if err := t.must("Scan", request, &answer); err != nil {
			return nil, err
		}
		items = append(items, answer.Items...)
		if len(answer.LastEvaluatedKey) == 0 {
			return items, nil
		}
		request["ExclusiveStartKey"] = answer.LastEvaluatedKey
	}
}

// Put puts an item in the place of the one with its key.
func (t *Tables) Put(table string, item Item) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.must("PutItem", map[string]any{"TableName": table, "Item": item}, nil)
}

// Remove removes the item with the key of another.
func (t *Tables) Remove(table string, item Item) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.must("DeleteItem", map[string]any{"TableName": table, "Key": Item{"PK": item["PK"], "SK": item["SK"]}}, nil)
}

// Reset makes the tables anew, with these items and no others.
func (t *Tables) Reset(tables map[string][]Item) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = server.NewServer()
	for name, items := range tables {
		if err := t.must("CreateTable", json.RawMessage(t.create[name]), nil); err != nil {
			return err
		}
		for _, item := range items {
			if err := t.must("PutItem", map[string]any{"TableName": name, "Item": item}, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// Bucket is a [GoFakeS3] whose objects a test looks at, changes behind the back of its clients, and puts back.
type Bucket struct {
	URL string

	mu      sync.RWMutex
	store   *s3mem.Backend
	handler http.Handler
}

// NewBucket starts an S3 server in this process.
func NewBucket(tb TB) *Bucket {
	tb.Helper()
	b := &Bucket{}
	b.renew()
	b.URL = serve(tb, b)
	return b
}

func (b *Bucket) renew() {
	now := clock(time.Now)
	b.store = s3mem.New(s3mem.WithTimeSource(now))
	b.handler = gofakes3.New(b.store, gofakes3.WithTimeSource(now), gofakes3.WithTimeSkewLimit(0), gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
}

// ServeHTTP implements [http.Handler].
func (b *Bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.RLock()
	handler := b.handler
	b.mu.RUnlock()
	w.Header().Set("Connection", "close") // its clients are many, each in a process that does not end
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	handler.ServeHTTP(w, r)
}

// Objects are the objects of all buckets, by bucket/key.
func (b *Bucket) Objects() (map[string][]byte, error) {
	buckets, err := b.store.ListBuckets()
	if err != nil {
		return nil, err
	}
	objects := map[string][]byte{}
	for _, bucket := range buckets {
		list, err := b.store.ListBucket(bucket.Name, &gofakes3.Prefix{}, gofakes3.ListBucketPage{})
		if err != nil {
			return nil, err
		}
		for _, entry := range list.Contents {
			object, err := b.store.GetObject(bucket.Name, entry.Key, nil)
			if err != nil {
				return nil, err
			}
			if objects[bucket.Name+"/"+entry.Key], err = io.ReadAll(object.Contents); err != nil {
				return nil, err
			}
		}
	}
	return objects, nil
}

// Put gives an object another content.
func (b *Bucket) Put(name string, data []byte) error {
	bucket, key, _ := strings.Cut(name, "/")
	_, err := b.store.PutObject(bucket, key, map[string]string{}, bytes.NewReader(data), int64(len(data)), nil)
	return err
}

// Remove removes an object.
func (b *Bucket) Remove(name string) error {
	bucket, key, _ := strings.Cut(name, "/")
	_, err := b.store.DeleteObject(bucket, key)
	return err
}

// Reset makes the buckets anew, with these objects and no others.
func (b *Bucket) Reset(objects map[string][]byte) error {
	b.mu.Lock()
	b.renew()
	b.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		bucket, _, _ := strings.Cut(name, "/")
		if there, err := b.store.BucketExists(bucket); err != nil {
			return err
		} else if !there {
			if err := b.store.CreateBucket(bucket); err != nil {
				return err
			}
		}
		if err := b.Put(name, objects[name]); err != nil {
			return err
		}
	}
	return nil
}
