package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"e3/objectstore"
)

// An Error is a request that failed for good.
type Error struct {
	Op      string // the operation, as in "put"
	Bucket  string
	Key     string // the key; empty for the whole bucket
	Code    string // the server's code, as in "AccessDenied"; empty if it gave none
	Status  int    // status of HTTP; 0 without an answer
	Request string // the server's id of the request, for its operators
	Advice  string // advice to the user; may be empty
	Right   string // the action that the credentials do not allow, as in "s3:PutObject"; empty for other failures
	Err     error
}

// Is makes a refusal for want of a right an [fs.ErrPermission].
func (e *Error) Is(target error) bool { return target == fs.ErrPermission && e.Right != "" }

func (e *Error) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s s3://%s", e.Op, e.Bucket)
	if e.Key != "" {
		s.WriteString("/" + e.Key)
	}
	s.WriteString(": ")
	if e.Code == codeNoSuchBucket { // the text for this code; the answer to a HEAD has no text
		fmt.Fprintf(&s, "the bucket %s does not exist (%s)", e.Bucket, e.Code)
		if e.Advice != "" {
			s.WriteString("; " + e.Advice)
		}
		return s.String()
	}
	if e.Code != "" {
		s.WriteString(printable(e.Code) + ": ")
	}
	s.WriteString(printable(message(e.Err)))
	if tries := (*retry.MaxAttemptsError)(nil); errors.As(e.Err, &tries) {
		fmt.Fprintf(&s, ", in %d attempts", tries.Attempt)
	}
	switch {
	case e.Status != 0 && e.Request != "":
		fmt.Fprintf(&s, " (status %d, request %s)", e.Status, printable(e.Request))
	case e.Status != 0:
		fmt.Fprintf(&s, " (status %d)", e.Status)
	}
	if e.Advice != "" {
		s.WriteString("; " + e.Advice)
	}
	return s.String()
}

// Unwrap returns the SDK's error.
func (e *Error) Unwrap() error { return e.Err }

// message is the server's message, or else the cause, without the SDK's wrapping.
func message(err error) string {
	if api := smithy.APIError(nil); errors.As(err, &api) {
		if m := api.ErrorMessage(); m != "" {
			return m
		}
	}
	if send := (*smithyhttp.RequestSendError)(nil); errors.As(err, &send) {
		err = send.Err
	} else if op := (*smithy.OperationError)(nil); errors.As(err, &op) {
		err = op.Err
	}
	if sent := (*url.Error)(nil); errors.As(err, &sent) { // its URL only repeats bucket and key
		err = sent.Err
	}
	return err.Error()
}

// printable makes a text of the server printable.
func printable(s string) string {
	const most = 500
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// failed makes an Error of err, which is not nil. For an absent key it wraps objectstore.ErrNotFound.
func (b *Bucket) failed(op, key string, err error) error {
	e := &Error{Op: op, Bucket: b.o.Bucket, Key: key, Code: code(err), Err: err}
	var region string
	if resp := (*smithyhttp.ResponseError)(nil); errors.As(err, &resp) && resp.Response != nil {
		e.Status = resp.HTTPStatusCode()
		region = resp.Response.Header.Get("X-Amz-Bucket-Region")
	}
	if resp := (*awshttp.ResponseError)(nil); errors.As(err, &resp) {
		e.Request = resp.ServiceRequestID()
	}
	if key != "" && absent(err) {
		return fmt.Errorf("s3://%s/%s: %w", b.o.Bucket, key, objectstore.ErrNotFound)
	}
	if e.Code == codeNotFound && key == "" {
		e.Code = codeNoSuchBucket // the answer to a HEAD has no body with a code
	}
	if e.Status == http.StatusForbidden && (e.Code == "AccessDenied" || e.Code == "Forbidden") {
		e.Right = right(op, key)
	}
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		e.Advice = advice(e, region)
	}
	return e
}

// unread is failed for a read of a key. Unless the credentials may list the whole bucket, S3 answers "access denied"
// for an absent key, too. Credentials for one prefix may list the keys there, and the list tells whether the key is
// absent.
func (b *Bucket) unread(ctx context.Context, op, key string, err error) error {
	failed := b.failed(op, key, err)
	if key == "" || !errors.Is(failed, fs.ErrPermission) {
		return failed
	}
	for k, err := range b.list(ctx, key) {
		if err != nil || k.key == key {
			return failed
		}
		break // lists are in order, so the key itself would be the first
	}
	return fmt.Errorf("s3://%s/%s: %w", b.o.Bucket, key, objectstore.ErrNotFound)
}

