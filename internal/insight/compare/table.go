package compare

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"e3/internal/format/record"
	"e3/internal/format/value"
	"e3/internal/insight/figures"
	"e3/internal/parallel"
	"e3/objectstore"
)

// A Table compares many sides: a row for each, or for each item of a matrix that makes metrics, with the parameters and
// metrics of that row and how long its tasks took.
type Table struct {
	Params  []string    `json:"params"`  // columns, by name
	Metrics []*Column   `json:"metrics"` // columns, those that differ first; by task, output and key
	Rows    []*TableRow `json:"rows"`

	Families []string `json:"-"` // tasks with metrics, without their labels, whichever is chosen
	Choices  []Choice `json:"-"` // values of parameters among which Where can choose
}

// A Column is a metric.
type Column struct {
	Name   string `json:"name"`
	Better Better `json:"better,omitempty"`
	Best   []int  `json:"best,omitempty"` // rows with the best value

	of metric
}

// metric is the place of a metric: the task without its label, the entry of its output, the file in a directory, and the key in the
// file.
type metric struct{ base, entry, file, key string }

// Better tells which values of a metric are better.
type Better string

// The directions of a metric; "" is not known.
const (
	Lower  Better = "lower"
	Higher Better = "higher"
)

// A TableRow is a side, or an item of a matrix in a side. Values are JSON.
type TableRow struct {
	Side    string                     `json:"side"`
	Item    string                     `json:"item,omitempty"`
	Run     string                     `json:"run,omitempty"`
	Params  map[string]json.RawMessage `json:"params"`
	Metrics map[string]json.RawMessage `json:"metrics"` // a number that JSON lacks is the text NaN, Infinity or -Infinity
	Ms      int64                      `json:"ms"`      // of its tasks' executions, earlier ones included
	Notes   []string                   `json:"notes,omitempty"`

	found map[metric]json.RawMessage
}

// TableOptions say what a table shows.
type TableOptions struct {
	Where                    // only rows with these values
	Family string            // only the metrics of this task, and rows that have one; "": of all
	All    bool              // also parameters that are the same in all rows
	Best   map[string]Better // directions of metrics by column; "" is the direction of all others
	Sort   string            // the column by which rows are sorted, with a leading "-" from the greatest; "": as given
}

// ErrNoColumn says that no column has the name.
var ErrNoColumn = errors.New("there is no such column")

