package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"e3/executions"
	"e3/internal/testing/recorded"
	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/refstore"
	"e3/refstore/dynamo"
)

const (
	lookupRepository = "bench"
	lookupsAtATime   = 64 // as in shared repositories
)

// lookups compares lookups of cached tasks with bare queries of the same keys on the same server, with equal
// concurrency.
func (b *bench) lookups() (err error) {
	dir := filepath.Join(b.dir, "lookups")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	name, endpoint, n, stop, err := serveDynamoDB(dir)
	if err != nil {
		return err
	}
	defer stop()

	ctx := context.Background()
	table := testserver.Name()
	o := dynamo.Options{Config: testserver.Config(), Endpoint: endpoint, Table: table, Repository: lookupRepository, Blobs: noBlobs{}}
	if _, err := dynamo.CreateTable(ctx, o); err != nil {
		return err
	}
	records, err := dynamo.Open(o)
	if err != nil {
		return err
	}
	objects, err := objectstore.OpenDir(filepath.Join(dir, "objects"), objectstore.Options{})
	if err != nil {
		return err
	}
	keys, err := succeeded(ctx, records, n)
	if err != nil {
		return err
	}
	store := executions.NewStore(records, presuming{objects})
	client := dynamodb.NewFromConfig(o.Config, func(o *dynamodb.Options) {
		o.BaseEndpoint = &endpoint
		o.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 256 })
	})
	ours := func(ctx context.Context, key executions.Key) error {
		a, err := store.Lookup(ctx, key)
		if err == nil && a.Hit == nil {
			err = fmt.Errorf("%s is no hit", key)
		}
		return err
	}
	theirs := func(ctx context.Context, key executions.Key) error {
		out, err := client.Query(ctx, &dynamodb.QueryInput{
			TableName: &table, ConsistentRead: aws.Bool(true), ScanIndexForward: aws.Bool(false), Limit: aws.Int32(1),
			KeyConditionExpression: aws.String("PK = :p"),
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":p": &types.AttributeValueMemberS{Value: "EXECUTION/" + lookupRepository + "/" + key.String()},
			},
		})
		if err == nil && len(out.Items) != 1 {
			err = fmt.Errorf("%s has %d items", key, len(out.Items))
		}
		return err
	}
	all := func(look func(context.Context, executions.Key) error) (time.Duration, error) {
		began := time.Now()
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(lookupsAtATime)
		for _, key := range keys {
			g.Go(func() error { return look(ctx, key) })
		}
		err := g.Wait()
		return time.Since(began), err
	}
	var e3s, peers []time.Duration
	for i := range b.rounds + 1 {
		t, err := all(ours)
		if err != nil {
			return err
		}
		u, err := all(theirs)
		if err != nil {
			return err
		}
		if i > 0 { // the first round warms up
			e3s, peers = append(e3s, t), append(peers, u)
		}
	}
	rate := func(d time.Duration) float64 { return float64(n) / d.Seconds() }
	row(fmt.Sprintf("lookups of %d cached (queries)", n), median(e3s), median(peers), 2,
		fmt.Sprintf("%s, %d at a time; %.0f and %.0f a second", name, lookupsAtATime, rate(median(e3s)), rate(median(peers))))
	return nil
}

// succeeded records n executions and returns their keys.
func succeeded(ctx context.Context, records refstore.Store, n int) ([]executions.Key, error) {
	keys := make([]executions.Key, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(lookupsAtATime)
	for i := range keys {
		task, input := objectstore.Sum(fmt.Appendf(nil, "task %d", i)), objectstore.Sum(fmt.Appendf(nil, "input %d", i))
		g.Go(func() (err error) {
			keys[i], err = recorded.Success(ctx, records, fmt.Sprintf("t[%d]", i), task, input, objectstore.Sum([]byte(recorded.Content)))
			return err
		})
	}
	return keys, g.Wait()
}

// presuming is an object store like that of a shared repository, which assumes that recorded outputs exist.
type presuming struct{ *objectstore.Dir }

func (presuming) Presumes() bool { return true }

// noBlobs serves records that are all small.
type noBlobs struct{ dynamo.Blobs }

// serveDynamoDB starts a server in its own process, and returns the number of keys that it can handle.
func serveDynamoDB(dir string) (name, url string, keys int, stop func(), err error) {
	tb := &servers{dir: dir}
	url, missing, err := tb.try(testserver.Dynalite)
	if missing == nil {
		return "dynalite", url, 10_000, tb.stop, err
	}
	url, stop, err = minidynElsewhere()
	return "minidyn", url, 200, stop, err // it scans the whole table for each query
}

// minidynElsewhere starts this program again, as the server.
func minidynElsewhere() (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self, "minidyn")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, err
	}
	stop = func() {
		in.Close()
		cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("start minidyn: %w", err)
	}
	return strings.TrimSpace(line), stop, nil
}

// minidyn is the server: it prints its address, and runs until standard input ends.
func minidyn() error {
	tb := &servers{}
	defer tb.stop()
	fmt.Println(testserver.Minidyn(tb))
	_, err := io.Copy(io.Discard, os.Stdin)
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return err
}