// right returns the action that an operation needs, on a key or, with "", on the bucket.
func right(op, key string) string {
	switch {
	case op == "create":
		return "s3:CreateBucket"
	case op == "list", key == "":
		return "s3:ListBucket"
	case strings.HasPrefix(op, "list unfinished"):
		return "s3:ListBucketMultipartUploads"
	case strings.HasPrefix(op, "remove an unfinished"):
		return "s3:AbortMultipartUpload"
	case op == "get", op == "look for", op == "ask for the time of":
		return "s3:GetObject"
	case strings.HasPrefix(op, "delete"):
		return "s3:DeleteObject"
	}
	return "s3:PutObject"
}

// code is the server's code in err, or "".
func code(err error) string {
	if api := smithy.APIError(nil); errors.As(err, &api) {
		if c := api.ErrorCode(); c != "UnknownError" {
			return c
		}
	}
	return ""
}

// absent reports whether err says that there is no such key, in a bucket that exists.
func absent(err error) bool {
	switch code(err) {
	case codeNoSuchKey, codeNotFound:
		return true
	case "":
		return status(err) == http.StatusNotFound
	}
	return false
}

// status is the status of the answer in err, or 0.
func status(err error) int {
	if resp := (*smithyhttp.ResponseError)(nil); errors.As(err, &resp) {
		return resp.HTTPStatusCode()
	}
	return 0
}

// precondition reports whether the server refused a conditional put because the key is taken.
func precondition(err error) bool {
	return code(err) == codePrecondition || status(err) == http.StatusPreconditionFailed
}

// unsupported reports whether the server does not offer the operation.
func unsupported(err error) bool {
	switch code(err) {
	case "NotImplemented", "MethodNotAllowed", "MissingContentMD5":
		return true
	}
	s := status(err)
	return s == http.StatusNotImplemented || s == http.StatusMethodNotAllowed
}

// advice says what the user can do about e.
func advice(e *Error, region string) string {
	switch e.Code {
	case codeNoSuchBucket:
		return "create it, or correct its name, or the endpoint or the account that is asked"
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "ExpiredTokenException":
		return "renew the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a login)"
	case "RequestTimeTooSkewed":
		return "the clock of this machine is wrong: set it"
	case "PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "BadRegion":
		return regionAdvice(region)
	case "SlowDown", "ServiceUnavailable":
		return "the server asks for fewer requests: try again later, or with fewer jobs"
	}
	switch e.Status {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusBadRequest:
		if region != "" || e.Status == http.StatusMovedPermanently {
			return regionAdvice(region)
		}
		if e.Code == "BadRequest" { // the answer to a HEAD has this code, too
			return "the server may be of another region (AWS_REGION), or the credentials may have expired"
		}
	case http.StatusForbidden, http.StatusUnauthorized:
		need := "the credentials need " + permissions
		if e.Right != "" && e.Key != "" {
			need = "the credentials need " + e.Right + " there"
			if e.Right == "s3:GetObject" {
				need += ", and s3:ListBucket for its prefix"
			}
		}
		if e.Op == "create" {
			need = "the credentials need s3:CreateBucket, unless the bucket exists, and " + permissions
		}
		if e.Code == "Forbidden" { // the answer to a HEAD has no body with more
			need = "if they are the right ones, " + need
		}
		return need
	}
	// The SDK has no type for a failure to sign.
	if e.Status == 0 && strings.Contains(e.Err.Error(), "get identity: ") {
		return credentialsAdvice
	}
	return ""
}

// permissions are the actions that all requests to an existing bucket need; doc/dynamodb.yaml lists the same actions.
const permissions = "s3:ListBucket and s3:ListBucketMultipartUploads on the bucket, " +
	"and s3:GetObject, s3:PutObject, s3:DeleteObject and s3:AbortMultipartUpload on its objects"

const credentialsAdvice = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or log in"

func regionAdvice(region string) string {
	if region == "" {
		return "the bucket is in another region: name it (AWS_REGION, or in the location)"
	}
	return fmt.Sprintf("the bucket is in the region %q: name it (AWS_REGION, or in the location)", printable(region))
}
