package testserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Proxy forwards requests to a server, counts them by operation, and makes them fail as [Proxy.Faults] says. All its
// methods are safe for concurrent use.
//
// Operations have the names that the services' own interfaces give them: PutItem, Query, GetObject, UploadPart.
type Proxy struct {
	front   *httptest.Server
	forward *httputil.ReverseProxy
	closed  chan struct{}

	mu       sync.Mutex
	calls    map[string]int
	units    float64
	watch    func(Call)        // nil: no watcher
	admit    func(Access) bool // nil: everything
	struck   map[Fault]int
	rules    []rule
	random   *rand.Rand
	released chan struct{} // closed when what hangs may go on
	link     link
	restored chan struct{} // closed when the link is whole; nil while it is

	bandwidth int64     // bytes of answers a second; 0: any number
	free      time.Time // when the line has sent what was passed on so far
}

// A link is the state of the connection between a client and its server.
type link int

const (
	whole link = iota
	silent
	refusing
)

// maxBuffered bounds the bodies that the proxy has to hold: requests that hang, and what DynamoDB answers.
const maxBuffered = 64 << 20

// NewProxy starts a proxy in front of the server at target. It ends with the test.
func NewProxy(tb TB, target string) *Proxy {
	tb.Helper()
	to, err := url.Parse(target)
	if err != nil {
		tb.Fatalf("proxy: %v", err)
	}
	p := &Proxy{
		closed: make(chan struct{}), released: make(chan struct{}),
		calls: map[string]int{}, struck: map[Fault]int{},
	}
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 256,
		DisableCompression:  true,
		// A server that refuses a large body before it is sent can say so.
		ExpectContinueTimeout: time.Second,
	}
	p.forward = &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // it is signed
		},
		ModifyResponse: p.meter,
		// A server that cannot be reached looks like that from here too.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	}
	p.front = httptest.NewUnstartedServer(p)
	p.front.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.front.Start()
	tb.Cleanup(func() {
		close(p.closed)
		p.front.CloseClientConnections()
		p.front.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// URL is where the proxy listens.
func (p *Proxy) URL() string { return p.front.URL }

// Calls returns how many requests of each operation have come, those included that failed or were not forwarded.
func (p *Proxy) Calls() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls)
}

// Units returns the sum of the capacity units that a DynamoDB server said the requests consumed. The proxy asks for them. A server
// that does not say counts as none.
func (p *Proxy) Units() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.units
}

// Struck returns how many requests met each fault.
func (p *Proxy) Struck() map[Fault]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.struck)
}

// Reset sets all counts back to nothing. The rules stay.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.calls)
	clear(p.struck)
	p.units = 0
}

// Cut lets nothing through any more, in either direction, without a word: a request that has been forwarded takes effect, and its
// answer is lost. Connections can still be made, as to a machine behind a cable that was pulled a moment later.
func (p *Proxy) Cut() { p.setLink(silent) }

// Refuse closes all connections, and new ones as soon as they send something.
func (p *Proxy) Refuse() { p.setLink(refusing) }

// Restore ends Cut and Refuse. Requests that came meanwhile are not forwarded: their connections break.
func (p *Proxy) Restore() { p.setLink(whole) }

func (p *Proxy) setLink(to link) {
	p.mu.Lock()
	p.link = to
	if to == whole && p.restored != nil {
		close(p.restored)
		p.restored = nil
	}
	if to != whole && p.restored == nil {
		p.restored = make(chan struct{})
	}
	p.mu.Unlock()
	if to == refusing {
		p.front.CloseClientConnections()
	}
}

// pass returns if the link is whole. Otherwise it breaks the connection, a silent one only once it is whole again.
func (p *Proxy) pass(r *http.Request) {
	p.mu.Lock()
	state, restored := p.link, p.restored
	p.mu.Unlock()
	switch state {
	case whole:
		return
	case silent:
		select {
		case <-restored:
		case <-r.Context().Done():
		case <-p.closed:
		}
	}
	panic(http.ErrAbortHandler)
}

