package queue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"e3/internal/format/record"
	"e3/refstore"
)

// Records are JSON, so that people can read them in a table. Times are nanoseconds since 1970.
//
//	QUEUE/names · <queue>                 NameRecord: there is such a queue
//	QUEUE/<queue>/jobs · <id>             jobRecord
//	QUEUE/<queue>/ready · <order>         entry: may be claimed
//	QUEUE/<queue>/ready · +<shard>        turnRecord: the shard may have entries
//	QUEUE/<queue>/delayed · <at>.<order>  entry: may be claimed later
//	QUEUE/<queue>/finished · <run>        turnRecord: a run that has, or had, jobs here
//	QUEUE/<queue>/finished/<run> · <id>   jobRecord
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

// orphanOrder is the prefix of an orphan's order.
const orphanOrder = "0."

// order sorts claimable jobs: orphans first, then by priority, then by age. It is unique within a queue.
func (j *Job) order() string {
	class := 1
	if j.Orphaned() {
		class = 0
	}
	return fmt.Sprintf("%d.%012x.%016x.%s", class, maxPriority-j.Priority, nanos(j.Created), j.ID)
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
func delayedOrder(at time.Time) string { return fmt.Sprintf("%016x.", nanos(at)) }

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
	var rec jobRecord
	if err := decode(value, &rec); err != nil {
		return Job{}, err
	}
	j := rec.job()
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
	At  int64  `json:"at"`
}

// holderRecord exists from before a session claims its first job of a queue until it holds none.
type holderRecord struct {
	Worker string `json:"worker,omitempty"`
	Since  int64  `json:"since"`
	Reaper string `json:"reaper,omitempty"` // the session that makes its jobs orphans
}

// turnRecord says when periodic work was last done, by the writer's clock. Readers do not compare it with their own.
type turnRecord struct {
	At int64 `json:"at"`
}

// jobRecord is a job as it is stored.
type jobRecord struct {
	ID         string       `json:"id"`
	Queue      string       `json:"queue"`
	Workspace  string       `json:"workspace"`
	Run        string       `json:"run"`
	Task       string       `json:"task"`
	Step       string       `json:"step,omitempty"`
	Attempt    int64        `json:"attempt"`
	TaskHash   string       `json:"taskHash"`
	Inputs     []string     `json:"inputs,omitempty"`
	InputBytes int64        `json:"inputBytes,omitempty"`
	Policy     policyRecord `json:"policy,omitzero"`
	Labels     []string     `json:"labels,omitempty"`
	Priority   int64        `json:"priority,omitempty"`
	Force      bool         `json:"force,omitempty"`
	Host       string       `json:"host,omitempty"`
	After      string       `json:"after,omitempty"`
	Shard      int64        `json:"shard,omitempty"`

	Status      Status         `json:"status"`
	Attempts    int64          `json:"attempts,omitempty"`
	MaxAttempts int64          `json:"maxAttempts"`
	AvailableAt int64          `json:"availableAt,omitempty"`
	LockedBy    string         `json:"lockedBy,omitempty"`
	Worker      string         `json:"worker,omitempty"`
	Token       uint64         `json:"token,omitempty"`
	Execution   string         `json:"execution,omitempty"`
	Maker       string         `json:"maker,omitempty"`
	MakerHost   string         `json:"makerHost,omitempty"`
	Lost        []lostRecord   `json:"lost,omitempty"`
	LastError   string         `json:"lastError,omitempty"`
	Outcome     *outcomeRecord `json:"outcome,omitempty"`
	Retried     int64          `json:"retried,omitempty"`

	Created  int64 `json:"created"`
	Updated  int64 `json:"updated"`
	Made     int64 `json:"made,omitempty"`
	Claimed  int64 `json:"claimed,omitempty"`
	Started  int64 `json:"started,omitempty"`
	Finished int64 `json:"finished,omitempty"`
}

type lostRecord struct {
	Execution string `json:"execution"`
	Worker    string `json:"worker,omitempty"`
	Adopter   string `json:"adopter,omitempty"`
	Message   string `json:"message,omitempty"`
	Claimed   int64  `json:"claimed,omitempty"`
	Started   int64  `json:"started,omitempty"`
	Adopted   int64  `json:"adopted,omitempty"`
	At        int64  `json:"at"`
}

