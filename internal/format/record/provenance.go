package record

import (
	"time"

	"e3/internal/format/beast2"
)

// Provenance is provenance.beast2 beside an imported execution or run: its path from its origin, one step for each
// export and import, oldest first.
type Provenance struct{ Steps []Step }

// Step is one transfer of a result from one repository to another.
type Step struct {
	By         string    // user@host that exported
	Repository string    // location of the repository it was exported from
	At         time.Time // of the exported state; zero where the state has none (a package)
	Version    string    // of the e3 that exported
	Signer     Signer    // zero where the export was not signed
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

func signerType() beast2.Type {
	return beast2.Option(beast2.Struct(beast2.F("key", beast2.String), beast2.F("name", beast2.String)))
}

func stepsType() beast2.Type {
	return beast2.Array(beast2.Struct(
		beast2.F("by", beast2.String), beast2.F("repository", beast2.String),
		beast2.F("at", beast2.Option(beast2.DateTime)), beast2.F("e3Version", beast2.String),
		beast2.F("signer", signerType()),
		beast2.F("importedBy", beast2.String), beast2.F("importedAt", beast2.DateTime)))
}

func appendSigner(b []byte, s Signer) []byte {
	if s.Key == "" {
		return append(b, 0)
	}
	return beast2.AppendString(beast2.AppendString(append(b, 1), s.Key), s.Name)
}

func readSigner(r *beast2.Reader) Signer {
	if r.Tag(2) == 0 {
		return Signer{}
	}
	at := r.Offset()
	s := Signer{Key: r.String(), Name: r.String()}
	if s.Key == "" {
		r.Failf(at, "signer has no key")
	}
	return s
}

func appendSteps(b []byte, steps []Step) []byte {
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(steps)))
	for i := range steps {
		s := &steps[i]
		b = appendOptTime(beast2.AppendString(beast2.AppendString(b, s.By), s.Repository), s.At)
		b = appendSigner(beast2.AppendString(b, s.Version), s.Signer)
		b = appendTime(beast2.AppendString(b, s.ImportedBy), s.ImportedAt)
	}
	return b
}

// MaxSteps is the greatest number of steps in the provenance of one result, and MaxGroups the greatest number of
// groups in an export. They bound the memory of a decoded record, in which a step takes more bytes than in the file.
const (
	MaxSteps  = 1 << 10
	MaxGroups = 1 << 16
	// maxExportSteps bounds the steps of all groups of an export together.
	maxExportSteps = 1 << 18
)

func readSteps(r *beast2.Reader) []Step {
	r.Inline()
	at := r.Offset()
	n := r.Count(7)
	if n > MaxSteps {
		r.Failf(at, "%d steps are more than %d", n, MaxSteps)
		return nil
	}
	if n == 0 {
		return nil
	}
	steps := make([]Step, n)
	for i := range steps {
		steps[i] = Step{
			By: r.String(), Repository: r.String(), At: readOptTime(r), Version: r.String(), Signer: readSigner(r),
			ImportedBy: r.String(), ImportedAt: readTime(r),
		}
	}
	return steps
}

var provenanceSchema = newSchema("provenance", func() beast2.Type {
	return beast2.Struct(beast2.F("steps", stepsType()))
})

// Encode returns the bytes of provenance.beast2.
func (p *Provenance) Encode() []byte { return appendSteps(provenanceSchema.begin(256), p.Steps) }

// DecodeProvenance reads provenance.beast2.
func DecodeProvenance(data []byte) (*Provenance, error) {
	r, err := provenanceSchema.open(data)
	if err != nil {
		return nil, err
	}
	p := &Provenance{Steps: readSteps(r)}
	return p, provenanceSchema.done(r)
}

// Export is the entry provenance.beast2 of a zip: its exporter, and the provenance of content that the exporting
// repository had itself imported.
type Export struct {
	By         string // user@host
	Repository string
	At         time.Time // of the exported state; zero where the state has none (a package)
	Version    string    // of e3
	Earlier    []ExportGroup
}

// ExportGroup lists the executions and runs of an export that share a provenance.
type ExportGroup struct {
	Steps      []Step
	Executions []string // ids, in order
	Runs       []string // ids, in order
}

var exportSchema = newSchema("export provenance", func() beast2.Type {
	return beast2.Struct(
		beast2.F("by", beast2.String), beast2.F("repository", beast2.String),
		beast2.F("at", beast2.Option(beast2.DateTime)), beast2.F("e3Version", beast2.String),
		beast2.F("earlier", beast2.Array(beast2.Struct(
			beast2.F("steps", stepsType()),
			beast2.F("executions", beast2.Array(beast2.String)),
			beast2.F("runs", beast2.Array(beast2.String))))))
})

// Encode returns the bytes of the entry.
func (e *Export) Encode() []byte {
	b := beast2.AppendString(beast2.AppendString(exportSchema.begin(256), e.By), e.Repository)
	b = beast2.AppendString(appendOptTime(b, e.At), e.Version)
	b = beast2.AppendVarint(beast2.AppendInline(b), uint64(len(e.Earlier)))
	for i := range e.Earlier {
		g := &e.Earlier[i]
		b = appendStrings(appendStrings(appendSteps(b, g.Steps), g.Executions), g.Runs)
	}
	return b
}

// DecodeExport reads the entry.
func DecodeExport(data []byte) (*Export, error) {
	r, err := exportSchema.open(data)
	if err != nil {
		return nil, err
	}
	e := &Export{By: r.String(), Repository: r.String(), At: readOptTime(r), Version: r.String()}
	r.Inline()
	at := r.Offset()
	n := r.Count(6)
	if n > MaxGroups {
		r.Failf(at, "%d groups are more than %d", n, MaxGroups)
	} else if n > 0 {
		e.Earlier = make([]ExportGroup, n)
	}
	steps := 0
	for i := range e.Earlier {
		at := r.Offset()
		e.Earlier[i] = ExportGroup{Steps: readSteps(r), Executions: readIDs(r, data), Runs: readIDs(r, data)}
		if steps += len(e.Earlier[i].Steps); steps > maxExportSteps {
			r.Failf(at, "all groups together have more than %d steps", maxExportSteps)
		}
		if r.Err() != nil {
			break
		}
	}
	return e, exportSchema.done(r)
}

// readIDs reads a list of ids, which are UUIDs as text. The strings share one block of memory.
func readIDs(r *beast2.Reader, data []byte) []string {
	const length = 36
	r.Inline()
	n := r.Count(1 + length)
	start := r.Offset()
	for range n {
		at := r.Offset()
		r.SkipString()
		if r.Err() == nil && r.Offset() != at+1+length {
			r.Failf(at, "%.80q is not an id", data[at:r.Offset()])
		}
		if r.Err() != nil {
			return nil
		}
	}
	if n == 0 {
		return nil
	}
	all := string(data[start:r.Offset()])
	list := make([]string, n)
	for i := range list {
		list[i] = all[i*(1+length)+1 : (i+1)*(1+length)]
	}
	return list
}
