package gc

import (
	"context"
	"errors"

	"e3/executions"
	"e3/internal/format/moment"
)

// A Pin keeps an execution from being pruned.
type Pin struct {
	Execution string      `json:"execution"`
	Key       string      `json:"key,omitempty"`
	Task      string      `json:"task,omitempty"` // <workspace>.<task>
	State     string      `json:"state"`          // of the execution, gone, or unreadable
	By        string      `json:"by"`             // user@host
	At        moment.Time `json:"at"`
	Note      string      `json:"note,omitempty"`
}

// Pins are the pins of a repository.
type Pins struct {
	Pins []Pin `json:"pins"`
}

// ListPins reads the pins of a repository, in the order of their executions' ids.
func ListPins(ctx context.Context, x *executions.Store) (*Pins, error) {
	list := &Pins{Pins: []Pin{}}
	for p, err := range x.Pins(ctx) {
		if err != nil && !errors.Is(err, executions.ErrMalformed) {
			return nil, err
		}
		item := Pin{Execution: p.ExecutionID, State: "unreadable"}
		if err == nil {
			item.Key, item.By, item.At, item.Note = p.Key.String(), p.By, moment.At(p.At), p.Note
			e, err := x.Get(ctx, p.Key, p.ExecutionID)
			switch {
			case err == nil:
				item.State, item.Task = e.State.String(), e.TaskName()
			case errors.Is(err, executions.ErrNotFound):
				item.State = "gone"
			case !errors.Is(err, executions.ErrMalformed):
				return nil, err
			}
		}
		list.Pins = append(list.Pins, item)
	}
	return list, nil
}
