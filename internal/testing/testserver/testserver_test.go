package testserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"

	"e3/internal/testing/testserver"
)

// The servers by name, and each behind a proxy that does nothing.
var (
	dynamoServers = map[string]func(testserver.TB) string{"minidyn": testserver.Minidyn, "dynalite": testserver.Dynalite}
	s3Servers     = map[string]func(testserver.TB) string{"gofakes3": testserver.GoFakeS3, "versitygw": testserver.VersityGW}
)

func dynamoClient(endpoint string, options ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.NewFromConfig(testserver.Config(), append(options, func(o *dynamodb.Options) { o.BaseEndpoint = aws.String(endpoint) })...)
}

func s3Client(endpoint string, options ...func(*s3.Options)) *s3.Client {
	return s3.NewFromConfig(testserver.Config(), append(options, func(o *s3.Options) {
		o.BaseEndpoint = aws.String(endpoint)
		o.UsePathStyle = true
	})...)
}

func createTable(t *testing.T, c *dynamodb.Client) string {
	t.Helper()
	table := testserver.Name()
	_, err := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:            &table,
		BillingMode:          dynamotypes.BillingModePayPerRequest,
		AttributeDefinitions: []dynamotypes.AttributeDefinition{{AttributeName: aws.String("PK"), AttributeType: dynamotypes.ScalarAttributeTypeS}},
		KeySchema:            []dynamotypes.KeySchemaElement{{AttributeName: aws.String("PK"), KeyType: dynamotypes.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// putItem creates an item unless it is there.
func putItem(ctx context.Context, c *dynamodb.Client, table, key string) error {
	_, err := c.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:           &table,
		Item:                map[string]dynamotypes.AttributeValue{"PK": &dynamotypes.AttributeValueMemberS{Value: key}},
		ConditionExpression: aws.String("attribute_not_exists(PK)"),
	})
	return err
}

func hasItem(t *testing.T, c *dynamodb.Client, table, key string) bool {
	t.Helper()
	got, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: &table, ConsistentRead: aws.Bool(true),
		Key: map[string]dynamotypes.AttributeValue{"PK": &dynamotypes.AttributeValueMemberS{Value: key}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return got.Item != nil
}

// code returns the service's code of an error, "" where it is none of a service's.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

func TestDynamoServers(t *testing.T) {
	for name, serve := range dynamoServers {
		for _, proxied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s proxied=%v", name, proxied), func(t *testing.T) {
				url := serve(t)
				if proxied {
					url = testserver.NewProxy(t, url).URL()
				}
				c := dynamoClient(url)
				table := createTable(t, c)
				if err := putItem(t.Context(), c, table, "k"); err != nil {
					t.Fatal(err)
				}
				if err := putItem(t.Context(), c, table, "k"); code(err) != "ConditionalCheckFailedException" {
					t.Errorf("second conditional put: %v", err)
				}
				if !hasItem(t, c, table, "k") {
					t.Error("what was put is not there")
				}
			})
		}
	}
}

func TestS3Servers(t *testing.T) {
	for name, serve := range s3Servers {
		for _, proxied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s proxied=%v", name, proxied), func(t *testing.T) {
				url := serve(t)
				if proxied {
					url = testserver.NewProxy(t, url).URL()
				}
				c, bucket := s3Client(url), testserver.Name()
				if _, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
					t.Fatal(err)
				}
				content := bytes.Repeat([]byte("0123456789"), 300_000)
				put := func(content []byte) error {
					_, err := c.PutObject(t.Context(), &s3.PutObjectInput{
						Bucket: &bucket, Key: aws.String("folder/a b+c"), Body: bytes.NewReader(content), IfNoneMatch: aws.String("*"),
					})
					return err
				}
				if err := put(content); err != nil {
					t.Fatal(err)
				}
				if err := put(nil); code(err) != "PreconditionFailed" {
					t.Errorf("second conditional put: %v", err)
				}
				got, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: aws.String("folder/a b+c")})
				if err != nil {
					t.Fatal(err)
				}
				defer got.Body.Close()
				if read, err := io.ReadAll(got.Body); err != nil || !bytes.Equal(read, content) {
					t.Errorf("read %d bytes, %v; want the %d that were put", len(read), err, len(content))
				}
			})
		}
	}
}

// A client that breaks off in the middle of a request does no harm to others.
func TestDynaliteSurvives(t *testing.T) {
	url := testserver.Dynalite(t)
	for range 20 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	createTable(t, dynamoClient(url))
}
