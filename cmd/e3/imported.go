package main

import (
	"fmt"
	"time"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/record"
	"e3/internal/human"
)

// stepJSON is one export and import in the history of a run or an execution, for programs.
type stepJSON struct {
	By         string      `json:"by"`
	Repository string      `json:"repository"`
	At         *string     `json:"at"`
	Version    string      `json:"e3Version"`
	Signer     *signerJSON `json:"signer"`
	ImportedBy string      `json:"importedBy"`
	ImportedAt *string     `json:"importedAt"`
}

// signerJSON is the signer of an export.
type signerJSON struct {
	Key      string `json:"key"`
	Name     string `json:"name"`
	Verified bool   `json:"verified"` // verified here; else only a later exporter vouches for it
}

// stepsOf is nil for an execution made here.
func stepsOf(p *record.Provenance) []stepJSON {
	if p == nil {
		return nil
	}
	steps := make([]stepJSON, len(p.Steps))
	for i := range p.Steps {
		s := &p.Steps[i]
		steps[i] = stepJSON{
			By: s.By, Repository: s.Repository, At: render.JSONTime(s.At), Version: s.Version,
			ImportedBy: s.ImportedBy, ImportedAt: render.JSONTime(s.ImportedAt),
		}
		if s.Signer.Key != "" {
			steps[i].Signer = &signerJSON{s.Signer.Key, s.Signer.Name, verified(p, i)}
		}
	}
	return steps
}

// verified reports whether this repository verified the signature of a step. That holds only for the last step; the
// last exporter vouches for the earlier ones.
func verified(p *record.Provenance, step int) bool { return step == len(p.Steps)-1 }

// whence describes the steps of something imported, a line for each step, the latest first.
func whence(p *record.Provenance, now time.Time) []string {
	if len(p.Steps) == 0 {
		return []string{"from a place that is not on record"}
	}
	var lines []string
	for i := len(p.Steps) - 1; i >= 0; i-- {
		s := &p.Steps[i]
		line := human.Ago(now, s.ImportedAt) + " from " + s.Source()
		if s.Signer.Key != "" {
			who := s.Signer.Key
			if s.Signer.Name != "" { // quoted, so that its end is visible
				who = fmt.Sprintf("%q, %s", s.Signer.Name, who)
			}
			signed := "signed by"
			if !verified(p, i) {
				signed = "said to be signed by"
			}
			line += fmt.Sprintf(" (%s %s)", signed, who)
		}
		if len(lines) > 0 {
			line = "there " + line
		}
		lines = append(lines, line)
	}
	return lines
}

// rejectionJSON is the rejection of an execution, for programs.
type rejectionJSON struct {
	By     string  `json:"by"`
	At     *string `json:"at"`
	Reason string  `json:"reason"`
}

// rejectionOf is nil for an execution that was not rejected.
func rejectionOf(m *record.Rejection) *rejectionJSON {
	if m == nil || !m.Rejected {
		return nil
	}
	return &rejectionJSON{By: m.By, At: render.JSONTime(m.At), Reason: m.Reason}
}

// rejectionText describes a rejection in words.
func rejectionText(m *record.Rejection, now time.Time) string {
	text := fmt.Sprintf("rejected by %s %s", m.By, human.Ago(now, m.At))
	if m.Reason != "" {
		text += ": " + m.Reason
	}
	return text
}
