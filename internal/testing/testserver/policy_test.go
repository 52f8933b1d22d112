package testserver

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
)

// TestPolicy compares what a policy allows with what AWS's rules say.
func TestPolicy(t *testing.T) {
	p, err := ParsePolicy([]byte(`{"Version": "2012-10-17", "Statement": [
		{"Sid": "R", "Effect": "Allow", "Action": ["dynamodb:GetItem", "dynamodb:Q*"], "Resource": "arn:t",
		 "Condition": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["RUNS/team", "LOG/team/*"]}}},
		{"Sid": "L", "Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:b", "Condition": {"StringLike": {"s3:prefix": "team/?/*"}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	keys := func(keys ...string) map[string][]string { return map[string][]string{leadingKeys: keys} }
	prefix := func(text string) map[string][]string { return map[string][]string{listPrefix: {text}} }
	for _, tt := range []struct {
		access Access
		want   bool
	}{
		{Access{Action: "dynamodb:GetItem", Resource: "arn:t", Context: keys("RUNS/team")}, true},
		{Access{Action: "dynamodb:getitem", Resource: "arn:t", Context: keys("RUNS/team")}, true},
		{Access{Action: "dynamodb:Query", Resource: "arn:t", Context: keys("LOG/team/a/b")}, true},
		{Access{Action: "dynamodb:Query", Resource: "arn:t", Context: keys("LOG/team/a", "RUNS/team")}, true},
		{Access{Action: "dynamodb:Query", Resource: "arn:t", Context: keys("LOG/team/a", "RUNS/other")}, false},
		{Access{Action: "dynamodb:Query", Resource: "arn:t"}, true}, // AWS: all of no values
		{Access{Action: "dynamodb:GetItem", Resource: "arn:t", Context: keys("RUNS/team2")}, false},
		{Access{Action: "dynamodb:GetItem", Resource: "arn:u", Context: keys("RUNS/team")}, false},
		{Access{Action: "dynamodb:PutItem", Resource: "arn:t", Context: keys("RUNS/team")}, false},
		{Access{Action: "s3:ListBucket", Resource: "arn:b", Context: prefix("team/x/y/z")}, true},
		{Access{Action: "s3:ListBucket", Resource: "arn:b", Context: prefix("team/xx/y")}, false},
		{Access{Action: "s3:ListBucket", Resource: "arn:b"}, false}, // the key is not there
	} {
		if got := p.Allowing(tt.access) != nil; got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.access, got, tt.want)
		}
	}
	for _, text := range []string{
		`{"Version": "2008-10-17", "Statement": []}`,
		`{"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Action": "*", "Resource": "*"}]}`,
		`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "NotAction": "*", "Resource": "*"}]}`,
		`{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "a", "Resource": "*", "Condition": {"StringNotLike": {"k": "v"}}}]}`,
	} {
		if _, err := ParsePolicy([]byte(text)); err == nil {
			t.Errorf("%s is taken for a policy", text)
		}
	}
}

// TestAdmit makes requests that are denied, as AWS denies them, and hides the absence of keys.
func TestAdmit(t *testing.T) {
	ctx := context.Background()
	denied := map[string]bool{}
	var asked []string
	admit := func(p *Proxy) string {
		p.Admit(func(a Access) bool {
			asked = append(asked, a.String())
			return !denied[a.Action]
		})
		return p.URL()
	}
	table := dynamodb.NewFromConfig(Config(), func(o *dynamodb.Options) {
		o.BaseEndpoint = aws.String(admit(NewProxy(t, Minidyn(t))))
	})
	bucket := s3.NewFromConfig(Config(), func(o *s3.Options) {
		o.BaseEndpoint, o.UsePathStyle = aws.String(admit(NewProxy(t, GoFakeS3(t)))), true
	})
	denied["dynamodb:BatchWriteItem"] = true
	item := func(pk string) types.WriteRequest {
		key := map[string]types.AttributeValue{"PK": &types.AttributeValueMemberS{Value: pk}}
		return types.WriteRequest{PutRequest: &types.PutRequest{Item: key}}
	}
	_, err := table.BatchWriteItem(ctx, &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"t-t": {item("B/x"), item("A/x"), item("B/x")}}})
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != "AccessDeniedException" || !strings.Contains(api.ErrorMessage(), "dynamodb:BatchWriteItem") {
		t.Fatalf("got %v", err)
	}
	if want := `dynamodb:BatchWriteItem ` + TableARN("t-t") + ` dynamodb:LeadingKeys=["A/x" "B/x"]`; asked[0] != want {
		t.Fatalf("asked %q, want %q", asked[0], want)
	}
	if _, err := bucket.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("b-b")}); err != nil {
		t.Fatal(err)
	}
	for _, lists := range []bool{true, false} {
		denied["s3:ListBucket"] = !lists
		_, err = bucket.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("b-b"), Key: aws.String("none")})
		var answer *awshttp.ResponseError
		want := map[bool]int{true: http.StatusNotFound, false: http.StatusForbidden}[lists]
		if !errors.As(err, &answer) || answer.HTTPStatusCode() != want {
			t.Fatalf("an absent key, list=%v: %v, want status %d", lists, err, want)
		}
	}
}
