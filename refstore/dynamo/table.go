package dynamo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"e3/internal/backoff"
)

// Identity distinguishes tables of the same name. A field is empty if the server does not report it.
type Identity struct {
	ARN string // unique among all accounts and regions; servers other than AWS may use one for all tables
	ID  string // chosen by the server at its creation
}

func identity(d *types.TableDescription) Identity {
	return Identity{aws.ToString(d.TableArn), aws.ToString(d.TableId)}
}

// Table is the state of a table after CreateTable.
type Table struct {
	Created bool // by this call
	Identity
	// Recoverable reports whether the table can be restored to a point in time; nil if it is unknown. If it is false,
	// an accidental deletion is final.
	Recoverable *bool
}

// CreateTable creates the table that o names, paid by request, and waits until it can be used. An existing table is
// left as it is, and must have the right keys. It ignores Repository and Blobs of o: any number of repositories share a
// table.
//
// The table has no time-to-live: records exist until they are deleted.
func CreateTable(ctx context.Context, o Options) (Table, error) {
	if err := checkTable(o.Table); err != nil {
		return Table{}, err
	}
	s := onTable(o)
	o = s.o // with its defaults
	var t Table
	d, err := s.describe(ctx)
	made := false // by this call or another, so the table exists, or will
	if errors.Is(err, ErrNoTable) {
		if t.Created, err = s.createTable(ctx); err == nil {
			made = true
			d, err = s.describe(ctx)
		}
	}
	for begin := time.Now(); creating(d, err, made); {
		if time.Since(begin) > o.Patience {
			return t, fmt.Errorf("table %s is still being created after %v: try again later", o.Table, o.Patience)
		}
		_ = backoff.Wait(ctx, min(time.Second, o.Patience/20))
		d, err = s.describe(ctx)
	}
	if err == nil && !usable(d.TableStatus) {
		err = fmt.Errorf("table %s is %s: it cannot be used", o.Table, d.TableStatus)
	}
	if err == nil {
		err = checkSchema(o.Table, d)
	}
	if err == nil {
		t.Identity = identity(d)
		t.Recoverable = s.recoverable(ctx)
	}
	return t, err
}

// onTable is for requests about the table itself.
func onTable(o Options) *table {
	setDefault(&o.Attempt, 10*time.Second)
	setDefault(&o.Patience, 2*time.Minute)
	setDefault(&o.Backoff, 50*time.Millisecond)
	return &table{client: newClient(o.Config, o.Endpoint), o: o}
}

// DeleteTable removes the table that o names, with all repositories in it. An absent one counts as removed.
func DeleteTable(ctx context.Context, o Options) error {
	s := onTable(o)
	_, _, err := do(ctx, s, "DeleteTable", func(ctx context.Context) (struct{}, float64, error) {
		_, err := s.client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &s.o.Table})
		return struct{}{}, 0, err
	})
	if errors.Is(err, ErrNoTable) {
		return nil
	}
	return err
}

// creating reports whether a table is still being created, by the answer of describe. If made is true, the server may
// not yet list the table.
func creating(d *types.TableDescription, err error, made bool) bool {
	if err != nil {
		return made && errors.Is(err, ErrNoTable)
	}
	return d.TableStatus == types.TableStatusCreating
}

// usable reports whether a table in the given state can be read and written. Not every server reports a state.
func usable(state types.TableStatus) bool {
	return state == types.TableStatusActive || state == types.TableStatusUpdating || state == ""
}

func (s *table) describe(ctx context.Context) (*types.TableDescription, error) {
	d, _, err := do(ctx, s, "DescribeTable", func(ctx context.Context) (*types.TableDescription, float64, error) {
		out, err := s.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &s.o.Table})
		if err != nil {
			return nil, 0, err
		}
		return out.Table, 0, nil
	})
	if err == nil && d == nil {
		err = s.failed("DescribeTable", errors.New("the server gave no description"))
	}
	return d, err
}

// Identity returns the identity of the store's table.
func (s *Store) Identity(ctx context.Context) (Identity, error) {
	d, err := s.table.describe(ctx)
	if err != nil {
		return Identity{}, err
	}
	return identity(d), nil
}

// createTable reports whether this call created the table, as far as is known.
func (s *table) createTable(ctx context.Context) (bool, error) {
	key := func(name string, role types.KeyType) types.KeySchemaElement {
		return types.KeySchemaElement{AttributeName: aws.String(name), KeyType: role}
	}
	attribute := func(name string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: aws.String(name), AttributeType: types.ScalarAttributeTypeS}
	}
	_, doubt, err := do(ctx, s, "CreateTable", func(ctx context.Context) (struct{}, float64, error) {
		_, err := s.client.CreateTable(ctx, &dynamodb.CreateTableInput{
			TableName: &s.o.Table, BillingMode: types.BillingModePayPerRequest,
			KeySchema:            []types.KeySchemaElement{key(partitionKey, types.KeyTypeHash), key(sortKey, types.KeyTypeRange)},
			AttributeDefinitions: []types.AttributeDefinition{attribute(partitionKey), attribute(sortKey)},
		})
		return struct{}{}, 0, err
	})
	var there *types.ResourceInUseException
	if errors.As(err, &there) {
		return doubt, nil
	}
	return err == nil, err
}

// checkSchema returns an error if a table cannot hold repositories.
func checkSchema(table string, d *types.TableDescription) error {
	// Not every server reports the type of a key.
	kind := map[string]types.ScalarAttributeType{partitionKey: types.ScalarAttributeTypeS, sortKey: types.ScalarAttributeTypeS}
	for _, a := range d.AttributeDefinitions {
		kind[aws.ToString(a.AttributeName)] = a.AttributeType
	}
	var have []string
	for _, k := range d.KeySchema {
		have = append(have, fmt.Sprintf("%s %s %s", k.KeyType, aws.ToString(k.AttributeName), kind[aws.ToString(k.AttributeName)]))
	}
	slices.Sort(have)
	if want := []string{"HASH PK S", "RANGE SK S"}; !slices.Equal(have, want) {
		return fmt.Errorf("table %s is for something else: its keys are %q, and a repository needs %q; choose another name", table, have, want)
	}
	return nil
}

// OtherTable returns an error if a request failed because the table's keys are not those of a table of repositories. It
// returns nil for any other failure, or if the server does not describe the table.
func OtherTable(ctx context.Context, o Options, failure error) error {
	if api := smithy.APIError(nil); !errors.As(failure, &api) || api.ErrorCode() != "ValidationException" {
		return nil
	}
	setDefault(&o.Attempt, 10*time.Second)
	setDefault(&o.Backoff, 50*time.Millisecond)
	s := &table{client: newClient(o.Config, o.Endpoint), o: o}
	d, err := s.describe(ctx)
	if err != nil {
		return nil
	}
	return checkSchema(o.Table, d)
}

// recoverable makes the request without retries, since servers other than AWS may not support it.
func (s *table) recoverable(ctx context.Context) *bool {
	ctx, cancel := context.WithTimeout(ctx, s.o.Attempt)
	defer cancel()
	out, err := s.client.DescribeContinuousBackups(ctx, &dynamodb.DescribeContinuousBackupsInput{TableName: &s.o.Table})
	if err != nil || out.ContinuousBackupsDescription == nil || out.ContinuousBackupsDescription.PointInTimeRecoveryDescription == nil {
		return nil
	}
	on := out.ContinuousBackupsDescription.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus == types.PointInTimeRecoveryStatusEnabled
	return &on
}
