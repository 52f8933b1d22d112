package repo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"e3/internal/format/notation"
	"e3/internal/host/modes"
	"e3/internal/host/runner"
	"e3/internal/jobs/queue"
	"e3/objectstore"
	"e3/objectstore/cached"
	"e3/objectstore/mounted"
	"e3/objectstore/s3"
	"e3/refstore"
	"e3/refstore/checked"
	reffs "e3/refstore/fs"
	"e3/refstore/lease"
)

// Variables for this machine's folders.
const (
	CacheDirVariable  = "E3_CACHE_DIR"  // scratch, copies of objects; default: e3 in the user's cache folder
	CacheSizeVariable = "E3_CACHE_SIZE" // bound on the copies for each repository, such as 20GiB
	StateDirVariable  = "E3_STATE_DIR"  // which package file a workspace follows; default: e3 in the user's state folder
)

// defaultCache bounds the copies of objects on this machine, in bytes.
const defaultCache = 20 << 30

// settle is how long a sent request may still take effect: S3 refuses signatures that are older than 15 minutes, and
// DynamoDB refuses them sooner. A signature may be dated ahead: by half a minute if the time was learned from an
// answer that took a minute, and by the time that a lease's clock may miss unnoticed (see lease.Leases.Sending).
const settle = 16 * time.Minute

// settling is how long after a process's last renewal its requests may still arrive.
func (r *Repo) settling(l time.Duration) time.Duration { return cmp.Or(l, r.opts.Settle, settle) }

// openShared opens a repository in a database.
func (r *Repo) openShared(ctx context.Context, l *sharedLocation) (*stores, error) {
	conn, err := l.connect(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", l, err)
	}
	r.onClose(conn.close)
	f, err := readSharedFormat(ctx, conn, l, r.warn)
	if err != nil {
		return nil, err
	}
	r.signing.required = f.SignedExecutions
	where := *f.Objects
	switch o := l.objects; {
	case o.Bucket != "" && o.Bucket != where.Bucket:
		return nil, fmt.Errorf("open %s: its objects are at %s, not in the bucket %s", l, where.String(), o.Bucket)
	case o.Folder != "" && where.Folder == "":
		return nil, fmt.Errorf("open %s: its objects are at %s, not in the folder %s", l, where.String(), o.Folder)
	case where.Folder != "":
		where.Folder = cmp.Or(o.Folder, where.Folder) // here it may be mounted elsewhere
	default:
		where.Endpoint, where.Region = cmp.Or(o.Endpoint, where.Endpoint), cmp.Or(where.Region, o.Region)
	}
	var leases *lease.Leases
	var sendsRecords, sendsDeletions sending
	objects, err := r.remote(ctx, &where, &sendsDeletions)
	if err != nil {
		return nil, err
	}
	r.place = &place{objects: objects, at: where.String(), id: f.ID, command: r.takeCommand(), shared: l.owner(), warn: r.warn, table: conn.identity}
	records, err := conn.use(l.repository, f, writer{
		objects: objects, place: r.place, patience: r.opts.Outlast,
		sends: func(ctx context.Context, signed time.Time) error { return sendsRecords(ctx, signed) },
		fence: func(ctx context.Context) (string, error) { return leases.Fence(ctx) },
	})
	if err != nil {
		return nil, err
	}
	leases = r.leases(records, objects, l.lease, l.settle, conn.traits().fenced)
	sendsRecords, sendsDeletions = leases.Sending(), leases.Sending()
	r.onClose(leases.Close)

	here := l.here(f.ID, conn.server())
	copies, err := r.localStore(CacheDirVariable, os.UserCacheDir, here)
	if err != nil {
		return nil, err
	}
	links, err := r.localStore(StateDirVariable, stateDir, here)
	if err != nil {
		return nil, err
	}
	dir, err := objectstore.OpenDir(filepath.Join(copies.path, "objects"), objectstore.Options{Session: copies.Session, Modes: modes.Of(modes.Private, copies.path), Waiting: r.waiting})
	if err != nil {
		return nil, err
	}
	shared := &sharedRecords{sharedStore: records, Leases: leases, objects: objects, here: copies, warn: r.warn}
	summed := &summedShared{checked.New(shared, true), sharedBelow{shared}}
	s := &stores{
		records: summed, derived: summed, local: checked.New(links, false), here: copies,
		modes: modes.Of(modes.Private, copies.path), leases: leases, lookups: conn.traits().lookups, far: true, told: conn.traits().told,
		queue: queue.Store{Store: summed, Batch: checked.NewBatch(shared), Spread: f.Partitions},
	}
	r.formats = append(r.formats, sharedFormat(records, l.String()))
	if s.objects, err = r.cached(dir, objects, guard{leases, r.place}, l.settle); err != nil || !r.opts.Remember {
		return s, err
	}
	remembered, err := r.remember(summed, l, here, copies)
	if remembered != nil {
		s.records, s.derived = remembered, remembered // records of queues are not remembered
	}
	return s, err
}