// ServeHTTP forwards a request or makes it fail.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op := operation(r)
	p.mu.Lock()
	p.calls[op]++
	p.mu.Unlock()
	r, tell := p.watched(r, op)
	defer tell()
	p.pass(r)
	if !p.admits(w, r, op) {
		return
	}
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		askForCapacity(r, op)
	}
	// Whatever way this ends, the server's answer is not kept open.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	w = &answer{ResponseWriter: w, proxy: p, request: r}
	fault, delay, released := p.draw(op)
	switch fault {
	case Throttle, Fail:
		refuse(w, r, op, fault)
	case DropBefore:
		panic(http.ErrAbortHandler)
	case DropAfter:
		p.forward.ServeHTTP(&lost{header: http.Header{}, room: -1}, r)
		panic(http.ErrAbortHandler)
	case DropWithin:
		p.forward.ServeHTTP(&torn{ResponseWriter: w}, r)
		panic(http.ErrAbortHandler)
	case DelayBefore:
		p.wait(r, delay)
		p.pass(r)
		p.forward.ServeHTTP(w, r)
	case DelayAfter:
		late := &lost{header: http.Header{}, room: maxBuffered}
		p.forward.ServeHTTP(late, r)
		p.wait(r, delay)
		late.sendTo(w)
	case Hang:
		p.hang(w, r, released)
	case Double:
		p.double(w, r)
	default:
		p.forward.ServeHTTP(w, r)
	}
}

// wait returns after a delay, or breaks the connection of a request that is given up.
func (p *Proxy) wait(r *http.Request, delay time.Duration) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-p.closed:
		panic(http.ErrAbortHandler)
	}
}

// double forwards a request twice and passes on the second answer.
func (p *Proxy) double(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBuffered))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	first := r.Clone(r.Context())
	first.Body = io.NopCloser(bytes.NewReader(body))
	p.forward.ServeHTTP(&lost{header: http.Header{}, room: -1}, first)
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.forward.ServeHTTP(w, r)
}

// hang holds a request until [Proxy.Release], and forwards it then, also where its sender has given up.
func (p *Proxy) hang(w http.ResponseWriter, r *http.Request, released <-chan struct{}) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBuffered))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	select {
	case <-released:
	case <-p.closed:
		panic(http.ErrAbortHandler)
	}
	late := r.Clone(context.WithoutCancel(r.Context()))
	late.Body = io.NopCloser(bytes.NewReader(body))
	if r.Context().Err() != nil {
		w = &lost{header: http.Header{}, room: -1}
	}
	p.forward.ServeHTTP(w, late)
}

// An answer goes to the client unless the link has been cut by then.
type answer struct {
	http.ResponseWriter
	proxy   *Proxy
	request *http.Request
}

func (a *answer) WriteHeader(status int) {
	a.proxy.pass(a.request)
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(data []byte) (int, error) {
	a.proxy.pass(a.request)
	a.proxy.pace(a.request, len(data))
	return a.ResponseWriter.Write(data)
}

// Flush sends what has been written.
func (a *answer) Flush() {
	if f, ok := a.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// A lost answer is kept, up to room bytes of it; with a negative room it is dropped.
type lost struct {
	header http.Header
	status int
	room   int
	body   bytes.Buffer
}

func (l *lost) Header() http.Header    { return l.header }
func (l *lost) WriteHeader(status int) { l.status = status }

func (l *lost) Write(data []byte) (int, error) {
	if l.room >= 0 {
		if l.body.Len()+len(data) > l.room {
			return 0, fmt.Errorf("an answer that is delayed has more than %d bytes", l.room)
		}
		l.body.Write(data)
	}
	return len(data), nil
}

func (l *lost) sendTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), l.header)
	w.WriteHeader(max(l.status, http.StatusOK))
	w.Write(l.body.Bytes())
}

// A torn answer breaks off half-way.
type torn struct {
	http.ResponseWriter
	remaining int64
}

