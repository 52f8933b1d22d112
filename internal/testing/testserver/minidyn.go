package testserver

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/truora/minidyn/server"
)

// Minidyn starts a DynamoDB server in this process and returns its URL. It enforces no size limits.
func Minidyn(tb TB) string {
	tb.Helper()
	return serve(tb, &partitioned{tables: server.NewServer(), made: map[string]*partitionedTable{}})
}

// partitioned serves each partition key from a minidyn of its own, because minidyn answers one request at a time, and
// parses a query's condition for every item of the table. A request about no single partition key is asked of all, and the
// answers are joined.
type partitioned struct {
	mu     sync.RWMutex   // held to read while a request about items is answered
	tables *server.Server // knows the tables, and has no items
	made   map[string]*partitionedTable
}

// partitionedTable is a table's items.
type partitionedTable struct {
	hash, create string // the attribute that is the partition key; the request that made the table

	mu    sync.Mutex
	parts map[string]*server.Server // by partition key, as JSON
}

// asked is what a request says about where its items are.
type asked struct {
	TableName                 string
	Item, Key                 map[string]json.RawMessage
	KeyConditionExpression    string
	ExpressionAttributeNames  map[string]string
	ExpressionAttributeValues map[string]json.RawMessage
	KeySchema                 []struct{ AttributeName, KeyType string }
	RequestItems              map[string]json.RawMessage
}

// ServeHTTP implements [http.Handler].
func (p *partitioned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The body is read without a lock: a client that stops half-way delays no other.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // it is gone
	}
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	answer := p.answer(op, body)
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = answer.Body.WriteTo(w)
}

