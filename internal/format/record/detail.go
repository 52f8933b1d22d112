package record

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"e3/internal/format/codec"
)

// Metadata is metadata.beast2, beside an execution that was imported. An execution without the file was made here.
type Metadata struct {
	ExecutionID string
	Origin      Origin `beast2:"importedFrom,option"` // zero when not imported
}

// Origin is the repository from which an execution was imported, with the time of the import.
type Origin struct {
	SourceRepo string
	ImportedAt time.Time
}

// Check refuses an origin without a repository.
func (o *Origin) Check() error {
	if o.SourceRepo == "" {
		return errors.New("source repository is empty")
	}
	return nil
}

var metadataCodec = codec.New[Metadata]("execution metadata")

// Encode returns the bytes of metadata.beast2.
func (m *Metadata) Encode() []byte { return metadataCodec.Encode(m, 128) }

// DecodeMetadata reads metadata.beast2.
func DecodeMetadata(data []byte) (*Metadata, error) { return metadataCodec.Decode(data) }

// Detail is detail.beast2: facts about an execution beyond its status.
type Detail struct {
	Attempt   int64  // 1 for the first
	Worker    string // user@host that ran the execution
	RunID     string // the run that started the execution
	Workspace string
	Task      string        // the task's name in that run
	UserCPU   time.Duration `beast2:"userCpuUs,us"`
	SystemCPU time.Duration `beast2:"systemCpuUs,us"`
	PeakRSS   int64         // bytes
	BytesIn   int64         // size of the file inputs that were staged
	BytesOut  int64         // size of the output
	Signal    string        // signal that ended the command; "" if none did
	Reason    string        // reason why it was cancelled or retried; else ""
	Version   string        `beast2:"e3Version"` // of e3
	// the execution that began the command, if that execution was given up before the command's end; or ""
	Begun string  `beast2:",option"`
	Batch Batched `beast2:",option"`
	Logs  Logs    `beast2:",option"`
}

// Batched names the other items that the same command served.
type Batched struct {
	ID    string `beast2:"first"`           // the execution of the first item; "": the command served this item alone
	Items int    `beast2:",min=1,max=1000"` // number of items of the command
}

// Logs are the sums of an execution's logs, taken when it ended.
type Logs struct {
	Known          bool `beast2:",present"` // false for executions that did not end by themselves
	Stdout, Stderr LogSum
}

// LogSum is the length and the CRC-32C of a log.
type LogSum struct {
	Size int64  `beast2:",min=0"`
	Sum  uint32 `beast2:"crc32c"`
}

var detailCodec = codec.New[Detail]("execution detail")

// Encode returns the bytes of detail.beast2.
func (d *Detail) Encode() []byte { return detailCodec.Encode(d, 192) }

// DecodeDetail reads detail.beast2.
func DecodeDetail(data []byte) (*Detail, error) { return detailCodec.Decode(data) }

// Check refuses texts that are no ids.
func (d *Detail) Check() error {
	for _, id := range []string{d.Begun, d.Batch.ID} {
		if id != "" && !isID(id) {
			return fmt.Errorf("%.80q is not an id", id)
		}
	}
	return nil
}

// isID reports whether a text has the form of an execution's id.
func isID(text string) bool {
	id, err := uuid.Parse(text)
	return err == nil && id.String() == text
}
