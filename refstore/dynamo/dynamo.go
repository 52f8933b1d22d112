// Package dynamo is a [refstore.Store] in a DynamoDB table, with streams and watches. It needs what every server of
// that interface has: conditional writes of single items, consistent reads, queries of a partition. doc/format.md
// describes the items.
//
// # Writing
//
// A record is one item, and so is the head of a stream. Every write of either is one conditional write, with a
// version that the writer draws at random, so none recurs. An item also holds the version that it replaced. A write
// whose answer was lost is retried; its condition then fails, and the item shows whether the first try succeeded: its
// version, or the one that it replaced, is the one written. If there were two more writes since, the outcome cannot
// be found out: the error says so, and is not ErrConflict. A try without an answer may also arrive late, after the
// next has taken effect. Its condition fails then, unless it is a creation and the record has been deleted: then it
// recreates the record. [Store.Create] reports when that can happen.
//
// Large data lies in a [Blobs], under names that are never reused. It is put before an item names it, and deleted
// once no item does. [Store.RemoveLeftovers] removes what crashes leave there.
//
// # Faults
//
// After throttling, a server fault or a broken connection, a request is retried with exponential backoff and full
// jitter, within the context and [Options.Patience]; after an unknown host name, only if the server has answered
// under it before. The SDK's own retries are off: they do not tell whether a failed try may have happened.
package dynamo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/semaphore"

	"e3/refstore"
)

// ErrNoTable reports that the table does not exist.
var ErrNoTable = errors.New("the table does not exist")

// Options say where a repository lies. The zero duration is the default given.
type Options struct {
	Config     aws.Config // region, credentials, HTTP client
	Endpoint   string     // the server's URL; "" is AWS in the region of Config
	Table      string
	Repository string // a segment of every partition key: 1 to 64 of [A-Za-z0-9_.-], the first none of ".-"
	Blobs      Blobs  // for data too large for an item

	Attempt  time.Duration // how long one request may take; 10 s
	Patience time.Duration // how long a request is retried; 2 min
	Backoff  time.Duration // longest pause before the second try, doubled before each further one; 50 ms
	Poll     time.Duration // how often a follower polls at first, an eighth of the longest interval later; 250 ms
	Watch    time.Duration // how often a watch polls; 1 s
	Pace     time.Duration // how often a stream that grows by lines is appended to, see StreamPace; 1 s

	// Now dates dying items (see RemoveLeftovers), roughly: a day's error does no harm. nil is time.Now.
	Now func() time.Time
	// Permit, which may be nil, decides whether a signed try of a write may be sent, by the partition of the
	// records or streams and the date of the signature. A refused try fails with Permit's error, and is retried if
	// the error is that of a retryable request.
	Permit func(ctx context.Context, partition string, signed time.Time) error
	// Trying, which may be nil, is called when a try got no answer, or a server fault, and is retried, once the
	// request has lasted 2 s. Several goroutines call it at once. It must not block.
	Trying func(error)
	// Observe, which may be nil, is called after each request, failed ones included, with the capacity units that it
	// took, by several goroutines at once. Servers report capacity only when asked, which this does.
	Observe func(operation string, units float64)
}

// maxBackoff is the longest pause between two tries.
const maxBackoff = 5 * time.Second

// Store is one repository in a table. It is safe for concurrent use, by any number of processes.
type Store struct {
	table *table

	merging *semaphore.Weighted // mergeMemory, shared by merges of stream parts

	mu      sync.Mutex
	heads   map[refstore.Key]*head // of streams that this process appends to
	entered map[itemKey]struct{}   // enumeration items that this process has put
}

// table sends requests to the table, and to the store of the blobs that its items name.
type table struct {
	client *dynamodb.Client
	o      Options
	heard  atomic.Bool // the server has answered at least once
}

var (
	_ refstore.Store   = (*Store)(nil)
	_ refstore.Streams = (*Store)(nil)
	_ refstore.Watcher = (*Store)(nil)
)

// ValidRepository reports whether a repository can have a name.
func ValidRepository(name string) bool {
	return len(name) >= 1 && len(name) <= 64 && name[0] != '.' && name[0] != '-' && plain(name)
}

// ValidTable reports whether a table can have a name, by the rules of AWS.
func ValidTable(name string) bool { return len(name) >= 3 && len(name) <= 255 && plain(name) }

// plain reports whether a name has letters, digits, '_', '.' and '-' only.
func plain(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-'
	})
}

// Open returns a store. It makes no request: a table that does not exist is an [ErrNoTable] of the first call. An
// ErrInvalid is about names.
func Open(o Options) (*Store, error) {
	if err := checkTable(o.Table); err != nil {
		return nil, err
	}
	if !ValidRepository(o.Repository) {
		return nil, fmt.Errorf("repository name %.100q: %w: 1 to 64 letters, digits, '_', '.' and '-', not beginning with '.' or '-'", o.Repository, refstore.ErrInvalid)
	}
	if o.Blobs == nil {
		return nil, fmt.Errorf("repository %s in table %s: %w: no place for large records", o.Repository, o.Table, refstore.ErrInvalid)
	}
	setDefault(&o.Attempt, 10*time.Second)
	setDefault(&o.Patience, 2*time.Minute)
	setDefault(&o.Backoff, 50*time.Millisecond)
	setDefault(&o.Poll, 250*time.Millisecond)
	setDefault(&o.Watch, time.Second)
	setDefault(&o.Pace, time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{
		table:   &table{client: newClient(o.Config, o.Endpoint, guarded(o.Permit)), o: o},
		merging: semaphore.NewWeighted(mergeMemory),
		heads:   make(map[refstore.Key]*head), entered: make(map[itemKey]struct{}),
	}, nil
}

func checkTable(name string) error {
	if !ValidTable(name) {
		return fmt.Errorf("table name %.300q: %w: 3 to 255 letters, digits, '_', '.' and '-'", name, refstore.ErrInvalid)
	}
	return nil
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}

// newClient returns a client without retries of its own.
func newClient(config aws.Config, endpoint string, more ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.NewFromConfig(config, append(more, func(o *dynamodb.Options) {
		o.Retryer = aws.NopRetryer{}
		if endpoint != "" {
			o.BaseEndpoint = aws.String(endpoint)
		}
		// As many connections stay open as callers make lookups at once.
		switch c := config.HTTPClient.(type) {
		case nil:
			o.HTTPClient = manyConnections(awshttp.NewBuildableClient())
		case *awshttp.BuildableClient:
			o.HTTPClient = manyConnections(c)
		}
	})...)
}

func manyConnections(c *awshttp.BuildableClient) *awshttp.BuildableClient {
	return c.WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns = max(t.MaxIdleConns, 256)
		t.MaxIdleConnsPerHost = max(t.MaxIdleConnsPerHost, 256)
	})
}

// PutSync is Put: a write that the server accepted survives power loss.
func (s *Store) PutSync(ctx context.Context, r refstore.Record) (refstore.Version, error) {
	return s.Put(ctx, r)
}

// Sync does nothing: writes that the server accepted survive power loss.
func (s *Store) Sync(ctx context.Context) error { return ctx.Err() }
