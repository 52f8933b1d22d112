// Package dynamo is a [refstore.Store] in a DynamoDB table, with streams and watches. It uses only what every server
// with DynamoDB's interface has: conditional writes of single items, consistent reads, queries of a partition.
// doc/format.md describes the items.
//
// # Writing
//
// A record is one item, and so is the head of a stream. Each write of an item is one conditional write, with a version
// that the writer chooses at random, so no version recurs. An item also holds the version that it replaced. A write
// whose answer was lost is retried. If the first attempt succeeded, the condition of the retry fails, and the item
// shows the success: the written version is the item's version, or the version that it replaced. After two more writes,
// the outcome cannot be determined: the error says so, and is not ErrConflict. An attempt without an answer may also
// arrive late, after the next attempt has taken effect. Then its condition fails, with one exception: a creation
// recreates a record that has been deleted. [Store.Create] reports whether this can happen.
//
// Large data is kept in a [Blobs], under names that are never reused. It is put before an item names it, and deleted
// once no item does. [Store.RemoveLeftovers] removes blobs that crashes leave.
//
// # Faults
//
// After throttling, a server fault or a broken connection, a request is retried with exponential backoff and full
// jitter, within the context and [Options.Patience]. After an unknown host name it is retried only if the server has
// answered under that name before. The SDK's own retries are off, because they do not report whether a failed attempt
// may have taken effect.
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

// Options are the location of a repository and the parameters of its use. A zero duration means the default, which
// stands at the end of the field's comment.
type Options struct {
	Config     aws.Config // region, credentials, HTTP client
	Endpoint   string     // the server's URL; "" is AWS in the region of Config
	Table      string
	Repository string // a segment of every partition key: 1 to 64 of [A-Za-z0-9_.-], the first none of ".-"
	Blobs      Blobs  // for data too large for an item
	// Spread spreads the enumeration of tasks over 16 partition keys, since one key takes 1,000 writes a second. A
	// repository is always opened with the same value.
	Spread bool

	Attempt  time.Duration // timeout of one attempt; 10 s
	Patience time.Duration // time for which a request is retried; 2 min
	Backoff  time.Duration // longest pause before the second attempt, doubled before each further one; 50 ms
	Poll     time.Duration // first interval at which a follower polls, an eighth of the longest interval; 250 ms
	Watch    time.Duration // interval at which a watch polls; 1 s
	Pace     time.Duration // interval of appends to a stream that grows by lines, see StreamPace; 1 s

	// Now dates dying items (see RemoveLeftovers). An error of less than a day is harmless. nil is time.Now.
	Now func() time.Time
	// Permit, which may be nil, decides whether a signed attempt of a write may be sent, by the partition of the
	// records or streams and the date of the signature. A refused attempt fails with Permit's error, and is retried if
	// that error counts as retryable.
	Permit func(ctx context.Context, partition string, signed time.Time) error
	// Trying, which may be nil, is called before a retry after a missing answer or a server fault, once the request has
	// lasted 2 s. Several goroutines may call it at once. It must not block.
	Trying func(error)
	// Expired, which may be nil, reports whether a request failed because its credentials have expired, once others
	// have succeeded. Such a request had no effect, and is retried: Expired may have found new credentials meanwhile.
	Expired func(error) bool
	// Observe, which may be nil, is called after each request, even a failed one, with the capacity units that it took.
	// Several goroutines may call it at once. Only with Observe do requests ask the server to report capacity.
	Observe func(operation string, units float64)
}

// maxBackoff is the longest pause between two attempts.
const maxBackoff = 5 * time.Second

// Store is one repository in a table. It is safe for concurrent use, by any number of processes.
type Store struct {
	table *table

	merging *semaphore.Weighted // mergeMemory, shared by merges of stream parts

	mu      sync.Mutex
	heads   map[refstore.Key]*head // heads of streams to which this process appends
	entered map[itemKey]struct{}   // enumeration items that this process has put
}

// table sends requests to the table, and to the store of the blobs that its items name.
type table struct {
	client *dynamodb.Client
	o      Options
	heard  atomic.Bool // the server has answered at least once
	served atomic.Bool // a request has succeeded
}

var (
	_ refstore.Store   = (*Store)(nil)
	_ refstore.Streams = (*Store)(nil)
	_ refstore.Watcher = (*Store)(nil)
)

// ValidRepository reports whether name is valid as the name of a repository.
func ValidRepository(name string) bool {
	return len(name) >= 1 && len(name) <= 64 && name[0] != '.' && name[0] != '-' && plain(name)
}

// ValidTable reports whether name is valid as the name of a table, by the rules of AWS.
func ValidTable(name string) bool { return len(name) >= 3 && len(name) <= 255 && plain(name) }

// plain reports whether a name has letters, digits, '_', '.' and '-' only.
func plain(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '.' && r != '-'
	})
}

// Open returns a store. It makes no request: if the table does not exist, the first call returns [ErrNoTable]. Invalid
// names are an ErrInvalid.
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
		// Keep a connection open for each of the concurrent lookups of callers.
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
