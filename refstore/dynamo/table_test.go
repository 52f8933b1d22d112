package dynamo_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/internal/testing/testserver"
	"e3/refstore/dynamo"
)

func TestCreateTable(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		if srv.table != "" {
			t.Skip("it makes tables of its own; run without E3_TEST_DYNAMODB_ENDPOINT")
		}
		o := dynamo.Options{Config: srv.config, Endpoint: srv.endpoint(t), Table: testserver.Name()}
		for _, created := range []bool{true, false} {
			got, err := dynamo.CreateTable(t.Context(), o)
			if err != nil || got.Created != created {
				t.Fatalf("got %+v, %v, want created: %v", got, err, created)
			}
		}
		o.Table = testserver.Name()
		client := dynamodb.NewFromConfig(o.Config, func(c *dynamodb.Options) { c.BaseEndpoint = &o.Endpoint })
		_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
			TableName: &o.Table, BillingMode: types.BillingModePayPerRequest,
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dynamo.CreateTable(t.Context(), o); err == nil || !strings.Contains(err.Error(), "HASH id") {
			t.Errorf("another table of that name: got error %v, want one that names its keys", err)
		}
	})
}
