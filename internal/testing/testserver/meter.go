package testserver

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// A Meter forwards requests to a DynamoDB server and counts what AWS would count: capacity units by partition key. A
// unit is 4 KiB read, half as much where a read need not be consistent, or 1 KiB written; each item, or page of a
// query, counts as one at least. With [Meter.Limit] it refuses what a partition key may not take.
type Meter struct {
	front  *httptest.Server
	target string
	client *http.Client

	mu        sync.Mutex
	sizes     map[[2]string]int // of items, by their keys
	used      map[string]Units
	limit     Units // in a second, by partition key; zero: none
	buckets   map[string]bucket
	throttled int
}

// Units are capacity units.
type Units struct{ Reads, Writes float64 }

// bucket is what a partition key may take at once: a second's worth.
type bucket struct {
	left Units
	at   time.Time
}

// NewMeter starts a Meter before the server at target. It ends with the test.
func NewMeter(tb TB, target string) *Meter {
	m := &Meter{
		target: target, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}},
		sizes: map[[2]string]int{}, used: map[string]Units{}, buckets: map[string]bucket{},
	}
	m.front = httptest.NewServer(m)
	tb.Cleanup(m.front.Close)
	return m
}

// URL is where the meter listens.
func (m *Meter) URL() string { return m.front.URL }

// Limit has requests refused, as AWS does, that a partition key may not take in a second: of a batch, those writes.
func (m *Meter) Limit(each Units) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = each
}

// Used returns the units by partition key, and how many requests were refused, and begins anew.
func (m *Meter) Used() (used map[string]Units, throttled int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	used, throttled = maps.Clone(m.used), m.throttled
	clear(m.used)
	m.throttled = 0
	return used, throttled
}

// meteredItem is an item or a key.
type meteredItem map[string]json.RawMessage

func (i meteredItem) text(name string) string {
	var v struct{ S string }
	_ = json.Unmarshal(i[name], &v)
	return v.S
}

func (i meteredItem) key() [2]string { return [2]string{i.text("PK"), i.text("SK")} }

// size is about what AWS takes for it: names and values.
func (i meteredItem) size() (n int) {
	for name, value := range i {
		n += len(name)
		var v struct {
			S, N string
			B    []byte
		}
		_ = json.Unmarshal(value, &v)
		n += max(len(v.S)+len(v.N)+len(v.B), 1)
	}
	return n
}

