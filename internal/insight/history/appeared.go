package history

import (
	"maps"
	"slices"

	"e3/internal/events"
	"e3/internal/format/moment"
)

// An Appearance is the first run of a workspace whose package has a task: where the task was created, as far as events
// tell.
type Appearance struct {
	Run      string      `json:"run"`
	At       moment.Time `json:"at"`                 // begin of that run
	Earliest bool        `json:"earliest,omitempty"` // the task may be older
}

// appeared finds where the selected tasks appeared. It reads the packages of the runs in their order until all
// selected tasks have appeared. It finds nothing if some runs were left out.
func (f *finder) appeared() error {
	if f.q.From != "" || f.q.Only != "" {
		return nil
	}
	missing := maps.Clone(f.tasks)
	runs := slices.Sorted(maps.Keys(f.runs))
	for i, run := range runs {
		if len(missing) == 0 {
			return nil
		}
		p, err := f.packageOf(run)
		if err != nil {
			return err
		}
		for name, t := range missing {
			if _, has := p.hash(name); has {
				at, _ := events.Began(run)
				t.appeared = &Appearance{Run: run, At: moment.At(at), Earliest: i == 0}
				delete(missing, name)
			}
		}
	}
	return nil
}
