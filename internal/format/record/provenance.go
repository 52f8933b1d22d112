package record

import (
	"errors"
	"fmt"
	"time"

	"e3/internal/format/beast2"
	"e3/internal/format/codec"
)

// Provenance is provenance.beast2 beside an imported execution or run: its path from its origin, one step for each
// export and import, oldest first.
type Provenance struct {
	Steps []Step `beast2:",most=1024"` // MaxSteps
}

// Step is one transfer of a result from one repository to another.
type Step struct {
	By         string    // user@host that exported
	Repository string    // location of the repository it was exported from
	At         time.Time `beast2:",option"`   // time of the exported state; zero if it has none (a package)
	Version    string    `beast2:"e3Version"` // of the e3 that exported
	Signer     Signer    `beast2:",option"`   // zero if the export was not signed
	ImportedBy string    // user@host that imported
	ImportedAt time.Time
}

// Source is the origin of the step in the form of ExecutionMetadata: user@host:location.
func (s *Step) Source() string { return s.By + ":" + s.Repository }

// Signer is the key that signed an export, with a valid signature.
type Signer struct {
	Key  string // the public key, as e3 writes it
	Name string // the exporter's name for it; may be empty
}

// Check refuses a signer without a key.
func (s *Signer) Check() error {
	if s.Key == "" {
		return errors.New("signer has no key")
	}
	return nil
}

// MaxSteps is the greatest number of steps in the provenance of one result, and MaxGroups the greatest number of groups
// in an export. They bound the memory of a decoded record, in which a step takes more bytes of memory than in the file.
const (
	MaxSteps  = 1 << 10
	MaxGroups = 1 << 16
	// maxExportSteps bounds the steps of all groups of an export together.
	maxExportSteps = 1 << 18
)

var provenanceCodec = codec.New[Provenance]("provenance")

// Encode returns the bytes of provenance.beast2.
func (p *Provenance) Encode() []byte { return provenanceCodec.Encode(p, 256) }

// DecodeProvenance reads provenance.beast2.
func DecodeProvenance(data []byte) (*Provenance, error) { return provenanceCodec.Decode(data) }

// Export is the entry provenance.beast2 of a zip: the exporter, and the provenance of content that the exporting
// repository itself had imported.
type Export struct {
	By         string // user@host
	Repository string
	At         time.Time     `beast2:",option"`     // time of the exported state; zero if it has none (a package)
	Version    string        `beast2:"e3Version"`   // version of e3
	Earlier    []ExportGroup `beast2:",most=65536"` // MaxGroups
}

// ExportGroup lists the executions and runs of an export that share a provenance.
type ExportGroup struct {
	Steps      []Step `beast2:",most=1024"`
	Executions IDs    // in order
	Runs       IDs    // in order
}

var exportCodec = codec.New[Export]("export provenance")

// Encode returns the bytes of the entry.
func (e *Export) Encode() []byte { return exportCodec.Encode(e, 256) }

// DecodeExport reads the entry.
func DecodeExport(data []byte) (*Export, error) { return exportCodec.Decode(data) }

// Check bounds the steps of all groups together.
func (e *Export) Check() error {
	steps := 0
	for i := range e.Earlier {
		steps += len(e.Earlier[i].Steps)
	}
	if steps > maxExportSteps {
		return fmt.Errorf("all groups together have more than %d steps", maxExportSteps)
	}
	return nil
}

// IDs is a list of ids, which are UUIDs as text. When read, the strings share one block of memory.
type IDs []string

func (l *IDs) BeastType() beast2.Type { return texts.Type() }

func (l *IDs) AppendBeast(b []byte) []byte { return texts.Append(b, (*[]string)(l)) }

func (l *IDs) ReadBeast(r *codec.Reader) {
	const length = 36
	r.Inline()
	n := r.Count(1 + length)
	start := r.Offset()
	for range n {
		at := r.Offset()
		r.SkipString()
		if r.Err() == nil && r.Offset() != at+1+length {
			r.Failf(at, "%.80q is not an id", r.Data[at:r.Offset()])
		}
		if r.Err() != nil {
			return
		}
	}
	if n == 0 {
		return
	}
	all := string(r.Data[start:r.Offset()])
	*l = make([]string, n)
	for i := range *l {
		(*l)[i] = all[i*(1+length)+1 : (i+1)*(1+length)]
	}
}