// awsConfig takes credentials and region from the SDK's usual chain, unless the location sets them.
func awsConfig(ctx context.Context, region, endpoint string) (aws.Config, error) {
	opts := []func(*config.LoadOptions) error{
		config.WithLogger(logging.Nop{}), // errors say everything
		// As many connections are kept as there are requests at a time.
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConnsPerHost = 256
			t.MaxIdleConns = 512
		})),
	}
	if region != "" {
		opts = append(opts, config.WithRegion(region))
	}
	if slog.Default().Enabled(ctx, slog.LevelDebug) {
		opts = append(opts, config.WithAPIOptions([]func(*middleware.Stack) error{tellRequests}))
	}
	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	cfg.Credentials = &login{found: cfg.Credentials, find: func(ctx context.Context) (aws.CredentialsProvider, error) {
		cfg, err := config.LoadDefaultConfig(ctx, opts...)
		return cfg.Credentials, err
	}}
	switch {
	case err != nil:
		return cfg, fmt.Errorf("AWS settings: %w", err)
	case cfg.Region == "" && endpoint != "":
		cfg.Region = "us-east-1" // private servers have none
	case cfg.Region == "":
		return cfg, errors.New("no AWS region: set AWS_REGION, or add region=… to the location")
	}
	// Retrieve credentials now: a request that cannot be signed would be retried again and again. The credentials are
	// kept.
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return cfg, fmt.Errorf("no AWS credentials: %w; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or log in", err)
	}
	return cfg, nil
}

// sending says whether a request may be sent, see lease.Leases.Sending.
type sending func(ctx context.Context, signed time.Time) error

// remote is the place of a repository's objects. If deletions need permission, *deletions gives it; it is set before
// the first deletion.
func (r *Repo) remote(ctx context.Context, l *bucketLocation, deletions *sending) (remote, error) {
	if l.Folder == "" {
		return r.bucket(ctx, l, deletions)
	}
	o := mounted.Options{Base: l.Folder, Below: l.Prefix}
	if deletions != nil {
		o.Permit = func(ctx context.Context) error { return (*deletions)(ctx, r.opts.Now()) }
	}
	f := mounted.Open(o)
	r.onClose(f.Close)
	return f, nil
}

