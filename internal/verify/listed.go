package verify

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"e3/refstore"
)

// listedEvents checks that workspaces with events are in the listing of all workspaces: a table lists them by an item
// for each.
func (v *verifier) listedEvents(ctx context.Context, workspaces []string) error {
	var have []string // before the listing: a run that begins meanwhile is listed before it has events
	for _, ws := range workspaces {
		for _, err := range v.Records.ListStreams(ctx, refstore.Query{Partition: "EVENTS/" + ws, Limit: 1}) {
			if err != nil {
				return err
			}
			have = append(have, ws)
			break
		}
	}
	listed := map[string]bool{}
	for partition, err := range v.Records.ListPartitions(ctx, "EVENTS") {
		if err != nil {
			return err
		}
		listed[strings.TrimPrefix(partition, "EVENTS/")] = true
	}
	for _, ws := range have {
		if listed[ws] {
			continue
		}
		v.fault(Fault{
			Kind: BadEvents, Where: "events/" + ws, Problem: "what says that they are there is gone: the events of all workspaces lack them",
			For: []string{"the events of workspace " + ws}, Advice: "with --repair it is written again",
			mend: func(ctx context.Context) (string, bool, error) {
				err := v.enterEvents(ctx, ws)
				return "written again", err == nil, err
			},
		})
	}
	return nil
}

// enterEvents lists the events of a workspace again, by creating a log as a first run does, and removing it at once.
func (v *verifier) enterEvents(ctx context.Context, ws string) error {
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("draw an id: %w", err)
	}
	key := refstore.Key{Partition: "EVENTS/" + ws, Sort: id.String()}
	if err := v.Records.Seal(ctx, key); err != nil {
		return err
	}
	return v.Records.Remove(ctx, key)
}
