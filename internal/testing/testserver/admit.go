package testserver

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// Account is the account that ARNs of the servers name.
const Account = "123456789012"

// TableARN is the ARN of a table of the servers, as accesses name it.
func TableARN(table string) string {
	return "arn:aws:dynamodb:" + Region + ":" + Account + ":table/" + table
}

// Admit makes the proxy ask, before it forwards a request, whether each of its accesses is allowed; if one is not, the
// answer is that of AWS: access denied. As in AWS, an absent key is told from a forbidden one only where
// s3:ListBucket is allowed without a prefix. Several goroutines call allowed at once; nil admits everything.
func (p *Proxy) Admit(allowed func(Access) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.admit = allowed
}

// admits reports whether a request may be forwarded, and answers it if not.
func (p *Proxy) admits(w http.ResponseWriter, r *http.Request, op string) bool {
	p.mu.Lock()
	allowed := p.admit
	p.mu.Unlock()
	if allowed == nil {
		return true
	}
	for _, a := range accesses(r, op) {
		if !allowed(a) {
			deny(w, r, a)
			return false
		}
	}
	return true
}

// hides makes an answer that a key is absent one that it is forbidden, for a client that may not list the bucket.
func (p *Proxy) hides(resp *http.Response) {
	p.mu.Lock()
	allowed := p.admit
	p.mu.Unlock()
	op := operation(resp.Request)
	if allowed == nil || resp.StatusCode != http.StatusNotFound || op != "GetObject" && op != "HeadObject" {
		return
	}
	bucket, _, _ := strings.Cut(strings.TrimPrefix(resp.Request.URL.Path, "/"), "/")
	if allowed(Access{Action: "s3:ListBucket", Resource: "arn:aws:s3:::" + bucket, Absent: true}) {
		return
	}
	text := ""
	if op == "GetObject" {
		text = s3Error("AccessDenied", "Access Denied")
	}
	resp.Body.Close()
	resp.StatusCode, resp.Status = http.StatusForbidden, "403 Forbidden"
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	resp.Header.Set("Content-Length", fmt.Sprint(len(text)))
	resp.Header.Set("Content-Type", "application/xml")
}

// deny answers as the service does that an access is not allowed.
func deny(w http.ResponseWriter, r *http.Request, a Access) {
	message := fmt.Sprintf("User: arn:aws:iam::%s:user/tester is not authorized to perform: %s on resource: %s because no identity-based policy allows the %s action",
		Account, a.Action, a.Resource, a.Action)
	if r.Header.Get("X-Amz-Target") != "" {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusBadRequest)
		text, _ := json.Marshal(map[string]string{"__type": "com.amazon.coral.service#AccessDeniedException", "Message": message})
		_, _ = w.Write(text)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusForbidden)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, s3Error("AccessDenied", message))
	}
}

func s3Error(code, message string) string {
	return fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>%s</Message></Error>`, code, message)
}

// s3Actions are the actions of operations on S3 that have other names.
var s3Actions = map[string]string{
	"HeadBucket": "s3:ListBucket", "ListObjects": "s3:ListBucket", "ListMultipartUploads": "s3:ListBucketMultipartUploads",
	"HeadObject": "s3:GetObject", "DeleteObjects": "s3:DeleteObject", "ListParts": "s3:ListMultipartUploadParts",
	"CreateMultipartUpload": "s3:PutObject", "UploadPart": "s3:PutObject", "CompleteMultipartUpload": "s3:PutObject",
}

// accesses returns what a request does. It puts back the body that it reads.
func accesses(r *http.Request, op string) []Access {
	if r.Header.Get("X-Amz-Target") != "" {
		return tableAccesses(readBody(r), op)
	}
	action := "s3:" + op
	if other, ok := s3Actions[op]; ok {
		action = other
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	arn := "arn:aws:s3:::" + bucket
	switch {
	case op == "DeleteObjects":
		var named struct {
			Object []struct{ Key string }
		}
		if err := xml.Unmarshal(readBody(r), &named); err != nil || len(named.Object) == 0 {
			return []Access{{Action: "s3:unreadable", Resource: arn}}
		}
		var list []Access
		for _, o := range named.Object {
			list = append(list, Access{Action: action, Resource: arn + "/" + o.Key})
		}
		return list
	case key != "":
		return []Access{{Action: action, Resource: arn + "/" + key}}
	}
	a := Access{Action: action, Resource: arn}
	if query := r.URL.Query(); query.Has("prefix") {
		a.Context = map[string][]string{listPrefix: {query.Get("prefix")}}
	}
	return []Access{a}
}

func readBody(r *http.Request) []byte {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBuffered))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body
}

// tableAccesses returns what a request to DynamoDB does: of a batch for each of its tables, with the partition keys of
// all its items.
func tableAccesses(body []byte, op string) []Access {
	action := "dynamodb:" + op
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return []Access{{Action: action}}
	}
	var name string
	_ = json.Unmarshal(fields["TableName"], &name)
	type item struct{ PK struct{ S string } }
	var list []Access
	var puts map[string][]struct {
		PutRequest    struct{ Item item }
		DeleteRequest struct{ Key item }
	}
	var gets map[string]struct{ Keys []item }
	switch op {
	case "BatchWriteItem":
		_ = json.Unmarshal(fields["RequestItems"], &puts)
	case "BatchGetItem":
		_ = json.Unmarshal(fields["RequestItems"], &gets)
	case "Scan", "TransactWriteItems", "TransactGetItems":
		return []Access{{Action: action, Resource: TableARN(name)}}
	default:
		a := Access{Action: action, Resource: TableARN(name)}
		if pk := partitionOf(fields); pk != "" {
			a.Context = map[string][]string{leadingKeys: {pk}}
		}
		return []Access{a}
	}
	for table, requests := range puts {
		a := Access{Action: action, Resource: TableARN(table), Context: map[string][]string{}}
		for _, request := range requests {
			a.Context[leadingKeys] = append(a.Context[leadingKeys], request.PutRequest.Item.PK.S+request.DeleteRequest.Key.PK.S)
		}
		list = append(list, a)
	}
	for table, request := range gets {
		a := Access{Action: action, Resource: TableARN(table), Context: map[string][]string{}}
		for _, key := range request.Keys {
			a.Context[leadingKeys] = append(a.Context[leadingKeys], key.PK.S)
		}
		list = append(list, a)
	}
	for _, a := range list {
		slices.Sort(a.Context[leadingKeys])
		a.Context[leadingKeys] = slices.Compact(a.Context[leadingKeys])
	}
	return list
}