func (p *partitioned) answer(op string, body []byte) *httptest.ResponseRecorder {
	var in asked
	if err := json.Unmarshal(body, &in); err != nil {
		return ask(p.tables, op, body) // which refuses it
	}
	if strings.HasSuffix(op, "Table") {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.table(op, in, body)
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if len(in.RequestItems) > 0 {
		return p.batch(op, in, body)
	}
	table := p.made[in.TableName]
	if table == nil {
		return ask(p.tables, op, body) // which knows no such table, or no such request
	}
	if op == "Scan" {
		return joined(op, table.all(), body)
	}
	return ask(table.part(table.key(in)), op, body)
}

// table makes, describes and removes tables. The request that made a table makes it in each part.
func (p *partitioned) table(op string, in asked, body []byte) *httptest.ResponseRecorder {
	answer := ask(p.tables, op, body)
	if answer.Code != http.StatusOK {
		return answer
	}
	switch op {
	case "CreateTable":
		made := &partitionedTable{create: string(body), parts: map[string]*server.Server{}}
		for _, attribute := range in.KeySchema {
			if attribute.KeyType == "HASH" {
				made.hash = attribute.AttributeName
			}
		}
		p.made[in.TableName] = made
	case "DeleteTable":
		delete(p.made, in.TableName)
	}
	return answer
}

// batch gives each item of a batch to its part, one request each in order, and joins the answers.
func (p *partitioned) batch(op string, in asked, body []byte) *httptest.ResponseRecorder {
	type part struct {
		server *server.Server
		body   []byte
	}
	var parts []part
	add := func(name, key string, request any) {
		one, _ := json.Marshal(map[string]any{"RequestItems": map[string]any{name: request}})
		parts = append(parts, part{p.made[name].part(key), one})
	}
	for name, raw := range in.RequestItems {
		table := p.made[name]
		if table == nil {
			return ask(p.tables, op, body)
		}
		switch op {
		case "BatchWriteItem":
			var writes []map[string]asked
			var each []json.RawMessage
			if json.Unmarshal(raw, &writes) != nil || json.Unmarshal(raw, &each) != nil {
				return ask(p.tables, op, body)
			}
			for i, write := range writes {
				for _, request := range write { // PutRequest or DeleteRequest
					add(name, table.key(request), []json.RawMessage{each[i]})
				}
			}
		case "BatchGetItem":
			var keys struct{ Keys []map[string]json.RawMessage }
			var rest map[string]any
			if json.Unmarshal(raw, &keys) != nil || json.Unmarshal(raw, &rest) != nil {
				return ask(p.tables, op, body)
			}
			for _, key := range keys.Keys {
				rest["Keys"] = []any{key}
				add(name, table.key(asked{Key: key}), rest)
			}
		default:
			return ask(p.tables, op, body)
		}
	}
	if limit := map[string]int{"BatchWriteItem": 25, "BatchGetItem": 100}[op]; len(parts) > limit {
		return ask(p.tables, op, body) // which refuses it
	}
	answers := make([]*httptest.ResponseRecorder, 0, len(parts))
	for _, each := range parts {
		answers = append(answers, ask(each.server, op, each.body))
	}
	return join(answers)
}

var ofPartition = regexp.MustCompile(`^\s*(#?\w+)\s*=\s*(:\w+)`)

// key is the partition key that a request is about, as JSON; "" when it names none.
func (t *partitionedTable) key(in asked) string {
	value := in.Item[t.hash]
	if value == nil {
		value = in.Key[t.hash]
	}
	if m := ofPartition.FindStringSubmatch(in.KeyConditionExpression); m != nil {
		if m[1] == t.hash || in.ExpressionAttributeNames[m[1]] == t.hash {
			value = in.ExpressionAttributeValues[m[2]]
		}
	}
	var key map[string]string // one form, however the client writes it
	if json.Unmarshal(value, &key) != nil {
		return string(value)
	}
	text, _ := json.Marshal(key)
	return string(text)
}

// part returns the server of a partition key, which it starts when there is none.
func (t *partitionedTable) part(key string) *server.Server {
	t.mu.Lock()
	defer t.mu.Unlock()
	part := t.parts[key]
	if part == nil {
		part = server.NewServer()
		ask(part, "CreateTable", []byte(t.create))
		t.parts[key] = part
	}
	return part
}

// all returns the servers of all partition keys, in their order; that of none, when there are none.
func (t *partitionedTable) all() []*server.Server {
	t.mu.Lock()
	keys := slices.Sorted(maps.Keys(t.parts))
	t.mu.Unlock()
	if len(keys) == 0 {
		keys = []string{""}
	}
	var list []*server.Server
	for _, key := range keys {
		list = append(list, t.part(key))
	}
	return list
}

// joined asks all of them the same.
func joined(op string, parts []*server.Server, body []byte) *httptest.ResponseRecorder {
	answers := make([]*httptest.ResponseRecorder, 0, len(parts))
	for _, part := range parts {
		answers = append(answers, ask(part, op, body))
	}
	return join(answers)
}

// join returns the first answer that is a failure, or one with the items of all.
func join(answers []*httptest.ResponseRecorder) *httptest.ResponseRecorder {
	if len(answers) == 1 {
		return answers[0]
	}
	var whole any
	for _, answer := range answers {
		var each any
		if answer.Code != http.StatusOK || json.Unmarshal(answer.Body.Bytes(), &each) != nil {
			return answer
		}
		whole = merge(whole, each)
	}
	joined := httptest.NewRecorder()
	maps.Copy(joined.Header(), answers[0].Header())
	joined.Code = http.StatusOK
	_ = json.NewEncoder(joined.Body).Encode(whole)
	return joined
}

// merge adds numbers, appends lists, and does so with the fields of objects.
func merge(a, b any) any {
	switch b := b.(type) {
	case float64:
		if a, ok := a.(float64); ok {
			return a + b
		}
	case []any:
		if a, ok := a.([]any); ok {
			return append(a, b...)
		}
	case map[string]any:
		if a, ok := a.(map[string]any); ok {
			for name, value := range b {
				a[name] = merge(a[name], value)
			}
			return a
		}
	case nil:
		return a
	}
	return b
}

// ask gives a request to a minidyn.
func ask(s *server.Server, op string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, r)
	return answer
}
