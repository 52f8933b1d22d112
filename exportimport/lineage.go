package exportimport

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/settings"
)

// An origin is the provenance of a zip's content: the earlier steps of each execution and run, and the step that
// leads here.
type origin struct {
	step   record.Step
	groups []record.ExportGroup // their steps; the ids are in the lists below
	execs  []descent
	runs   []descent
}

// descent is the group of an execution or run.
type descent struct {
	id    [16]byte
	group int32
}

// Bounds of the bytes that provenance may add to the repository: maxChain for each execution that it names, on
// average, and maxChainExtra in total.
const (
	maxChain      = 4 << 10
	maxChainExtra = 16 << 20
	maxStepText   = 4 << 10 // all text of one step
)

// read reads the entry. The ids in it are checked and kept in 20 bytes each.
func (o *origin) read(data []byte) error {
	e, err := record.DecodeExport(data)
	if err != nil {
		return err
	}
	o.step.By, o.step.Repository, o.step.At, o.step.Version = e.By, e.Repository, e.At, e.Version
	if err := checkStep(&o.step); err != nil {
		return err
	}
	o.groups = e.Earlier
	var told, written int
	for i := range o.groups {
		g := &o.groups[i]
		for j := range g.Steps {
			if err := checkStep(&g.Steps[j]); err != nil {
				return err
			}
		}
		size := len((&record.Provenance{Steps: g.Steps}).Encode())
		told += len(g.Executions) + len(g.Runs)
		if written += size * (len(g.Executions) + len(g.Runs)); written > maxChainExtra+maxChain*told {
			return refused("", "it tells of %d results by more than %d bytes each", told, maxChain)
		}
		if o.execs, err = appendDescents(o.execs, g.Executions, i); err != nil {
			return err
		}
		if o.runs, err = appendDescents(o.runs, g.Runs, i); err != nil {
			return err
		}
		g.Executions, g.Runs = nil, nil
	}
	for _, list := range [][]descent{o.execs, o.runs} {
		slices.SortFunc(list, compareDescents)
		for i := 1; i < len(list); i++ {
			if list[i].id == list[i-1].id {
				return refused("", "it tells of %s twice", uuid.UUID(list[i].id))
			}
		}
	}
	return nil
}

func compareDescents(a, b descent) int {
	return cmp.Or(bytes.Compare(a.id[:], b.id[:]), cmp.Compare(a.group, b.group))
}

func appendDescents(list []descent, ids []string, group int) ([]descent, error) {
	list = slices.Grow(list, len(ids))
	for _, text := range ids {
		id, err := uuid.Parse(text)
		if err != nil || id.String() != text {
			return nil, refused("", "%q is not an id", shorten(text))
		}
		list = append(list, descent{id, int32(group)})
	}
	return list, nil
}

// checkStep refuses text that is too long to be kept beside each result, and invalid signers.
func checkStep(s *record.Step) error {
	n := 0
	for _, text := range []string{s.By, s.Repository, s.Version, s.Signer.Key, s.Signer.Name, s.ImportedBy} {
		n += len(text)
	}
	if n > maxStepText {
		return refused("", "a step in it has %d bytes of text; at most %d are allowed", n, maxStepText)
	}
	if s.Signer.Key == "" {
		return nil
	}
	if _, err := signature.ParsePublicKey(s.Signer.Key); err != nil {
		return refused("", "the signer of a step: %w", err)
	}
	if s.Signer.Name == "" {
		return nil
	}
	if err := signature.CheckName(s.Signer.Name); err != nil {
		return refused("", "the signer of a step: %w", err)
	}
	return nil
}

// unknown is the origin of a zip without provenance.
func (o *origin) unknown(file string) {
	o.step.By, o.step.Repository = "a zip without provenance", file
}

// lead completes the last step, which leads here.
func (o *origin) lead(by string, at time.Time, v settings.Verdict) {
	o.step.ImportedBy, o.step.ImportedAt = by, at
	if v.Trust != settings.Unsigned {
		o.step.Signer = record.Signer{Key: v.Key.String(), Name: v.Name}
	}
}

func (o *origin) execution(id string) *record.Provenance { return o.provenance(o.execs, id) }
func (o *origin) run(id string) *record.Provenance       { return o.provenance(o.runs, id) }

// provenance returns the record that is kept beside a result.
func (o *origin) provenance(list []descent, id string) *record.Provenance {
	p := &record.Provenance{}
	if u, err := uuid.Parse(id); err == nil {
		i, ok := slices.BinarySearchFunc(list, u, func(d descent, u uuid.UUID) int { return bytes.Compare(d.id[:], u[:]) })
		if ok {
			p.Steps = append(p.Steps, o.groups[list[i].group].Steps...)
		}
	}
	if len(p.Steps) >= record.MaxSteps { // the first and the latest steps matter most
		p.Steps = slices.Delete(p.Steps, 1, len(p.Steps)-record.MaxSteps+2)
	}
	p.Steps = append(p.Steps, o.step)
	return p
}
