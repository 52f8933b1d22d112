package report

import (
	"context"

	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// Bounds of the highlights of a run: few files are read, so that a page can show them above all else.
const (
	maxRead     = 96 // tasks whose metrics are read
	maxOfFamily = 6  // items of a matrix among them, or more if there is room for as many of each
)

// Highlights are in brief what a run has made for people to look at.
type Highlights struct {
	Metrics []Table
	Unread  map[string]int // further tasks with metrics, by family
	Shown   []Published    // plots and reports
	Notes   []string       // what cannot be shown
}

// Published is the plots or reports of a task or, together, of the items of a matrix.
type Published struct {
	Task  string // the first
	Name  string // of the task, or of the matrix
	Kind  string
	Count int // tasks
}

// A HighlightReader gathers the highlights of a run. It remembers the metrics that it has read, so that it can be asked
// again while the run goes on. It is not safe for concurrent use.
type HighlightReader struct {
	Stores
	read map[string][]*metricSource // by execution
}

// Read gathers the highlights of a run, given its report with its tasks, and its package; nil: it is gone.
func (r *HighlightReader) Read(ctx context.Context, run *runview.Report, pkg *record.Package) (*Highlights, error) {
	x := &Highlights{Unread: map[string]int{}}
	if pkg == nil {
		return x, nil
	}
	marked, families := map[string]*record.PackageTask{}, map[string]bool{}
	for i := range pkg.Tasks {
		if t := &pkg.Tasks[i]; len(t.Policy.Views) > 0 {
			marked[t.Name], families[runview.FamilyOf(t.Name)] = t, true
		}
	}
	ofFamily := max(maxOfFamily, maxRead/max(len(families), 1))
	o := &outputs{b: &builder{ctx: ctx, s: r.Stores, run: run, pkg: pkg}, page: &Contents{}}
	shown, family, read, tried := map[[2]string]int{}, map[string]int{}, map[string][]*metricSource{}, 0
	for i := range run.Tasks {
		t := &run.Tasks[i]
		declared := marked[t.Task]
		if declared == nil || t.State != runview.TaskSuccess && t.State != runview.TaskCached {
			continue
		}
		name := runview.FamilyOf(t.Task)
		measures := *declared
		measures.Policy.Views = nil
		kinds := map[string]bool{}
		for _, v := range declared.Policy.Views {
			if v.Kind == record.ViewMetrics {
				measures.Policy.Views = append(measures.Policy.Views, v)
			} else {
				kinds[v.Kind.String()] = true
			}
		}
		for _, kind := range []string{record.ViewPlot.String(), record.ViewReport.String()} {
			if !kinds[kind] {
				continue
			}
			k, ok := shown[[2]string{name, kind}]
			if !ok {
				k = len(x.Shown)
				shown[[2]string{name, kind}] = k
				x.Shown = append(x.Shown, Published{Task: t.Task, Name: name, Kind: kind})
			}
			x.Shown[k].Count++
		}
		if len(measures.Policy.Views) == 0 {
			continue
		}
		if family[name]++; family[name] > ofFamily || len(read)+tried == maxRead {
			x.Unread[name]++
			continue
		}
		known, ok := r.read[t.ExecutionID]
		if ok {
			o.metrics = append(o.metrics, known...)
		} else {
			from, faults := len(o.metrics), len(o.page.Notes)
			if err := o.task(t, &measures); err != nil {
				return nil, err
			}
			known = o.metrics[from:len(o.metrics):len(o.metrics)]
			if ok = len(o.page.Notes) == faults; !ok {
				tried++ // and again the next time
			}
		}
		if ok {
			read[t.ExecutionID] = known
		}
	}
	r.read = read
	x.Metrics, x.Notes = o.tables(), o.page.Notes
	return x, nil
}