type outcomeRecord struct {
	State     Status `json:"state"`
	Execution string `json:"execution,omitempty"`
	Output    string `json:"output,omitempty"`
	Size      int64  `json:"size,omitempty"`
	ExitCode  int64  `json:"exitCode,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Message   string `json:"message,omitempty"`
	Duration  int64  `json:"duration,omitempty"` // ns
	Left      string `json:"left,omitempty"`
}

// policyRecord is the policy of a job.
type policyRecord struct {
	Description string         `json:"description,omitempty"`
	Timeout     int64          `json:"timeout,omitempty"` // ns
	Retries     int64          `json:"retries,omitempty"`
	RetryOn     []string       `json:"retryOn,omitempty"`
	Lost        int64          `json:"lost,omitempty"`
	Backoff     int64          `json:"backoff,omitempty"` // ns
	CPU         float64        `json:"cpu,omitempty"`
	Memory      int64          `json:"memory,omitempty"`
	Resources   []amountRecord `json:"resources,omitempty"`
	Priority    int64          `json:"priority,omitempty"`
	OOMFactor   float64        `json:"oomFactor,omitempty"`
	OOMMax      int64          `json:"oomMax,omitempty"`
	Approve     bool           `json:"approve,omitempty"`
	Suspend     int64          `json:"suspend,omitempty"`
	OnLost      int64          `json:"onLost,omitempty"`
	MayFail     bool           `json:"mayFail,omitempty"`
	Batch       int64          `json:"batch,omitempty"`
	Limits      bool           `json:"limits,omitempty"`
	Queue       string         `json:"queue,omitempty"`
	Labels      []string       `json:"labels,omitempty"`
	OutputKinds []pairRecord   `json:"outputKinds,omitempty"`
}

type amountRecord struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

type pairRecord struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// nanos is a time as stored: 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(t.UnixNano(), 1)
}

// fromNanos is the inverse of nanos. A time before 1970 is none.
func fromNanos(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

func (j *Job) encode() []byte {
	r := jobRecord{
		ID: j.ID, Queue: j.Queue, Workspace: j.Workspace, Run: j.Run, Task: j.Task, Step: j.Step, Attempt: j.Attempt,
		TaskHash: j.TaskHash, Inputs: j.Inputs, InputBytes: j.InputBytes, Policy: policyOf(&j.Policy), Labels: j.Labels,
		Priority: j.Priority, Force: j.Force, Host: j.Host, After: j.After, Shard: j.Shard,
		Status: j.Status, Attempts: j.Attempts, MaxAttempts: j.MaxAttempts, AvailableAt: nanos(j.AvailableAt), LockedBy: j.LockedBy,
		Worker: j.Worker, Token: j.Token, Execution: j.Execution, Maker: j.Maker, MakerHost: j.MakerHost, LastError: j.LastError,
		Retried: j.Retried, Created: nanos(j.Created), Updated: nanos(j.Updated), Made: nanos(j.Made), Claimed: nanos(j.Claimed), Started: nanos(j.Started),
		Finished: nanos(j.Finished),
	}
	for _, l := range j.Lost {
		r.Lost = append(r.Lost, lostRecord{l.Execution, l.Worker, l.Adopter, l.Message, nanos(l.Claimed), nanos(l.Started), nanos(l.Adopted), nanos(l.At)})
	}
	if o := j.Outcome; o != nil {
		r.Outcome = &outcomeRecord{o.State, o.ExecutionID, o.Output, o.Size, o.ExitCode, o.Reason, o.Message, int64(o.Duration), o.Left}
	}
	return encode(&r)
}

func (r *jobRecord) job() Job {
	j := Job{
		ID: r.ID, Queue: r.Queue, Workspace: r.Workspace, Run: r.Run, Task: r.Task, Step: r.Step, Attempt: r.Attempt,
		TaskHash: r.TaskHash, Inputs: r.Inputs, InputBytes: r.InputBytes, Policy: r.Policy.policy(), Labels: r.Labels,
		Priority: r.Priority, Force: r.Force, Host: r.Host, After: r.After, Shard: r.Shard,
		Status: r.Status, Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, AvailableAt: fromNanos(r.AvailableAt), LockedBy: r.LockedBy,
		Worker: r.Worker, Token: r.Token, Execution: r.Execution, Maker: r.Maker, MakerHost: r.MakerHost, LastError: r.LastError,
		Retried: r.Retried, Created: fromNanos(r.Created), Updated: fromNanos(r.Updated), Made: fromNanos(r.Made), Claimed: fromNanos(r.Claimed),
		Started: fromNanos(r.Started), Finished: fromNanos(r.Finished),
	}
	for _, l := range r.Lost {
		j.Lost = append(j.Lost, LostAttempt{l.Execution, l.Worker, l.Adopter, l.Message, fromNanos(l.Claimed), fromNanos(l.Started), fromNanos(l.Adopted), fromNanos(l.At)})
	}
	if o := r.Outcome; o != nil {
		j.Outcome = &Outcome{o.State, o.Execution, o.Output, o.Size, o.ExitCode, o.Reason, o.Message, time.Duration(o.Duration), j.Finished, o.Left}
	}
	return j
}

func policyOf(p *record.Policy) policyRecord {
	r := policyRecord{
		Description: p.Description, Timeout: int64(p.Timeout), Retries: p.Retries, RetryOn: p.RetryOn, Lost: int64(p.Lost), Backoff: int64(p.Backoff),
		CPU: p.CPU, Memory: p.Memory, Priority: p.Priority, OOMFactor: p.OOM.Factor, OOMMax: p.OOM.Max, Approve: p.Approve, Suspend: p.Suspend,
		OnLost: int64(p.OnLost), MayFail: p.MayFail, Batch: p.Batch, Limits: p.Limits, Queue: p.Queue, Labels: p.Labels,
	}
	for _, a := range p.Resources {
		r.Resources = append(r.Resources, amountRecord{a.Name, a.Value})
	}
	for _, k := range p.OutputKinds {
		r.OutputKinds = append(r.OutputKinds, pairRecord{k.Name, k.Value})
	}
	return r
}

func (r *policyRecord) policy() record.Policy {
	p := record.Policy{
		Description: r.Description, Timeout: time.Duration(r.Timeout), Retries: r.Retries, RetryOn: r.RetryOn, Lost: record.LostRetries(r.Lost), Backoff: time.Duration(r.Backoff),
		CPU: r.CPU, Memory: r.Memory, Priority: r.Priority, OOM: record.Escalation{Factor: r.OOMFactor, Max: r.OOMMax}, Approve: r.Approve, Suspend: r.Suspend,
		OnLost: record.OnLost(r.OnLost), MayFail: r.MayFail, Batch: r.Batch, Limits: r.Limits, Queue: r.Queue, Labels: r.Labels,
	}
	for _, a := range r.Resources {
		p.Resources = append(p.Resources, record.Amount{Name: a.Name, Value: a.Value})
	}
	for _, k := range r.OutputKinds {
		p.OutputKinds = append(p.OutputKinds, record.EnvVar{Name: k.Name, Value: k.Value})
	}
	return p
}