// Table compares sides.
func (s Stores) Table(ctx context.Context, sides []Side, o TableOptions) (*Table, error) {
	read := make([]*side, len(sides))
	err := parallel.Each(ctx, len(sides), func(ctx context.Context, i int) (err error) {
		if read[i], err = s.read(ctx, sides[i]); err == nil {
			err = s.lookUp(ctx, read[i], func(string) bool { return true })
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	t := &Table{}
	for _, d := range read {
		rows, err := s.rows(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d, err)
		}
		t.Rows = append(t.Rows, rows...)
	}
	t.Families = t.families()
	if t.Choices, err = o.Where.choices(t.valued()); err != nil {
		return nil, err
	}
	if o.Family != "" && !slices.Contains(t.Families, o.Family) {
		return nil, fmt.Errorf("task %q: %w, since it has no metrics; there are %s", o.Family, ErrNoColumn, strings.Join(t.Families, ", "))
	}
	t.Rows = slices.DeleteFunc(t.Rows, func(r *TableRow) bool { return !o.Where.has(r.valued()) || !r.of(o.Family) })
	t.nameMetrics()
	t.nameParams(o.All || len(t.Rows) == 1)
	for name := range o.Best {
		if name != "" && !slices.ContainsFunc(t.Metrics, func(c *Column) bool { return c.Name == name }) {
			return nil, fmt.Errorf("metric %q: %w; there are %s", name, ErrNoColumn, strings.Join(t.names(), ", "))
		}
	}
	for _, c := range t.Metrics {
		c.Better = cmp.Or(o.Best[c.Name], o.Best[""], DirectionOf(c.of.key))
	}
	if err := t.sort(o.Sort); err != nil {
		return nil, err
	}
	for _, c := range t.Metrics {
		t.best(c)
	}
	return t, nil
}

// rows are the rows of a side: a row for the side itself, and a row for each label of tasks with metrics.
func (s Stores) rows(ctx context.Context, d *side) ([]*TableRow, error) {
	params, err := s.params(ctx, d)
	if err != nil {
		return nil, err
	}
	byItem := map[string]*TableRow{}
	var list []*TableRow
	row := func(item string) *TableRow {
		r := byItem[item]
		if r == nil {
			r = &TableRow{Side: d.String(), Item: item, Run: d.RunID, Params: maps.Clone(params), found: map[metric]json.RawMessage{}}
			itemParams(r.Params, item)
			byItem[item] = r
			list = append(list, r)
		}
		return r
	}
	files, err := d.views(ctx, record.ViewMetrics)
	if err != nil {
		return nil, err
	}
	values := make([]map[string]json.RawMessage, len(files))
	err = parallel.Each(ctx, len(files), func(ctx context.Context, i int) (err error) {
		values[i], err = files[i].values(ctx, d.objects)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range files {
		f := &files[i]
		base, item := splitLabel(f.task)
		r := row(item)
		if f.lost != "" {
			r.Notes = append(r.Notes, base+": "+cmp.Or(d.lacks(f.task), f.lost))
			continue
		}
		for key, v := range values[i] {
			r.found[metric{base, f.Entry, f.file(), key}] = v
		}
	}
	if len(list) == 0 {
		row("")
	}
	d.times(byItem, list)
	list[0].Notes = append(list[0].Notes, d.Notes...)
	if d.pkgGone != "" {
		list[0].Notes = append(list[0].Notes, d.pkgGone)
	}
	return list, nil
}

// times adds up the durations of tasks: the tasks of an item go to the item's row, all other tasks to the side's row,
// or to the first row if the side has none.
func (d *side) times(byItem map[string]*TableRow, list []*TableRow) {
	for task, o := range d.tasks {
		if !o.ended {
			continue
		}
		_, item := splitLabel(task)
		r := byItem[item]
		if r == nil {
			if r = byItem[""]; r == nil {
				continue // the task belongs to no single row
			}
		}
		r.Ms += o.duration.Milliseconds()
	}
}

// splitLabel splits the name of a task into its base and label.
func splitLabel(task string) (base, label string) {
	base, label, found := strings.Cut(task, "[")
	if !found {
		return task, ""
	}
	return base, strings.TrimSuffix(label, "]")
}

// itemParams adds the dimensions of a label, if it names them.
func itemParams(params map[string]json.RawMessage, item string) {
	if !strings.Contains(item, "=") {
		return
	}
	for part := range strings.SplitSeq(item, ",") {
		if name, v, ok := strings.Cut(part, "="); ok {
			params[name] = scalarJSON(v)
		}
	}
}

// scalarJSON is the JSON of a text from a label: the text itself if it is a number or a truth value, else a string.
func scalarJSON(text string) json.RawMessage {
	if v, err := value.ParseJSON([]byte(text)); err == nil {
		switch v.(type) {
		case int64, float64, bool:
			return json.RawMessage(text)
		}
	}
	data, _ := json.Marshal(text) // a string has a JSON form
	return data
}

// params are the values of a side's inputs by name: the values of a file of parameters one by one, and the short
// hashes of files and directories. If two values have the same name, each is named by its file and that name.
func (s Stores) params(ctx context.Context, d *side) (map[string]json.RawMessage, error) {
	list, ofFile := map[string]json.RawMessage{}, map[string]map[string]json.RawMessage{}
	files := map[string]bool{}
	for name := range d.inputs.leaves {
		if file, _, ok := record.ParamOf(name); ok {
			files[file] = true
		}
	}
	if d.pkg != nil {
		for i := range d.pkg.Inputs {
			if in := &d.pkg.Inputs[i]; in.Source == record.FromParams {
				files[in.Name] = true
			}
		}
	}
	for name, leaf := range d.inputs.leaves {
		if file, _, ok := record.ParamOf(name); ok && files[file] {
			continue // its file contains it
		}
		if leaf.Kind != record.LeafValue {
			list[name], _ = json.Marshal(leaf.Hash[:min(len(leaf.Hash), 8)])
			continue
		}
		text, err := d.valueText(ctx, leaf)
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", name, err)
		}
		if !files[name] {
			list[name] = text
			continue
		}
		ofFile[name] = map[string]json.RawMessage{}
		if err := spread(ofFile[name], "", text); err != nil {
			return nil, fmt.Errorf("input %s: %w", name, err)
		}
	}
	holders := map[string]int{}
	for name := range list {
		holders[name]++
	}
	for _, values := range ofFile {
		for path := range values {
			holders[path]++
		}
	}
	for file, values := range ofFile {
		for path, text := range values {
			if holders[path] > 1 {
				path = file + "." + path
			}
			list[path] = text
		}
	}
	return list, nil
}

// maxParams bounds the value of an input that a table shows.
const maxParams = 16 << 20

// valueText is a value as JSON; null if it is gone.
func (d *side) valueText(ctx context.Context, leaf record.Leaf) (json.RawMessage, error) {
	h, err := objectstore.ParseHash(leaf.Hash)
	if err != nil {
		return nil, err
	}
	data, err := objectstore.ReadAll(ctx, d.objects, h, maxParams)
	if errors.Is(err, objectstore.ErrNotFound) {
		return json.RawMessage("null"), nil
	}
	if err != nil {
		return nil, err
	}
	v, err := value.Decode(data)
	if err != nil {
		return nil, err
	}
	return v.JSON()
}

// spread adds the values of nested mappings under dotted names.
func spread(list map[string]json.RawMessage, at string, text json.RawMessage) error {
	var members map[string]json.RawMessage
	if len(text) == 0 || text[0] != '{' {
		list[at] = text
		return nil
	}
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	for name, v := range members {
		path := name
		if at != "" {
			path = at + "." + name
		}
		if err := spread(list, path, v); err != nil {
			return err
		}
	}
	return nil
}

// nameMetrics makes the columns. A metric is named by its key alone if all metrics come from one output, else also by
// its task, and by the entry and the file in a directory if the task has several.
func (t *Table) nameMetrics() {
	entries := map[string]map[[2]string]bool{}
	seen := map[metric]bool{}
	var all []metric
	for _, r := range t.Rows {
		for m := range r.found {
			if entries[m.base] == nil {
				entries[m.base] = map[[2]string]bool{}
			}
			entries[m.base][[2]string{m.entry, m.file}] = true
			if !seen[m] {
				seen[m] = true
				all = append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b metric) int {
		return cmp.Or(cmp.Compare(a.base, b.base), cmp.Compare(a.entry, b.entry), cmp.Compare(a.file, b.file), cmp.Compare(a.key, b.key))
	})
	for _, m := range all {
		name := m.key
		if len(entries[m.base]) > 1 {
			if m.file != "" {
				name = strings.Trim(m.file+":"+name, ":") // as DVC writes it
			}
			name = strings.Trim(m.entry+"."+name, ".")
		}
		if len(entries) > 1 {
			name = strings.Trim(m.base+"."+name, ".")
		}
		name = cmp.Or(name, m.base)
		t.Metrics = append(t.Metrics, &Column{Name: name, of: m})
		for _, r := range t.Rows {
			if r.Metrics == nil {
				r.Metrics = map[string]json.RawMessage{}
			}
			if v, ok := r.found[m]; ok {
				r.Metrics[name] = v
			}
		}
	}
	constant := func(c *Column) int {
		differs := slices.ContainsFunc(t.Rows, func(r *TableRow) bool { return !bytes.Equal(r.Metrics[c.Name], t.Rows[0].Metrics[c.Name]) })
		if differs || len(t.Rows) == 1 {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(t.Metrics, func(a, b *Column) int { return cmp.Compare(constant(a), constant(b)) })
}

// nameParams makes the columns of parameters: of all parameters, or only of those that differ between rows.
func (t *Table) nameParams(all bool) {
	names := map[string]bool{}
	for _, r := range t.Rows {
		for name := range r.Params {
			names[name] = true
		}
	}
	t.Params = []string{}
	var constant []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		same := !slices.ContainsFunc(t.Rows, func(r *TableRow) bool { return !bytes.Equal(r.Params[name], t.Rows[0].Params[name]) })
		switch {
		case !same:
			t.Params = append(t.Params, name)
		case all:
			constant = append(constant, name)
		default:
			for _, r := range t.Rows {
				delete(r.Params, name)
			}
		}
	}
	t.Params = append(t.Params, constant...)
}

// names lists the metrics.
func (t *Table) names() []string {
	list := make([]string, len(t.Metrics))
	for i, c := range t.Metrics {
		list[i] = c.Name
	}
	return list
}

// families are the tasks with metrics.
func (t *Table) families() []string {
	found := map[string]bool{}
	for _, r := range t.Rows {
		for m := range r.found {
			found[m.base] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// of drops the metrics of other tasks, and reports whether the row has one of the given task.
func (r *TableRow) of(family string) bool {
	if family == "" {
		return true
	}
	maps.DeleteFunc(r.found, func(m metric, _ json.RawMessage) bool { return m.base != family })
	return len(r.found) > 0
}

// Task is the task of a row of an item: of several with the same label the first by name. "": the row is of a side.
func (r *TableRow) Task() string {
	first := ""
	for m := range r.found {
		if task := m.base + "[" + r.Item + "]"; first == "" || task < first {
			first = task
		}
	}
	if r.Item == "" {
		return ""
	}
	return first
}

// best marks the rows with the best value of a metric, unless the direction is unknown or all values are equal.
func (t *Table) best(c *Column) {
	if c.Better == "" {
		return
	}
	var top float64
	same := true
	for i, r := range t.Rows {
		text := r.Metrics[c.Name]
		if len(text) == 0 {
			continue
		}
		v, ok := figures.Number(text)
		switch {
		case !ok || math.IsNaN(v):
		case c.Best == nil:
			top, c.Best = v, []int{i}
		case v == top:
			c.Best = append(c.Best, i)
		default:
			same = false
			if (v < top) == (c.Better == Lower) {
				top, c.Best = v, []int{i}
			}
		}
	}
	if same {
		c.Best = nil
	}
}

// sort orders the rows by a column; rows without a value come last.
func (t *Table) sort(column string) error {
	if column == "" {
		return nil
	}
	name, down := strings.CutPrefix(column, "-")
	var at func(*TableRow) json.RawMessage
	switch {
	case name == "side":
		at = func(r *TableRow) json.RawMessage { return scalarJSON(r.Side) }
	case name == "item":
		at = func(r *TableRow) json.RawMessage { return scalarJSON(r.Item) }
	case name == "time":
		at = func(r *TableRow) json.RawMessage { return json.RawMessage(fmt.Sprint(r.Ms)) }
	case slices.ContainsFunc(t.Metrics, func(c *Column) bool { return c.Name == name }):
		at = func(r *TableRow) json.RawMessage { return r.Metrics[name] }
	case slices.Contains(t.Params, name):
		at = func(r *TableRow) json.RawMessage { return r.Params[name] }
	default:
		return fmt.Errorf("column %q: %w; there are %s", name, ErrNoColumn, strings.Join(slices.Concat([]string{"side", "item", "time"}, t.Params, t.names()), ", "))
	}
	slices.SortStableFunc(t.Rows, func(a, b *TableRow) int {
		x, y := at(a), at(b)
		if len(x) == 0 || len(y) == 0 {
			return cmp.Compare(len(y), len(x))
		}
		order := compareJSON(x, y)
		if down {
			return -order
		}
		return order
	})
	return nil
}

// compareJSON orders numbers by size. All other values come after numbers, ordered as text; NaN is among them.
func compareJSON(x, y json.RawMessage) int {
	a, okA := figures.Number(x)
	b, okB := figures.Number(y)
	okA, okB = okA && !math.IsNaN(a), okB && !math.IsNaN(b)
	switch {
	case okA && okB:
		return cmp.Compare(a, b)
	case okA != okB:
		if okA {
			return -1
		}
		return 1
	}
	return bytes.Compare(x, y)
}

// DirectionOf tells from the words in the name of a metric which values are better. It returns "" in doubt.
func DirectionOf(key string) Better {
	found := Better("")
	words := strings.FieldsFunc(strings.ToLower(key), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	for _, word := range words {
		better := directions[word]
		if better == "" {
			continue
		}
		if found != "" && found != better {
			return ""
		}
		found = better
	}
	return found
}

// directions of words in the names of metrics.
var directions = func() map[string]Better {
	list := map[string]Better{}
	for _, word := range strings.Fields("loss error errors err mae mse rmse mape logloss perplexity wer cer fpr fnr fid latency seconds duration cost") {
		list[word] = Lower
	}
	for _, word := range strings.Fields("acc accuracy auc auroc f1 precision recall r2 iou miou bleu rouge ndcg mrr tpr throughput correct") {
		list[word] = Higher
	}
	return list
}()

// Time is how long the tasks of a row took.
func (r *TableRow) Time() time.Duration { return time.Duration(r.Ms) * time.Millisecond }
