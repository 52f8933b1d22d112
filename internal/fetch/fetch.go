// Package fetch fetches single files by HTTP and from S3, and continues what an earlier process could not finish.
//
// A file is fetched into a folder of this user, under a lock for its URL: of several processes one fetches, and the
// others find what it has fetched. The bytes are handed over once all are there. Bytes of two versions of a file are
// never joined: a fetch goes on only if the server says, by a strong entity tag, that the file is the same.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"e3/internal/backoff"
	"e3/internal/format/notation"
	"e3/internal/host/filelock"
)

// Conditions that callers branch on.
var (
	// ErrUnreachable says that no server has answered, or that the server cannot answer now.
	ErrUnreachable = errors.New("the server is out of reach")
	// ErrContent is wrapped by an error of Request.Take for content that is not the wanted one.
	ErrContent = errors.New("not the wanted content")
)

// An Error says what went wrong with a URL.
type Error struct {
	URL string
	Err error
}

func (e *Error) Error() string { return e.URL + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Known is content that was fetched earlier.
type Known struct {
	Seen string `json:"seen,omitempty"` // what the server said of it: an entity tag in quotes, or a date; "": nothing
	Mark string `json:"mark"`           // the name that Request.Take gave it; "": none is known
	Size int64  `json:"size"`
}

// A Request says what to fetch, and where its bytes go.
type Request struct {
	URL   string // http, https or s3 (notation.S3Object)
	Known Known  // if the server still has it, nothing is fetched
	// Has reports whether content with a mark can still be used.
	Has func(mark string) bool
	// Take takes the complete file, which it may move away, and returns its mark.
	Take func(ctx context.Context, in *os.Root, name string) (mark string, err error)
	// Summed says that Take checks the content, so that a server need not say how long it is.
	Summed bool
}

// A Watch is called when bytes begin to arrive. progress is told the bytes that are here, also from an earlier process,
// and their total, which is -1 if the server does not say it. end is called once.
type Watch func(url string) (progress func(done, total int64), end func())

// A Client fetches files. Its methods may be called concurrently.
type Client struct {
	// Folder makes and returns a folder of this user alone, for what is on its way.
	Folder  func() (string, error)
	Offline bool                // no server is asked
	Agent   string              // tells servers who asks
	Getenv  func(string) string // nil: os.Getenv
	Watch   Watch               // nil: nobody watches
	Waiting filelock.Waiter     // waits for another process that fetches the same file
	// Attempts is how often a request is repeated if nothing has arrived, with growing pauses. Default 6.
	Attempts int
	// Pause bounds the first pause. Default 300 ms.
	Pause time.Duration
	// Patience is how long a server may be silent. Default 1 min.
	Patience time.Duration
	// Recent is how long an answer counts without another request. Default 5 s; below 0: not at all.
	Recent time.Duration

	once sync.Once
	http *http.Client
	s3   bucket

	mu    sync.Mutex
	asked map[string]asked // by URL
}

// asked is what a server was found to have.
type asked struct {
	known Known
	at    time.Time
}

const (
	defaultAttempts = 6
	defaultPause    = 300 * time.Millisecond
	longestPause    = 20 * time.Second
	defaultPatience = time.Minute
	defaultRecent   = 5 * time.Second // a start may read its inputs twice
	// eager is the number of attempts where known content can serve instead.
	eager = 2
)

func (c *Client) setUp() {
	c.once.Do(func() {
		if c.Getenv == nil {
			c.Getenv = os.Getenv
		}
		if c.Attempts == 0 {
			c.Attempts = defaultAttempts
		}
		if c.Pause == 0 {
			c.Pause = defaultPause
		}
		if c.Patience == 0 {
			c.Patience = defaultPatience
		}
		if c.Recent == 0 {
			c.Recent = defaultRecent
		}
		c.http = c.newHTTP()
	})
}

// Fixed reports whether a URL names content that never changes: a version of an object.
func Fixed(url string) bool {
	_, _, version, ok := notation.S3Object(url)
	return ok && version != ""
}

// A question asks a server for a file.
type question struct {
	seen string // of content that is known
	from int64  // the first byte that is not here yet
	tag  string // the entity tag of the bytes that are here
}

// An answer is a file, or the rest of it.
type answer struct {
	same  bool // the content is the known one; there is no body
	seen  string
	from  int64 // where body begins
	total int64 // bytes of the file; -1: unknown
	whole bool  // a body that was cut is an error, also without total
	body  io.ReadCloser
}

// A server answers questions about one file.
type server interface {
	ask(ctx context.Context, q question) (*answer, error)
}

// Get fetches a file, unless the server says that the known content is still its own. It returns what is known now. The
// error is an *Error: of a server that does not answer it wraps ErrUnreachable.
func (c *Client) Get(ctx context.Context, r *Request) (Known, error) {
	c.setUp()
	if known, ok := c.recently(r); ok {
		return known, nil
	}
	known, err := c.get(ctx, r)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return Known{}, &Error{r.URL, err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked == nil {
		c.asked = map[string]asked{}
	}
	c.asked[r.URL] = asked{known, time.Now()}
	return known, nil
}

// recently returns what the server was found to have just now.
func (c *Client) recently(r *Request) (Known, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.asked[r.URL]
	return last.known, ok && time.Since(last.at) < c.Recent && r.Has(last.known.Mark)
}

// Known is what this machine knows of a URL, without a request.
func (c *Client) Known(url string) Known {
	if folder, err := c.Folder(); err == nil {
		if dir, err := os.OpenRoot(folder); err == nil {
			defer dir.Close()
			return readNote(dir, placeName(url), url).Known
		}
	}
	return Known{}
}

func (c *Client) get(ctx context.Context, r *Request) (Known, error) {
	folder, err := c.Folder()
	if err != nil {
		return Known{}, err
	}
	p, err := openPlace(ctx, folder, r.URL, c.Waiting)
	if err != nil {
		return Known{}, err
	}
	defer p.close()
	f := &fetching{c: c, r: r, p: p, known: r.Known}
	if f.known.Mark == "" && p.note.Known.Mark != "" && r.Has(p.note.Known.Mark) {
		f.known = p.note.Known
		if Fixed(r.URL) {
			return f.known, nil
		}
	}
	if f.server, err = c.serverOf(r.URL); err != nil {
		return Known{}, err
	}
	if c.Offline {
		return Known{}, fmt.Errorf("%w: offline, no server is asked", ErrUnreachable)
	}
	defer f.end()
	return f.run(ctx)
}

func (c *Client) serverOf(url string) (server, error) {
	if b, key, version, ok := notation.S3Object(url); ok {
		return &object{c, b, key, version}, nil
	}
	return newSite(c, url)
}

// fetching is one call of Get.
type fetching struct {
	c      *Client
	r      *Request
	p      *place
	known  Known
	server server

	resumed  bool // of the bytes in the file, some came by an earlier answer
	progress func(done, total int64)
	ended    func()
}

// A transientError is worth another attempt.
type transientError struct {
	err   error
	after time.Duration // the server asked to wait so long; 0: it did not
}

func (e *transientError) Error() string { return e.err.Error() }

func (e *transientError) Unwrap() error { return e.err }

// run repeats the request until it has succeeded, as long as bytes arrive.
func (f *fetching) run(ctx context.Context) (Known, error) {
	most := f.c.Attempts
	if f.known.Mark != "" {
		most = min(most, eager)
	}
	failed, again := 0, true
	for {
		before := f.p.size
		known, err := f.attempt(ctx)
		var transient *transientError
		switch {
		case err == nil:
			return known, nil
		case errors.Is(err, ErrContent) && f.resumed && again: // a server may have one tag for two contents
			again = false
			if err := f.p.restart("", -1); err != nil {
				return Known{}, err
			}
			continue
		case !errors.As(err, &transient):
			return Known{}, err
		}
		if f.p.size > before {
			failed = 0
		}
		if failed++; failed >= most {
			return Known{}, fmt.Errorf("%w: %w", ErrUnreachable, transient.err)
		}
		pause := max(backoff.Pause(f.c.Pause, longestPause, failed), min(transient.after, longestPause))
		if err := backoff.Wait(ctx, pause); err != nil {
			return Known{}, err
		}
	}
}

// attempt is one request.
func (f *fetching) attempt(ctx context.Context) (Known, error) {
	ctx, w := watch(ctx, f.c.Patience)
	defer w.end()
	q := question{seen: f.known.Seen}
	if f.known.Mark == "" {
		q.seen = ""
	}
	if isStrong(f.p.note.Seen) && f.p.size > 0 {
		q.from, q.tag = f.p.size, f.p.note.Seen
		if q.from == f.p.note.Total { // no server answers a request for nothing
			q.from--
		}
	}
	a, err := f.server.ask(ctx, q)
	if errors.Is(err, errRange) { // the file is shorter now
		if err := f.p.restart("", -1); err != nil {
			return Known{}, err
		}
	}
	if err != nil {
		return Known{}, w.cause(err)
	}
	if a.body != nil {
		defer a.body.Close()
	}
	if known, same := f.same(q, a); same {
		if f.p.note.Known == known {
			return known, nil
		}
		f.p.note.Known = known
		return known, f.p.save()
	}
	if err := f.begin(q, a); err != nil {
		return Known{}, err
	}
	if err := f.receive(w, a); err != nil {
		return Known{}, err
	}
	size := f.p.size
	mark, err := f.p.hand(ctx, f.r.Take)
	if err != nil {
		return Known{}, err
	}
	f.p.note = note{URL: f.r.URL, Known: Known{a.seen, mark, size}}
	return f.p.note.Known, f.p.save()
}

// same returns the known content that an answer says the server still has: not every server knows conditions, and another
// process may have fetched what is new.
func (f *fetching) same(q question, a *answer) (Known, bool) {
	last := f.p.note.Known
	switch {
	case a.same, isStrong(q.seen) && a.seen == q.seen:
		return f.known, true
	case isStrong(last.Seen) && a.seen == last.Seen && f.r.Has(last.Mark):
		return last, true
	}
	return Known{}, false
}

// begin prepares the file for an answer's body.
func (f *fetching) begin(q question, a *answer) error {
	if f.progress == nil && f.c.Watch != nil {
		f.progress, f.ended = f.c.Watch(f.r.URL)
	}
	switch {
	case a.from == 0:
		f.resumed = false
		return f.p.restart(a.seen, a.total)
	case a.from != q.from || a.seen != q.tag || a.total != f.p.note.Total:
		if err := f.p.restart("", -1); err != nil {
			return err
		}
		return &transientError{err: errors.New("it continues another file than was begun")}
	}
	f.resumed = true
	return f.p.cut(q.from)
}

// receive writes a body to the file.
func (f *fetching) receive(w *watchdog, a *answer) error {
	if !a.whole && a.total < 0 && !f.r.Summed {
		return errors.New("the server does not say how long the file is, so that a cut would go unnoticed; give its sha256")
	}
	buf := make([]byte, 256<<10)
	for {
		w.reset()
		n, err := a.body.Read(buf)
		if a.total >= 0 && f.p.size+int64(n) > a.total {
			return &transientError{err: fmt.Errorf("more than the %d bytes came that it says", a.total)}
		}
		if werr := f.p.write(buf[:n]); werr != nil {
			return werr
		}
		if f.progress != nil && n > 0 {
			f.progress(f.p.size, a.total)
		}
		switch {
		case err == io.EOF && a.total >= 0 && f.p.size < a.total:
			return &transientError{err: fmt.Errorf("the connection ended after %d of %d bytes", f.p.size, a.total)}
		case err == io.EOF:
			return nil
		case err != nil:
			return &transientError{err: fmt.Errorf("the connection broke after %d bytes: %w", f.p.size, w.cause(inner(err)))}
		}
	}
}

func (f *fetching) end() {
	if f.ended != nil {
		f.ended()
	}
}

// isStrong reports whether a text is an entity tag that two contents never share.
func isStrong(seen string) bool { return strings.HasPrefix(seen, `"`) }

// errRange is the error for a range that the file does not have.
var errRange = errors.New("the file is shorter than what is here of it")

// A watchdog ends the context of a request in which nothing arrives.
type watchdog struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	timer    *time.Timer
	patience time.Duration
}

func watch(outer context.Context, patience time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(outer)
	stall := fmt.Errorf("the server is silent for %v", patience)
	w := &watchdog{ctx: ctx, cancel: cancel, patience: patience}
	w.timer = time.AfterFunc(patience, func() { cancel(&transientError{err: stall}) })
	return ctx, w
}

func (w *watchdog) reset() { w.timer.Reset(w.patience) }

func (w *watchdog) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// cause is the silence that led to err, or err.
func (w *watchdog) cause(err error) error {
	var silent *transientError
	if errors.As(context.Cause(w.ctx), &silent) {
		return silent
	}
	return err
}
