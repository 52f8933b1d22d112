package queue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"e3/refstore"
)

// Records are JSON, so that people can read them in a table. Times are nanoseconds since 1970.
//
//	QUEUE/names · <queue>                 NameRecord: there is such a queue
//	QUEUE/<queue>/jobs · <id>             jobRecord
//	QUEUE/<queue>/ready · <order>         entry: may be claimed
//	QUEUE/<queue>/ready · +<shard>        turnRecord: the shard may have entries
//	QUEUE/<queue>/delayed · <at>.<order>  entry: may be claimed later
//	QUEUE/<queue>/finished · <run> turnRecord: a run that has, or had, jobs here
//	QUEUE/<queue>/finished/<run> · <id>   Job
//	QUEUE/<queue>/dead · <id>             {}: a finished job that a person may want to look at
//	QUEUE/<queue>/cancel · <id>           cancelRecord
//	QUEUE/<queue>/holders · <session>     holderRecord: a session that has, or had, jobs here
//	QUEUE/<queue>/turns · <work>          turnRecord: when periodic work was last done for all processes
//
// Where queues are in shards (layout.go), a job and a finished job are in a shard of the partition above, as
// QUEUE/<queue>/jobs/<shard>, and entries may be in QUEUE/<queue>/ready/<shard>.
//
// An entry is the version of the job as a JSON string, a line feed, and the job's record.
const (
	// Kind is the prefix of all partitions of this package, before a slash.
	Kind = "QUEUE"

	// Names is the partition of the queues' names.
	Names = "QUEUE/names"

	// NameRecord is each record there.
	NameRecord = "{}"
)

func partition(queue, what string) string { return "QUEUE/" + queue + "/" + what }

func jobKey(queue, id string) refstore.Key {
	return refstore.Key{Partition: partition(queue, "jobs"), Sort: id}
}

func finishedPartition(queue, run string) string { return partition(queue, "finished/"+run) }

func finishedKey(queue, id string) refstore.Key {
	return refstore.Key{Partition: finishedPartition(queue, runOf(id)), Sort: id}
}

func deadKey(queue, id string) refstore.Key {
	return refstore.Key{Partition: partition(queue, "dead"), Sort: id}
}

func cancelKey(queue, id string) refstore.Key {
	return refstore.Key{Partition: partition(queue, "cancel"), Sort: id}
}

func holderKey(queue, session string) refstore.Key {
	return refstore.Key{Partition: partition(queue, "holders"), Sort: session}
}

func turnKey(queue, work string) refstore.Key {
	return refstore.Key{Partition: partition(queue, "turns"), Sort: work}
}

// toldPartition is where workers tell a run which of its jobs they have ended.
func toldPartition(queue, run string) string { return partition(queue, "told/"+run) }

// orphanOrder is the prefix of an orphan's order.
const orphanOrder = "0."

// order sorts claimable jobs: orphans first, then by priority, then by age. It is unique within a queue.
func (j *Job) order() string {
	class := 1
	if j.Orphaned() {
		class = 0
	}
	return fmt.Sprintf("%d.%012x.%016x.%s", class, maxPriority-j.Priority, j.Created, j.ID)
}

// rank is the part of an order that precedes the age.
func rank(order string) string { return order[:min(len(order), len("0.")+12)] }

// indexKey is the key of a job's entry; false if the job has none, because it cannot be claimed.
func (j *Job) indexKey() (refstore.Key, bool) {
	switch {
	case j.Status == Queued && !j.AvailableAt.IsZero():
		return refstore.Key{Partition: partition(j.Queue, "delayed"), Sort: delayedOrder(j.AvailableAt) + j.order()}, true
	case j.Status == Queued || j.Orphaned():
		return refstore.Key{Partition: readyPartition(j.Queue, j.Shard), Sort: j.order()}, true
	}
	return refstore.Key{}, false
}

// readyPartition is a shard of the entries of jobs that may be claimed.
func readyPartition(queue string, shard int64) string {
	ready := partition(queue, "ready")
	if shard > 0 {
		ready = shardPartition(ready, shards[shard:shard+1])
	}
	return ready
}

