package remaining_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"e3/dataflow/graph"
	"e3/dataflow/graph/graphtest"
	"e3/dataflow/remaining"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/insight/runview"
)

// Each thing that a task may wait for is named, with the tasks; what runs has its expected end.
func TestNow(t *testing.T) {
	pkg := graphtest.Flow("clean:", "fit[1]: clean", "fit[2]: clean", "big: clean", "gpu: clean", "sign: clean", "again: clean", "queued: clean", "score: fit[1] fit[2]")
	for i := range pkg.Tasks {
		switch p := &pkg.Tasks[i]; p.Name {
		case "big":
			p.Policy.Memory = 3 << 30
		case "gpu":
			p.Policy.Resources = []record.Amount{{Name: "gpu", Value: 1}}
		case "fit[1]":
			p.Policy.Memory, p.Policy.Resources = 2<<30, []record.Amount{{Name: "gpu", Value: 1}}
		}
	}
	g, err := graph.New(pkg)
	if err != nil {
		t.Fatal(err)
	}
	first := runs("fit[1]", 0)
	first.Worker, first.Attempt = "ann@mill", 2
	report := &runview.Report{
		Run: &record.Run{Summary: record.Summary{Total: 9, Completed: 1}}, Live: true, Total: 9, Limits: &events.Limits{Cores: 1, Memory: 4 << 30},
		Tasks:  []runview.TaskReport{took("clean", time.Second), first, {Task: "sign", State: runview.TaskDeferred, Since: moment.At(noon)}, {Task: "again", State: runview.TaskRetrying}},
		Queued: []runview.Queued{{Task: "queued"}},
	}
	expected := func(string) time.Duration { return 10 * time.Second }
	n := remaining.OfReport(g, report, expected).Now(report, noon.Add(4*time.Second))
	var got []string
	for _, w := range n.Waits {
		got = append(got, fmt.Sprintf("%s %s", strings.Join(w.First, " "), w.Text()))
	}
	for _, want := range []string{
		"fit[2] for cores", "big for memory", "gpu for gpu", "sign for a person's approval", "again for the next attempt", "queued for a worker", "score for what fit makes",
	} {
		if !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
			t.Errorf("no %q among what waits:\n%s", want, strings.Join(got, "\n"))
		}
	}
	if len(n.Running) != 1 {
		t.Fatalf("%d commands at work, want one", len(n.Running))
	}
	w := n.Running[0]
	if w.Task != "fit[1]" || !w.Ends.After(noon) || w.Memory != 2<<30 || w.Worker != "ann@mill" || w.Attempt != 2 || !w.Since.Equal(noon) {
		t.Errorf("at work is %+v", w)
	}
	if !n.AtLeast || !strings.HasPrefix(n.Text, "at least ") || len(n.Next) == 0 {
		t.Errorf("the time left is %q, next are %v; want at least some time, since a person is waited for", n.Text, n.Next)
	}
	var families []string
	for _, f := range n.Families {
		families = append(families, f.Name+" "+f.Text())
	}
	if want := "fit 0 of 2 done, 1 running"; !strings.HasPrefix(families[0], want) {
		t.Errorf("the first family is %q, want %q", families[0], want)
	}
}
