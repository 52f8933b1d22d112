package record

import (
	"math"
	"time"

	"github.com/google/uuid"

	"e3/internal/format/beast2"
	"e3/internal/format/notation"
)

// Metadata is metadata.beast2, beside an execution that was imported. An execution without the file was made here.
type Metadata struct {
	ExecutionID string
	SourceRepo  string // "" when not imported
	ImportedAt  time.Time
}

var metadataSchema = newSchema("execution metadata", func() beast2.Type {
	return beast2.Struct(
		beast2.F("executionId", beast2.String),
		beast2.F("importedFrom", beast2.Option(beast2.Struct(
			beast2.F("sourceRepo", beast2.String), beast2.F("importedAt", beast2.DateTime)))))
})

// Encode returns the bytes of metadata.beast2.
func (m *Metadata) Encode() []byte {
	b := beast2.AppendString(metadataSchema.begin(128), m.ExecutionID)
	if m.SourceRepo == "" {
		return append(b, 0)
	}
	return appendTime(beast2.AppendString(append(b, 1), m.SourceRepo), m.ImportedAt)
}

// DecodeMetadata reads metadata.beast2.
func DecodeMetadata(data []byte) (*Metadata, error) {
	r, err := metadataSchema.open(data)
	if err != nil {
		return nil, err
	}
	m := &Metadata{ExecutionID: r.String()}
	if r.Tag(2) == 1 {
		at := r.Offset()
		m.SourceRepo, m.ImportedAt = r.String(), readTime(r)
		if m.SourceRepo == "" {
			r.Failf(at, "source repository is empty")
		}
	}
	return m, metadataSchema.done(r)
}

// Detail is detail.beast2: facts about an execution beyond its status.
type Detail struct {
	Attempt   int64  // 1 for the first
	Worker    string // user@host that ran it
	RunID     string // the run that started it
	Workspace string
	Task      string // its name in that run
	UserCPU   time.Duration
	SystemCPU time.Duration
	PeakRSS   int64  // bytes
	BytesIn   int64  // size of the file inputs that were staged
	BytesOut  int64  // size of the output
	Signal    string // that ended the command, "" if none did
	Reason    string // why it was cancelled or retried, "" otherwise
	Version   string // of e3
	Begun     string // the execution under which the command was begun, if that was given up before its end; or ""
	Batch     Batched
	Logs      Logs
}

// Batched says with which others an item was given to one command.
type Batched struct {
	ID    string // the execution of the first item; "": the command served this item alone
	Items int    // of the command
}

// Logs are the sums of an execution's logs, taken when it ended.
type Logs struct {
	Known          bool // false for executions that did not end by themselves
	Stdout, Stderr LogSum
}

// LogSum is the length and the CRC-32C of a log.
type LogSum struct {
	Size int64
	Sum  uint32
}

var detailSchema = newSchema("execution detail", func() beast2.Type {
	str, integer := beast2.String, beast2.Integer
	log := beast2.Struct(beast2.F("size", integer), beast2.F("crc32c", integer))
	return beast2.Struct(
		beast2.F("attempt", integer), beast2.F("worker", str), beast2.F("runId", str), beast2.F("workspace", str), beast2.F("task", str),
		beast2.F("userCpuUs", integer), beast2.F("systemCpuUs", integer), beast2.F("peakRss", integer),
		beast2.F("bytesIn", integer), beast2.F("bytesOut", integer),
		beast2.F("signal", str), beast2.F("reason", str), beast2.F("e3Version", str),
		beast2.F("begun", beast2.Option(str)),
		beast2.F("batch", beast2.Option(beast2.Struct(beast2.F("first", str), beast2.F("items", integer)))),
		beast2.F("logs", beast2.Option(beast2.Struct(beast2.F("stdout", log), beast2.F("stderr", log)))))
})

// Encode returns the bytes of detail.beast2.
func (d *Detail) Encode() []byte {
	b := beast2.AppendInteger(detailSchema.begin(192), d.Attempt)
	for _, s := range []string{d.Worker, d.RunID, d.Workspace, d.Task} {
		b = beast2.AppendString(b, s)
	}
	for _, n := range []int64{d.UserCPU.Microseconds(), d.SystemCPU.Microseconds(), d.PeakRSS, d.BytesIn, d.BytesOut} {
		b = beast2.AppendInteger(b, n)
	}
	for _, s := range []string{d.Signal, d.Reason, d.Version} {
		b = beast2.AppendString(b, s)
	}
	b = appendOptString(b, d.Begun)
	if b = beast2.AppendBoolean(b, d.Batch.ID != ""); d.Batch.ID != "" {
		b = beast2.AppendInteger(beast2.AppendString(b, d.Batch.ID), int64(d.Batch.Items))
	}
	if b = beast2.AppendBoolean(b, d.Logs.Known); d.Logs.Known {
		for _, l := range []LogSum{d.Logs.Stdout, d.Logs.Stderr} {
			b = beast2.AppendInteger(beast2.AppendInteger(b, l.Size), int64(l.Sum))
		}
	}
	return b
}

// DecodeDetail reads detail.beast2.
func DecodeDetail(data []byte) (*Detail, error) {
	r, err := detailSchema.open(data)
	if err != nil {
		return nil, err
	}
	micros := func() time.Duration {
		at := r.Offset()
		us := r.Integer()
		if us < 0 || us > int64(1<<63-1)/int64(time.Microsecond) {
			r.Failf(at, "duration of %d µs is out of range", us)
			return 0
		}
		return time.Duration(us) * time.Microsecond
	}
	d := &Detail{
		Attempt: r.Integer(), Worker: r.String(), RunID: r.String(), Workspace: r.String(), Task: r.String(),
		UserCPU: micros(), SystemCPU: micros(), PeakRSS: r.Integer(),
		BytesIn: r.Integer(), BytesOut: r.Integer(),
		Signal: r.String(), Reason: r.String(), Version: r.String(),
	}
	at := r.Offset()
	if d.Begun = readOptString(r); r.Err() == nil && d.Begun != "" && !isID(d.Begun) {
		r.Failf(at, "%.80q is not an id", d.Begun)
	}
	at = r.Offset()
	if r.Tag(2) == 1 {
		d.Batch = Batched{ID: r.String(), Items: int(readBetween(r, "items of a batch", 1, notation.MaxBatch))}
		if r.Err() == nil && !isID(d.Batch.ID) {
			r.Failf(at, "%.80q is not an id", d.Batch.ID)
		}
	}
	if r.Tag(2) == 1 {
		d.Logs = Logs{Known: true, Stdout: readLogSum(r), Stderr: readLogSum(r)}
	}
	return d, detailSchema.done(r)
}

func readLogSum(r *beast2.Reader) LogSum {
	return LogSum{
		Size: readBetween(r, "size of a log", 0, math.MaxInt64),
		Sum:  uint32(readBetween(r, "sum of a log", 0, math.MaxUint32)),
	}
}

// isID reports whether a text has the form of an execution's id.
func isID(text string) bool {
	id, err := uuid.Parse(text)
	return err == nil && id.String() == text
}
