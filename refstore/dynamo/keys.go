package dynamo

import (
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/refstore"
)

// The attributes of the primary key.
const (
	partitionKey = "PK"
	sortKey      = "SK"
)

// itemKey is the primary key of an item.
type itemKey struct{ pk, sk string }

func (k itemKey) attributes() map[string]types.AttributeValue {
	return map[string]types.AttributeValue{
		partitionKey: &types.AttributeValueMemberS{Value: k.pk},
		sortKey:      &types.AttributeValueMemberS{Value: k.sk},
	}
}

// Prefixes of the kind in partition keys for items other than records. A kind has no dot.
const (
	streamPrefix    = "STREAM."    // heads of streams
	partitionPrefix = "PARTITION." // partitions that hold streams
)

// pk returns the partition key of a partition: the repository's name goes behind the kind.
func (s *table) pk(prefix, partition string) string {
	kind, rest, some := strings.Cut(partition, "/")
	pk := prefix + kind + "/" + s.o.Repository
	if some {
		pk += "/" + rest
	}
	return pk
}

// parsePK is the inverse of pk. It fails for keys of other repositories.
func (s *table) parsePK(pk string) (prefix, partition string, ok bool) {
	for _, p := range []string{streamPrefix, partitionPrefix, idPrefix} {
		if after, found := strings.CutPrefix(pk, p); found {
			prefix, pk = p, after
			break
		}
	}
	kind, rest, _ := strings.Cut(pk, "/")
	repository, rest, some := strings.Cut(rest, "/")
	if repository != s.o.Repository {
		return "", "", false
	}
	if some && prefix+kind != kindTasks {
		kind += "/" + rest
	}
	return prefix, kind, true
}

func (s *table) recordKey(key refstore.Key) itemKey {
	pk := s.pk("", key.Partition)
	if s.o.Spread && key.Partition == kindTasks {
		pk += "/" + taskShard(key.Sort)
	}
	return itemKey{pk, key.Sort}
}

// taskShards are the partition keys of the enumeration of tasks, behind the repository's name: the first digits of
// their hashes.
const taskShards = "0123456789abcdef"

// taskShard returns the shard of a task. Shards have the order of the sort keys, even of sort keys that are no hashes.
func taskShard(sort string) string {
	n := 0
	for n+1 < len(taskShards) && sort >= taskShards[n+1:n+2] {
		n++
	}
	return taskShards[n : n+1]
}

// pks returns the partition keys of the records of a partition, in the order of their sort keys.
func (s *table) pks(partition string) []string {
	pk := s.pk("", partition)
	if !s.o.Spread || partition != kindTasks {
		return []string{pk}
	}
	var pks []string
	for _, shard := range strings.Split(taskShards, "") {
		pks = append(pks, pk+"/"+shard)
	}
	return pks
}

func (s *table) streamKey(key refstore.Key) itemKey {
	return itemKey{s.pk(streamPrefix, key.Partition), key.Sort}
}

// Kinds of enumeration records: one for each task, for each inputs of a task, for each workspace that has executions
// or runs.
const (
	kindTasks  = "TASKS"
	kindInputs = "INPUTS"
	kindRuns   = "RUNS"
)

// enumerates reports whether a partition has enumeration records.
func enumerates(partition string) bool {
	kind, _, _ := strings.Cut(partition, "/")
	return kind == kindTasks || kind == kindInputs || kind == kindRuns
}

// standFor returns the keys of the enumeration records for a partition. It returns ErrInvalid for a partition of
// executions or runs that no enumeration could find again.
func standFor(partition string) ([]refstore.Key, error) {
	kind, rest, _ := strings.Cut(partition, "/")
	switch segments := strings.Split(rest, "/"); kind {
	case "EXECUTION":
		if len(segments) != 2 || segments[0] == "" || segments[1] == "" {
			return nil, fmt.Errorf("partition %q: %w: want EXECUTION/<task>/<inputs>", partition, refstore.ErrInvalid)
		}
		return []refstore.Key{{Partition: kindTasks, Sort: segments[0]}, {Partition: kindInputs + "/" + segments[0], Sort: segments[1]}}, nil
	case "DATAFLOW":
		if len(segments) != 1 || segments[0] == "" {
			return nil, fmt.Errorf("partition %q: %w: want DATAFLOW/<workspace>", partition, refstore.ErrInvalid)
		}
		return []refstore.Key{{Partition: kindRuns, Sort: segments[0]}}, nil
	}
	return nil, nil
}

// logsOf returns the partition of the logs of an execution, and whether key is an execution's.
func logsOf(key refstore.Key) (partition string, ok bool) {
	rest, ok := strings.CutPrefix(key.Partition, "EXECUTION/")
	return "LOG/" + rest + "/" + key.Sort, ok && !strings.Contains(key.Sort, "/")
}

// loggedBy is the inverse of logsOf.
func loggedBy(partition string) (key refstore.Key, ok bool) {
	rest, ok := strings.CutPrefix(partition, "LOG/")
	i := strings.LastIndexByte(rest, '/')
	if !ok || i < 0 {
		return refstore.Key{}, false
	}
	key = refstore.Key{Partition: "EXECUTION/" + rest[:i], Sort: rest[i+1:]}
	_, err := standFor(key.Partition)
	return key, err == nil && key.Validate() == nil
}