func (m *Meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBuffered))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, refused := m.part(op, body)
	if body == nil || op != batchWrite && !m.admit(op, partitionOfBody(body)) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"a partition key takes no more"}`)
		return
	}
	out, err := http.NewRequestWithContext(r.Context(), r.Method, m.target+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	resp, err := m.client.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxBuffered))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	m.count(op, body, answer, resp.StatusCode == http.StatusOK)
	maps.Copy(w.Header(), resp.Header)
	if len(refused) > 0 && resp.StatusCode == http.StatusOK {
		answer = unprocessed(answer, refused)
		w.Header().Del("Content-Length")
		w.Header().Del("X-Amz-Crc32")
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer)
}

// meteredRequest is what the meter reads of requests.
type meteredRequest struct {
	Item, Key                 meteredItem
	ExpressionAttributeValues meteredItem
	ConsistentRead            bool
	RequestItems              meteredWrites
}

// meteredWrites are those of a batch; batches of reads have another form.
type meteredWrites map[string][]struct {
	PutRequest    *struct{ Item meteredItem }
	DeleteRequest *struct{ Key meteredItem }
}

func (w *meteredWrites) UnmarshalJSON(data []byte) error {
	type plain meteredWrites
	if json.Unmarshal(data, (*plain)(w)) != nil {
		*w = nil
	}
	return nil
}

func kibs(size, unit int) float64 { return max(math.Ceil(float64(size)/float64(unit<<10)), 1) }

// batchWrite is the request that writes to several partition keys.
const batchWrite = "BatchWriteItem"

// batchItems are the writes of such a request, by table.
type batchItems map[string][]json.RawMessage

// part removes from a request the writes whose partition keys are exhausted, and returns these. As on AWS the others
// are made; body is nil if there are none.
func (m *Meter) part(op string, body []byte) (rest []byte, refused batchItems) {
	var fields map[string]json.RawMessage
	var items batchItems
	if op != batchWrite || json.Unmarshal(body, &fields) != nil || json.Unmarshal(fields["RequestItems"], &items) != nil {
		return body, nil
	}
	kept, refused := batchItems{}, batchItems{}
	for table, writes := range items {
		for _, write := range writes {
			var w struct {
				PutRequest    struct{ Item meteredItem }
				DeleteRequest struct{ Key meteredItem }
			}
			if err := json.Unmarshal(write, &w); err != nil {
				return body, nil
			}
			if pk := w.PutRequest.Item.key()[0] + w.DeleteRequest.Key.key()[0]; m.admit(op, pk) {
				kept[table] = append(kept[table], write)
			} else {
				refused[table] = append(refused[table], write)
			}
		}
	}
	if len(refused) == 0 {
		return body, nil
	}
	if len(kept) == 0 {
		return nil, refused
	}
	fields["RequestItems"] = marshal(kept)
	return marshal(fields), refused
}

// unprocessed adds writes that were not made to an answer.
func unprocessed(answer []byte, refused batchItems) []byte {
	var fields map[string]json.RawMessage
	var items batchItems
	if json.Unmarshal(answer, &fields) != nil {
		return answer
	}
	if json.Unmarshal(fields["UnprocessedItems"], &items) != nil || items == nil {
		items = batchItems{}
	}
	for table, writes := range refused {
		items[table] = append(items[table], writes...)
	}
	fields["UnprocessedItems"] = marshal(items)
	return marshal(fields)
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // what was decoded can be encoded
	}
	return b
}

func partitionOfBody(body []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return ""
	}
	return partitionOf(fields)
}

// admit tells whether a partition key is not exhausted. The units of a request are known after it, so a bucket may get
// below nothing.
func (m *Meter) admit(op, pk string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limit == (Units{}) {
		return true
	}
	b, now := m.buckets[pk], time.Now()
	if b.at.IsZero() {
		b.left = m.limit
	} else {
		passed := now.Sub(b.at).Seconds()
		b.left.Reads = min(b.left.Reads+passed*m.limit.Reads, m.limit.Reads)
		b.left.Writes = min(b.left.Writes+passed*m.limit.Writes, m.limit.Writes)
	}
	b.at = now
	m.buckets[pk] = b
	left := b.left.Writes
	if op == "GetItem" || op == "BatchGetItem" || op == "Query" {
		left = b.left.Reads
	}
	if left <= 0 {
		m.throttled++
	}
	return left > 0
}

// count counts what a request has taken.
func (m *Meter) count(op string, body, answer []byte, ok bool) {
	var in meteredRequest
	if json.Unmarshal(body, &in) != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	take := func(pk string, u Units) {
		used := m.used[pk]
		m.used[pk] = Units{used.Reads + u.Reads, used.Writes + u.Writes}
		if b, known := m.buckets[pk]; known {
			b.left.Reads -= u.Reads
			b.left.Writes -= u.Writes
			m.buckets[pk] = b
		}
	}
	put := func(key [2]string, size int) {
		take(key[0], Units{Writes: max(kibs(size, 1), kibs(m.sizes[key], 1))})
		if ok {
			m.sizes[key] = size
		}
	}
	remove := func(key [2]string) {
		take(key[0], Units{Writes: kibs(m.sizes[key], 1)})
		if ok {
			delete(m.sizes, key)
		}
	}
	share := 0.5
	if in.ConsistentRead {
		share = 1
	}
	switch op {
	case "PutItem":
		put(in.Item.key(), in.Item.size())
	case "UpdateItem": // the store's updates set all but the key
		put(in.Key.key(), in.Key.size()+in.ExpressionAttributeValues.size())
	case "DeleteItem":
		remove(in.Key.key())
	case "BatchWriteItem":
		for _, requests := range in.RequestItems {
			for _, r := range requests {
				if r.PutRequest != nil {
					put(r.PutRequest.Item.key(), r.PutRequest.Item.size())
				} else if r.DeleteRequest != nil {
					remove(r.DeleteRequest.Key.key())
				}
			}
		}
	case "BatchGetItem":
		var gets struct {
			RequestItems map[string]struct{ Keys []meteredItem }
		}
		_ = json.Unmarshal(body, &gets)
		for _, request := range gets.RequestItems {
			for _, key := range request.Keys {
				take(key.key()[0], Units{Reads: kibs(m.sizes[key.key()], 4)})
			}
		}
	case "GetItem":
		take(in.Key.key()[0], Units{Reads: share * kibs(m.sizes[in.Key.key()], 4)})
	case "Query":
		var fields map[string]json.RawMessage
		var out struct{ Items []meteredItem }
		if json.Unmarshal(body, &fields) != nil || json.Unmarshal(answer, &out) != nil {
			return
		}
		pk, size := partitionOf(fields), 0
		for _, item := range out.Items {
			size += m.sizes[[2]string{pk, item.text("SK")}]
		}
		take(pk, Units{Reads: share * kibs(size, 4)})
	}
}