// delayedOrder is the prefix of the order of a job that becomes claimable at a time.
func delayedOrder(at Time) string { return fmt.Sprintf("%016x.", at) }

// indexed returns the id of the job that an entry's sort key names.
func indexed(key refstore.Key) (id string, ok bool) {
	parts := 4
	if strings.HasSuffix(key.Partition, "/delayed") {
		parts++
	}
	fields := strings.SplitN(key.Sort, ".", parts)
	if len(fields) != parts {
		return "", false
	}
	id = fields[parts-1]
	return id, validID(id) == nil
}

// entry is an entry of an index: a job, and the version of the record that it was made from.
type entry struct {
	job     Job
	version refstore.Version
}

func (e *entry) encode(job []byte) []byte {
	b := encode(string(e.version))
	return append(append(b, '\n'), job...)
}

// decodeEntry reads an entry, whose key must match its job. An alias is the job itself, with its version.
func decodeEntry(r refstore.Record) (entry, error) {
	fail := func(err error) (entry, error) {
		return entry{}, fmt.Errorf("record %q is %w: %w", r.Key, ErrMalformed, err)
	}
	line, rest, ok := bytes.Cut(r.Value, []byte("\n"))
	version := string(r.Version)
	if isAlias(r) {
		rest = r.Value
	} else if !ok || json.Unmarshal(line, &version) != nil || version == "" {
		return fail(errors.New("it does not begin with a version"))
	}
	j, err := decodeValue(rest)
	if err != nil {
		return fail(err)
	}
	if key, ok := j.indexKey(); !ok || key != r.Key {
		return fail(errors.New("it is in a wrong place"))
	}
	return entry{j, refstore.Version(version)}, nil
}

// decodeJob reads an unfinished or finished job, whose key must match it.
func decodeJob(r refstore.Record) (Job, error) {
	j, err := decodeValue(r.Value)
	if err == nil && r.Key != jobKey(j.Queue, j.ID) && (r.Key != finishedKey(j.Queue, j.ID) || !j.Status.Terminal()) {
		err = errors.New("it is in a wrong place")
	}
	if err != nil {
		return Job{}, fmt.Errorf("record %q is %w: %w", r.Key, ErrMalformed, err)
	}
	return j, nil
}

func decodeValue(value []byte) (Job, error) {
	var j Job
	if err := decode(value, &j); err != nil {
		return Job{}, err
	}
	if j.Outcome != nil {
		j.Outcome.EndedAt = j.Finished.Time()
	}
	return j, j.validate()
}

// maxRecord bounds the size of a record to decode.
const maxRecord = 16 << 20

// decode reads a value strictly: a process that does not understand all of it must not act on it.
func decode(value []byte, into any) error {
	if len(value) > maxRecord {
		return fmt.Errorf("%d bytes", len(value))
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows")
	}
	return nil
}

// encode never fails: the records hold numbers and strings.
func encode(r any) []byte {
	data, err := json.Marshal(r)
	if err != nil {
		panic("queue: " + err.Error())
	}
	return data
}

// cancelRecord is a request to end a running job.
type cancelRecord struct {
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
	At  Time   `json:"at"`
}

// holderRecord exists from before a session claims its first job of a queue until it holds none.
type holderRecord struct {
	Worker string `json:"worker,omitempty"`
	Since  Time   `json:"since"`
	Reaper string `json:"reaper,omitempty"` // the session that makes its jobs orphans
}

// turnRecord says when periodic work was last done, by the writer's clock. Readers do not compare it with their own.
type turnRecord struct {
	At Time `json:"at"`
}

// A Time is a time in a record: nanoseconds since 1970 by the clock of its writer; 0 is none.
type Time int64

// TimeOf returns a time in the form of records.
func TimeOf(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	return Time(max(t.UnixNano(), 1))
}

// IsZero reports whether there is none. A time before 1970 is none.
func (t Time) IsZero() bool { return t <= 0 }

// Time returns t as others use it.
func (t Time) Time() time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.Unix(0, int64(t)).UTC()
}

func (j *Job) encode() []byte { return encode(j) }