// bucket is remote for a bucket. If deletions need permission, *deletions gives it; it is set before
// the first deletion.
func (r *Repo) bucket(ctx context.Context, l *bucketLocation, deletions *sending) (*s3.Bucket, error) {
	cfg, err := awsConfig(ctx, l.Region, l.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", l, err)
	}
	cfg.APIOptions = append(cfg.APIOptions, r.traffic.count)
	o := s3.Options{Config: cfg, Endpoint: l.Endpoint, Bucket: l.Bucket, Prefix: l.Prefix, PathStyle: l.Endpoint != "",
		Dated: ownerBlob, Trying: trying("S3", cmp.Or(host(l.Endpoint), cfg.Region), r.warn), Expired: r.expired(cfg)}
	if deletions != nil {
		o.Permit = func(ctx context.Context, signed time.Time) error { return (*deletions)(ctx, signed) }
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	if r.opts.Outlast > 0 {
		o.Attempts = int(r.opts.Outlast / s3Pause)
	}
	return s3.Open(o), nil
}

// s3Pause is the average pause between tries of a request to S3 that has failed for a while.
const s3Pause = 5 * time.Second

// cached puts a cache on this machine before objects elsewhere.
func (r *Repo) cached(local *objectstore.Dir, objects remote, g guard, settle time.Duration) (*cached.Store, error) {
	size := int64(defaultCache)
	if text := r.opts.Getenv(CacheSizeVariable); text != "" {
		var err error
		if size, err = notation.SizeOf(text); err != nil {
			return nil, fmt.Errorf("%s: %w", CacheSizeVariable, err)
		}
	}
	store, err := cached.Open(cached.Options{
		Local: local, Remote: objects, Guard: g, MaxBytes: size, Warn: r.opts.Warn,
		Grace: min(cached.DefaultGrace, r.settling(settle)), // if requests settle sooner, clocks also differ by less
	})
	if err != nil {
		return nil, err
	}
	r.onClose(store.Close)
	return store, nil
}

// leases are this process's leases in a store of records.
func (r *Repo) leases(records refstore.Store, objects remote, ttl, settle time.Duration, fenced bool) *lease.Leases {
	o := lease.Options{
		TTL: cmp.Or(r.opts.Lease, ttl), Settle: r.settling(settle), Fenced: fenced, Owner: lease.Owner{Process: self(), Words: inWords()},
		Relied:  func(name [32]byte) string { return "file " + objectstore.Hash(name).String() },
		Renewed: r.renewed, Elapsed: runner.Elapsed, Retake: r.opts.Retake,
	}
	if objects != nil {
		o.Clock = objects.Now
	}
	l := lease.New(records, o)
	l.Outlast(r.opts.Outlast)
	return l
}

// here names this machine's folders of a repository. The id alone is not enough: it comes from the repository, and a
// repository that copies another's id must not get at the links of the other.
func (l *sharedLocation) here(id, server string) string {
	return objectstore.Sum([]byte("e3 here\x00" + server + "\x00" + l.repository + "\x00" + id)).String()[:32]
}

// localStore is a store of records on this machine for one repository.
type localStore struct {
	*reffs.Store
	path string
}

// localStore opens this user's store below a folder that a variable, or the system, names. It writes nothing.
func (r *Repo) localStore(variable string, base func() (string, error), name string) (*localStore, error) {
	dir := r.opts.Getenv(variable)
	if dir == "" {
		user, err := base()
		if err != nil {
			return nil, fmt.Errorf("no folder for what this machine keeps of the repository: %w; set %s", err, variable)
		}
		dir = filepath.Join(user, "e3")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	if err = os.MkdirAll(path, 0o700); err == nil {
		err = checkOwned(path)
	}
	var s *reffs.Store
	if err == nil {
		s, err = reffs.Open(path, reffs.Options{Now: r.opts.Now, Modes: modes.Of(modes.Private, path), Boot: sync.OnceValue(func() string { return boot(path) }), DeadSession: r.closeLeft, Waiting: r.waiting})
	}
	if err != nil {
		return nil, fmt.Errorf("the folder for what this machine keeps of the repository: %w; %s names another", err, variable)
	}
	r.onClose(s.Close)
	return &localStore{s, path}, nil
}

// stateDir is the user's folder for data that must survive a cleared cache.
func stateDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	if runtime.GOOS == "darwin" {
		return os.UserConfigDir()
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "state"), err
}

// sharedRecords are records in a database and the leases on them.
type sharedRecords struct {
	sharedStore
	*lease.Leases
	objects remote
	here    *localStore // files of this machine's processes
	warn    func(error)
}

var _ interface {
	refstore.Leased
	refstore.Barrier
	refstore.SessionClock
	refstore.Watcher
} = (*sharedRecords)(nil)

// Sync does nothing: answered writes to a database and S3 are durable.
func (s *sharedRecords) Sync(context.Context) error { return nil }

// late is by how much unnamed data must be older than any live session to be removed: not every writer of a record
// has a session.
const late = 15 * time.Minute

// longUpload is the minimum age of an unfinished upload whose parts are removed: a younger one may still be under
// way.
const longUpload = 24 * time.Hour

// RemoveLeftovers removes what crashes have left beside the objects, and claims of the dead.
func (s *sharedRecords) RemoveLeftovers(ctx context.Context, before time.Time) (int, error) {
	return removeEach(
		func() (int, error) { return s.sharedStore.RemoveLeftovers(ctx, before.Add(-late)) },
		func() (int, error) { return s.Leases.SweepClaims(ctx) },
		func() (int, error) { return removeUploads(ctx, s.objects, before, s.warn) },
	)
}

// removeEach calls functions that return how many things they removed. If one fails, the others are called all the
// same.
func removeEach(removals ...func() (int, error)) (n int, err error) {
	for _, remove := range removals {
		m, failed := remove()
		n += m
		if err = errors.Join(err, failed); errors.Is(failed, context.Canceled) {
			break
		}
	}
	return n, err
}

// removeUploads removes the parts of unfinished uploads. If that is forbidden it only warns: a rule of the bucket
// removes them as well.
func removeUploads(ctx context.Context, objects remote, before time.Time, warn func(error)) (int, error) {
	n, err := objects.RemoveUploads(ctx, before.Add(-longUpload))
	if refused := (*s3.Error)(nil); errors.As(err, &refused) && refused.Status == http.StatusForbidden {
		warn(fmt.Errorf("what crashes have left of large uploads stays: %w", err))
		return n, nil
	}
	return n, err
}

// Sweep removes the remains of dead processes, in the repository and on this machine.
func (s *sharedRecords) Sweep(ctx context.Context) (int, error) {
	n, err := s.here.Sweep(ctx)
	if err != nil {
		return n, err
	}
	m, err := s.Leases.Sweep(ctx)
	return n + m, err
}

// guard lets writers and collectors of a place agree by leases. It first checks that the place is this repository's,
// because the sessions of another repository are not seen here.
type guard struct {
	*lease.Leases
	place *place
}

func (g guard) Rely(ctx context.Context, h objectstore.Hash) error {
	if err := g.place.writes(ctx); err != nil {
		return err
	}
	return g.Leases.Rely(ctx, h)
}

func (g guard) Condemn(ctx context.Context, shard byte, hs []objectstore.Hash) ([]objectstore.Hash, func(context.Context) error, error) {
	if err := g.place.removes(ctx); err != nil {
		return nil, nil, err
	}
	names := make([][32]byte, len(hs))
	for i, h := range hs {
		names[i] = h
	}
	free, done, err := g.Leases.Condemn(ctx, shard, names)
	out := make([]objectstore.Hash, len(free))
	for i, name := range free {
		out[i] = name
	}
	return out, done, err
}
