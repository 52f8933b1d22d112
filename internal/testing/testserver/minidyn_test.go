package testserver_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/internal/testing/testserver"
)

// TestPartitions: batches and scans reach the items of all partition keys, and a batch that is too large writes nothing.
func TestPartitions(t *testing.T) {
	for name, serve := range dynamoServers {
		t.Run(name, func(t *testing.T) {
			c := dynamoClient(serve(t))
			table := createTable(t, c)
			key := func(n int) map[string]dynamotypes.AttributeValue {
				return map[string]dynamotypes.AttributeValue{"PK": &dynamotypes.AttributeValueMemberS{Value: strconv.Itoa(n)}}
			}
			write := func(n int) error {
				var writes []dynamotypes.WriteRequest
				for i := range n {
					writes = append(writes, dynamotypes.WriteRequest{PutRequest: &dynamotypes.PutRequest{Item: key(i)}})
				}
				_, err := c.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]dynamotypes.WriteRequest{table: writes}})
				return err
			}
			scan := func() int {
				out, err := c.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
				if err != nil {
					t.Fatal(err)
				}
				return len(out.Items)
			}
			if err := write(26); code(err) != "ValidationException" {
				t.Errorf("a batch of 26 writes: %v, want a ValidationException", err)
			}
			if got := scan(); got != 0 {
				t.Errorf("after a batch that was refused: %d items, want none", got)
			}
			if err := write(3); err != nil {
				t.Fatal(err)
			}
			if got := scan(); got != 3 {
				t.Errorf("a scan finds %d items, want 3", got)
			}
			keys := dynamotypes.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
			for n := range 5 {
				keys.Keys = append(keys.Keys, key(n))
			}
			out, err := c.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: map[string]dynamotypes.KeysAndAttributes{table: keys}})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, item := range out.Responses[table] {
				got[item["PK"].(*dynamotypes.AttributeValueMemberS).Value] = true
			}
			if want := []string{"0", "1", "2"}; !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
				t.Errorf("a batch of reads finds %v, want %v", got, want)
			}
		})
	}
	c := dynamoClient(testserver.Minidyn(t))
	if _, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("none"), Key: map[string]dynamotypes.AttributeValue{
		"PK": &dynamotypes.AttributeValueMemberS{Value: "k"},
	}}); code(err) != "ResourceNotFoundException" {
		t.Errorf("an item of a table that is not there: %v", err)
	}
}
