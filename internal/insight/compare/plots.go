package compare

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"e3/internal/format/record"
	"e3/internal/parallel"
)

// A Plot is the content of a file that a side's package marks as a plot.
type Plot struct {
	Side   string
	Run    string
	Task   string                     // with its label
	Item   string                     // the label
	Params map[string]json.RawMessage // of the side and of the item
	Name   string                     // of the file; in a directory its path
	record.Plot
	Data []byte // nil: Lost says why
	Lost string
}

// Plots reads the plots of all sides, in the order of the sides and their tasks.
func (s Stores) Plots(ctx context.Context, sides []Side) ([]Plot, error) {
	var all []Plot
	for _, at := range sides {
		d, err := s.read(ctx, at)
		if err == nil {
			err = s.lookUp(ctx, d, func(string) bool { return false })
		}
		if err != nil {
			return nil, err
		}
		files, err := d.views(ctx, record.ViewPlot)
		if err != nil {
			return nil, err
		}
		params, err := s.params(ctx, d)
		if err != nil {
			return nil, err
		}
		list := make([]Plot, len(files))
		err = parallel.Each(ctx, len(files), func(ctx context.Context, i int) error {
			f := &files[i]
			data, err := f.read(ctx, d.objects)
			if err != nil {
				return fmt.Errorf("plot of %s in %s: %w", f.task, d, err)
			}
			_, item := splitLabel(f.task)
			list[i] = Plot{
				Side: d.String(), Run: d.RunID, Task: f.task, Item: item, Params: maps.Clone(params), Name: f.name(), Plot: f.Plot, Data: data,
				Lost: f.lost,
			}
			itemParams(list[i].Params, item)
			return nil
		})
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}
