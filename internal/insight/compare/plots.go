package compare

import (
	"context"
	"fmt"

	"e3/internal/format/record"
	"e3/internal/parallel"
)

// kindPlot marks an output that is a plot: a table of numbers, or a picture.
const kindPlot = "plot"

// A Plot is the content of an output that a side's package marks as a plot.
type Plot struct {
	Side  string
	Task  string // with its label
	Entry string // "" for the only output of a task
	Data  []byte // nil: Lost says why
	Lost  string
}

// Plots reads the plots of all sides, in the order of the sides and their tasks.
func (s Stores) Plots(ctx context.Context, sides []Side) ([]Plot, error) {
	var all []Plot
	for _, at := range sides {
		d, err := s.read(ctx, at)
		if err != nil {
			return nil, err
		}
		var list []Plot
		if d.pkg != nil {
			for i := range d.pkg.Tasks {
				for _, k := range d.pkg.Tasks[i].Policy.OutputKinds {
					if k.Value == kindPlot {
						list = append(list, Plot{Side: d.String(), Task: d.pkg.Tasks[i].Name, Entry: k.Name})
					}
				}
			}
		}
		err = parallel.Each(ctx, len(list), func(ctx context.Context, i int) (err error) {
			p := &list[i]
			leaf, ok := d.outputs.leaves[p.Task]
			if !ok || leaf.Kind == record.LeafUnassigned {
				p.Lost = "it has no output"
				return nil
			}
			c := comparison{ctx: ctx, objects: d.objects}
			if p.Data, p.Lost, err = c.metricsFile(leaf, p.Entry); err != nil {
				return fmt.Errorf("plot of %s in %s: %w", p.Task, p.Side, err)
			}
			if leaf.Kind == record.LeafFile {
				p.Entry = ""
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}
