package record

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"e3/internal/format/beast2"
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
	// Checked means that e3 has checked the staged inputs against the names of their objects. It is stored as a suffix
	// of the version; an older e3 reads the suffix as a part of the version.
	Checked bool
	// Begun is the execution under which the command was begun, if that was given up before the command ended: this one
	// has its end. It is stored as a suffix of the version, before that of Logs.
	Begun string
	// Batch is the batch in which the command served the item. It is stored as a suffix of the version, before that of Begun.
	Batch Batched
	// Logs are the sums of the logs at the end of the execution. They too are stored as a suffix of the version, before
	// that of Checked.
	Logs Logs
}

// checkedSuffix ends the version of an e3 that checks what commands read.
const checkedSuffix = "+checked"

// begunSuffix precedes Detail.Begun.
const begunSuffix = "+begun."

// isID reports whether a text has the form of an execution's id.
func isID(text string) bool {
	id, err := uuid.Parse(text)
	return err == nil && id.String() == text
}

var detailSchema = newSchema("execution detail", func() beast2.Type {
	str, integer := beast2.String, beast2.Integer
	return beast2.Struct(
		beast2.F("attempt", integer), beast2.F("worker", str), beast2.F("runId", str), beast2.F("workspace", str), beast2.F("task", str),
		beast2.F("userCpuUs", integer), beast2.F("systemCpuUs", integer), beast2.F("peakRss", integer),
		beast2.F("bytesIn", integer), beast2.F("bytesOut", integer),
		beast2.F("signal", str), beast2.F("reason", str), beast2.F("e3Version", str))
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
	version := d.Version + d.Batch.suffix()
	if d.Begun != "" {
		version += begunSuffix + d.Begun
	}
	version += d.Logs.suffix()
	if d.Checked {
		version += checkedSuffix
	}
	for _, s := range []string{d.Signal, d.Reason, version} {
		b = beast2.AppendString(b, s)
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
	d.Version, d.Checked = strings.CutSuffix(d.Version, checkedSuffix)
	d.Version, d.Logs = cutLogs(d.Version)
	if i := strings.LastIndex(d.Version, begunSuffix); i >= 0 && isID(d.Version[i+len(begunSuffix):]) {
		d.Version, d.Begun = d.Version[:i], d.Version[i+len(begunSuffix):]
	}
	d.Version, d.Batch = cutBatch(d.Version)
	return d, detailSchema.done(r)
}