func (t *torn) WriteHeader(status int) {
	size, err := strconv.ParseInt(t.Header().Get("Content-Length"), 10, 64)
	if err != nil {
		size = 2 // of unknown length: the first byte
	}
	t.remaining = size / 2
	t.ResponseWriter.WriteHeader(status)
}

func (t *torn) Write(data []byte) (int, error) {
	n, err := t.ResponseWriter.Write(data[:min(int64(len(data)), t.remaining)])
	t.remaining -= int64(n)
	if t.remaining == 0 || err != nil {
		if f, ok := t.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

// operation returns the name of the operation that a request asks for.
func operation(r *http.Request) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		_, name, _ := strings.Cut(target, ".")
		return name
	}
	query := r.URL.Query()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	inner := key != ""
	switch {
	case query.Has("uploadId"):
		switch r.Method {
		case http.MethodPut:
			return "UploadPart"
		case http.MethodPost:
			return "CompleteMultipartUpload"
		case http.MethodDelete:
			return "AbortMultipartUpload"
		default:
			return "ListParts"
		}
	case query.Has("uploads") && r.Method == http.MethodPost:
		return "CreateMultipartUpload"
	case query.Has("uploads"):
		return "ListMultipartUploads"
	case query.Has("delete") && r.Method == http.MethodPost:
		return "DeleteObjects"
	case inner && r.Method == http.MethodGet:
		return "GetObject"
	case inner && r.Method == http.MethodHead:
		return "HeadObject"
	case inner && r.Method == http.MethodPut:
		return "PutObject"
	case inner && r.Method == http.MethodDelete:
		return "DeleteObject"
	case bucket != "" && r.Method == http.MethodGet:
		for _, what := range []struct{ parameter, name string }{
			{"location", "GetBucketLocation"}, {"versioning", "GetBucketVersioning"}, {"lifecycle", "GetBucketLifecycleConfiguration"},
		} {
			if query.Has(what.parameter) {
				return what.name
			}
		}
		return "ListObjects"
	case bucket != "" && r.Method == http.MethodHead:
		return "HeadBucket"
	case bucket != "" && r.Method == http.MethodPut:
		return "CreateBucket"
	case bucket != "" && r.Method == http.MethodDelete:
		return "DeleteBucket"
	case r.Method == http.MethodGet:
		return "ListBuckets"
	}
	return r.Method
}

// metered are the operations that can be asked for the capacity that they consume.
var metered = []string{
	"GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "Scan",
	"BatchGetItem", "BatchWriteItem", "TransactGetItems", "TransactWriteItems",
}

// askForCapacity makes a DynamoDB server say what a request consumes. Servers for tests do not verify the body's signature.
func askForCapacity(r *http.Request, op string) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBuffered))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var fields map[string]json.RawMessage
	for _, name := range metered {
		if name != op || json.Unmarshal(body, &fields) != nil || fields == nil {
			continue
		}
		callOf(r).Subject = partitionOf(fields)
		if fields["ReturnConsumedCapacity"] == nil {
			fields["ReturnConsumedCapacity"] = json.RawMessage(`"TOTAL"`)
			if more, err := json.Marshal(fields); err == nil {
				body = more
			}
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
}

// meter adds up the capacity that a DynamoDB server says was consumed. Of S3's answers it hides what [Proxy.Admit] says.
func (p *Proxy) meter(resp *http.Response) error {
	if resp.Request.Header.Get("X-Amz-Target") == "" {
		p.hides(resp)
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBuffered))
	resp.Body.Close()
	if err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	type capacity struct{ CapacityUnits float64 }
	var one struct{ ConsumedCapacity capacity }
	var many struct{ ConsumedCapacity []capacity }
	if json.Unmarshal(body, &one) != nil {
		json.Unmarshal(body, &many)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	units := one.ConsumedCapacity.CapacityUnits
	for _, c := range many.ConsumedCapacity {
		units += c.CapacityUnits
	}
	p.units += units
	callOf(resp.Request).Units = units
	return nil
}
