package runview

import (
	"fmt"
	"time"

	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/human"
)

// A Step is one export and import in the history of a run or an execution.
type Step struct {
	By         string      `json:"by"` // user@host
	Repository string      `json:"repository"`
	At         moment.Time `json:"at"`         // of the exported state
	Version    string      `json:"e3Version"`  // of the exporter
	Signer     *Signer     `json:"signer"`     // null: unsigned
	ImportedBy string      `json:"importedBy"` // user@host
	ImportedAt moment.Time `json:"importedAt"`
}

// A Signer is the key that signed an export.
type Signer struct {
	Key      string `json:"key"`
	Name     string `json:"name"`     // as the exporter calls it
	Verified bool   `json:"verified"` // verified here; false: a later exporter vouches
}

// Steps returns the steps of a result from its origin, the earliest first; nil for a result that was made here. This
// repository has verified only the signature of the last step, whose exporter vouches for the earlier steps.
func Steps(p *record.Provenance) []Step {
	if p == nil {
		return nil
	}
	steps := make([]Step, len(p.Steps))
	for i := range p.Steps {
		steps[i] = stepOf(&p.Steps[i])
		if s := steps[i].Signer; s != nil {
			s.Verified = i == len(p.Steps)-1
		}
	}
	return steps
}

func stepOf(s *record.Step) Step {
	step := Step{
		By: s.By, Repository: s.Repository, At: moment.At(s.At), Version: s.Version,
		ImportedBy: s.ImportedBy, ImportedAt: moment.At(s.ImportedAt),
	}
	if s.Signer.Key != "" {
		step.Signer = &Signer{Key: s.Signer.Key, Name: s.Signer.Name}
	}
	return step
}

// Whence describes the steps of an imported run or execution, a line for each step, the latest first.
func Whence(steps []Step, now time.Time) []string {
	if len(steps) == 0 {
		return []string{"from a place that is not on record"}
	}
	var lines []string
	for i := len(steps) - 1; i >= 0; i-- {
		s := &steps[i]
		line := human.Ago(now, s.ImportedAt.Time) + " from " + s.By + ":" + s.Repository + s.Signer.words()
		if len(lines) > 0 {
			line = "there " + line
		}
		lines = append(lines, line)
	}
	return lines
}

// words is the remark on the signer of a step; "" without one. The name is quoted, so that its end is visible.
func (s *Signer) words() string {
	if s == nil {
		return ""
	}
	key, signed := s.Key, "signed by"
	if s.Name != "" {
		key = fmt.Sprintf("%q, %s", s.Name, s.Key)
	}
	if !s.Verified {
		signed = "said to be signed by"
	}
	return fmt.Sprintf(" (%s %s)", signed, key)
}

// A Rejection is the rejection of an execution, or its removal by a prune.
type Rejection struct {
	By     string      `json:"by"` // user@host
	At     moment.Time `json:"at"`
	Reason string      `json:"reason"`
}

// RejectionOf returns nil for an execution that is not rejected.
func RejectionOf(m *record.Rejection) *Rejection {
	if m == nil || !m.Rejected {
		return nil
	}
	return &Rejection{By: m.By, At: moment.At(m.At), Reason: m.Reason}
}

// Text describes a rejection: "rejected by ann@lab 2 days ago: wrong calibration".
func (m *Rejection) Text(now time.Time) string {
	text := fmt.Sprintf("rejected by %s %s", m.By, human.Ago(now, m.At.Time))
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return text
}

// A Batch is the batch of an execution whose command served several items.
type Batch struct {
	Execution string `json:"execution"` // of the first item
	Items     int    `json:"items"`
}

// BatchOf is zero for an execution whose command served one item.
func BatchOf(b record.Batched) Batch { return Batch{Execution: b.ID, Items: b.Items} }
