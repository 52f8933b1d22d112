package queue

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/internal/human"
)

// Demands lists the demands of the job on its worker other than cores.
func (j *Job) Demands() string {
	words := slices.Clone(j.Labels)
	if j.Policy.Memory > 0 {
		words = append(words, "memory="+human.Bytes(j.Policy.Memory))
	}
	for _, a := range j.Policy.Resources {
		words = append(words, a.Name+"="+strconv.FormatFloat(a.Value, 'g', -1, 64))
	}
	return strings.Join(words, ", ")
}

// Rank is the priority of the job in words; "" for the default.
func (j *Job) Rank() string {
	if j.Priority == 0 {
		return ""
	}
	return "priority " + strconv.FormatInt(j.Priority, 10)
}

// Doubt says whether the worker is alive, if that is in doubt.
func (w *Work) Doubt(now time.Time) string {
	if w.Over || w.Job.Orphaned() {
		return "orphaned; the next worker takes over"
	}
	return human.Heard(w.Heard.At, w.Heard.Lease, now)
}
