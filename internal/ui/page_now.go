package ui

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"e3/internal/human"
	h "e3/internal/insight/markup"
	"e3/internal/insight/report"
	"e3/internal/insight/runview"
)

// Bounds of what the page of a run says of its work: the list of tasks and the list by family have the rest.
const (
	shownRunning  = 12
	shownWaits    = 8
	shownNext     = 5
	shownFamilies = 12
	shownPath     = 12
)

// left says how long a run at work still takes, and when it ends, which stays true while the page is looked at.
func (b *runBody) left() h.Node {
	if b.At == nil || b.At.Text == "" {
		return nil
	}
	text := b.At.Text + " left"
	if !b.At.AtLeast {
		text += ", until " + clockTime(b.Now.Add(b.At.Left.Duration()), b.Now)
	}
	return h.Group{h.Text(" "), h.El("span.left", h.Text(text))}
}

// clockTime is a time of today without its day.
func clockTime(t, now time.Time) string {
	if t.Local().Format(time.DateOnly) == now.Local().Format(time.DateOnly) {
		return t.Local().Format(time.TimeOnly)
	}
	return human.Stamp(t)
}

// now shows what a run at work does: what runs, what waits and for what, what is next, what each family has done.
func (b *runBody) now(f *frame) h.Node {
	n := b.At
	if n == nil {
		return nil
	}
	return section("now", "What runs now", b.running(f), b.waits(f), b.next(f), b.families(f))
}

func (b *runBody) running(f *frame) h.Node {
	n := b.At
	if len(n.Running) == 0 {
		return note("No command is at work.")
	}
	shown := n.Running[:min(len(n.Running), shownRunning)]
	rest := len(n.Running) - len(shown) + n.Unlisted
	return h.Group{
		table("", "tasks flow", "Commands at work", heads("Task", "Since", "Expected end", "Memory.num.opt", "Worker"),
			h.Map(shown, func(w runview.Working) h.Node {
				ends := textIf(!w.Ends.IsZero(), clockTime(w.Ends.Time, b.Now))
				if ends != "" && w.Ends.Before(b.Now) {
					ends += ", late"
				}
				return h.El("tr", rowHead(h.If(w.State != runview.TaskRunning, h.Group{state(string(w.State)), h.Text(" ")}), f.taskLink(w.Task)),
					tagged("td.when", "since", clockTime(w.Since.Time, b.Now)), tagged("td.when", "expected end", ends),
					tagged("td.num.opt", "memory", textIf(w.Memory > 0, human.Bytes(w.Memory))), tagged("td.about", "at", human.Worker(w.Worker)))
			})),
		h.If(rest > 0, more(f.With("status", string(runview.TaskRunning), "view", "", "page", ""), fmt.Sprintf("and %s at work", human.Count(rest, "more command")))),
	}
}

func (b *runBody) waits(f *frame) h.Node {
	list := b.At.Waits
	if len(list) == 0 {
		return nil
	}
	shown := list[:min(len(list), shownWaits)]
	rest := 0
	for _, w := range list[len(shown):] {
		rest += w.Tasks
	}
	return h.Group{h.El("h3", h.Text("What waits, and for what")), h.El("ul.plain", h.Map(shown, func(w runview.WaitFor) h.Node {
		verb := "wait "
		if w.Tasks == 1 {
			verb = "waits "
		}
		first := slices.Clone(w.First)
		if n := w.Tasks - len(first); n > 0 {
			first = append(first, fmt.Sprintf("and %s more", human.Thousands(n)))
		}
		return h.El("li", h.El("b", h.Text(human.Count(w.Tasks, "task"))), h.Text(" "+verb), h.Line(w.Text()), h.Text(": "), dim(strings.Join(first, ", ")))
	})), h.If(rest > 0, note(fmt.Sprintf("%s wait for something else.", human.Count(rest, "more task"))))}
}

func (b *runBody) next(f *frame) h.Node {
	list := b.At.Next
	if len(list) == 0 {
		return nil
	}
	return h.Group{h.El("h3", h.Text("What is next")), h.El("ul.inline", h.Map(list[:min(len(list), shownNext)], func(t runview.Turn) h.Node {
		when := "now"
		if t.At.After(b.Now.Add(time.Second)) {
			when = "about " + clockTime(t.At.Time, b.Now)
		}
		return h.El("li", f.taskLink(t.Task), h.Text(" "), dim(when))
	}))}
}

// families shows what each family has done, unless the list of tasks says as much.
func (b *runBody) families(f *frame) h.Node {
	list := b.At.Families
	if !slices.ContainsFunc(list, func(x runview.Family) bool { return x.Tasks > 1 }) {
		return nil
	}
	shown := list[:min(len(list), shownFamilies)]
	return h.Group{h.El("h3", h.Text("What each family has done")), familyTable(f, shown),
		h.If(len(shown) < len(list), more(f.With("by", "family", "view", "", "page", ""), "all families"))}
}

// familyTable is families of tasks, a line each.
func familyTable(f *frame, list []runview.Family) h.Node {
	return table("", "tasks", "Tasks, with the items of a matrix as one line",
		heads("Task", "Items.num.opt", "Status", "Together.num.opt", "Longest.num"),
		h.Map(list, func(x runview.Family) h.Node { return familyLine(f, &x) }))
}

func familyLine(f *frame, x *runview.Family) h.Node {
	url := taskURL(f, x.Task)
	if x.Name != x.Task {
		url = f.With("by", "", "q", x.Name+"[", "page", "")
	}
	counts := map[string]int{}
	for s, n := range maps.All(x.States) {
		counts[string(s)] = n
	}
	tallies := h.Map(report.Shares(counts), func(s report.Share) h.Node {
		return h.Group{h.El("span.tally", h.Text(itoa(s.Count)+" "), state(s.State)), h.Text(" ")}
	})
	return h.El("tr", h.ID("f-"+x.Name), rowHead(link(url, h.Line(x.Name))), cell("td.num.opt", itoa(x.Tasks)),
		h.El("td", tallies), cell("td.num.opt", textIf(x.Took > 0, human.Duration(x.Took.Duration()))),
		number(textIf(x.Longest > 0, human.Duration(x.Longest.Duration()))))
}

// spent shows where the time went: by family, the cores in use, and the critical path where there is one.
func (b *runBody) spent(f *frame) h.Node {
	s := b.Spent
	if s == nil {
		return nil
	}
	families := s.Families[:min(len(s.Families), shownFamilies)]
	byFamily := h.Node(nil)
	if s.Attempts > 1 {
		byFamily = table("", "tasks", "Time by family of tasks", heads("Family", "Attempts.num.opt", "Together.num", "Longest.num"),
			h.Map(families, func(x runview.FamilyTime) h.Node {
				longest := f.With("view", "", "by", "", "page", "", "q", x.Name, "sort", "-duration")
				return h.El("tr", rowHead(link(longest, h.Line(x.Name))), cell("td.num.opt", itoa(x.Attempts)), number(human.Duration(x.Took.Duration())),
					number(human.Duration(x.Longest.Duration())))
			}))
	}
	return section("path", "Where the time went", note(s.Text()), b.approved(f), h.If(s.Attempts > 0, drawCores(&s.Cores)), b.waited(f), byFamily,
		h.If(len(s.Families) > len(families), note(fmt.Sprintf("%s took less.", human.Count(len(s.Families)-len(families), "more family's tasks")))),
		b.path(f))
}

// approved says who let tasks go on, and when.
func (b *runBody) approved(f *frame) h.Node {
	var list h.Group
	for i := range b.Run.Tasks {
		if t := &b.Run.Tasks[i]; t.Approved != nil {
			list = append(list, h.El("li", f.taskLink(t.Task), h.Text(" "), h.Line(t.Approved.String()), h.Text(" "), dim(stamp(t.Approved.At.Time))))
		}
	}
	left := len(list) - shownWaits
	return h.If(len(list) > 0, h.El("ul.plain", list[:min(len(list), shownWaits)]),
		h.If(left > 0, note(human.Count(left, "more approval")+"; see the notes of the tasks.")))
}

// waited shows what tasks waited for, unless nothing but their turn, for which cores speak.
func (b *runBody) waited(f *frame) h.Node {
	if list := b.Spent.Waits; len(list) == 0 || len(list) == 1 && list[0].For == runview.WaitsTurn && !b.Spent.Stood() {
		return nil
	}
	return table("", "tasks flow", "What tasks waited for", heads("Waited for", "Tasks.num", "Together.num", "Longest.num", "While no command ran.num"),
		h.Map(b.Spent.Waits, func(w runview.WaitTime) h.Node {
			longest := h.Group{h.Attr("data-l", "longest"), h.Text(human.Duration(w.Longest.Duration()))}
			if w.Task != "" {
				longest = append(longest, h.Text(" "), f.taskLink(w.Task))
			}
			idle := textIf(w.Idle > 0, human.Duration(w.Idle.Duration()))
			return h.El("tr", rowHead(h.Text(w.Text())), tagged("td.num", "tasks", itoa(w.Tasks)), tagged("td.num", "together", human.Duration(w.Took.Duration())),
				h.El("td.num", longest), tagged("td.num", "while no command ran", idle))
		}))
}

// path shows the critical path: of a long one only the longest tasks.
func (b *runBody) path(f *frame) h.Node {
	all := b.Spent.Path
	if len(all) == 0 {
		return nil
	}
	shown, said := all, ""
	if len(all) > shownPath {
		shown = longest(all, shownPath)
		said = fmt.Sprintf("The %d longest tasks of %d on it:", len(shown), len(all))
	}
	whole := max(b.Run.RanFor(b.Now), time.Millisecond)
	return h.Group{h.El("h3", h.Text("The critical path")), note(said), h.El("ol.path", h.Map(shown, func(t runview.Stretch) h.Node {
		about := fmt.Sprintf("%d %%", 100*t.Took.Duration()/whole)
		if waited := t.Waited.Duration(); waited.Milliseconds() > 100 {
			about += ", began " + human.Duration(waited) + " later"
		}
		return h.El("li", h.Class("s-"+string(t.State)), link(taskURL(f, t.Task), h.Line(t.Task)), h.Text(" "),
			h.El("b", h.Text(human.Duration(t.Took.Duration()))), h.Text(" "), dim(about))
	}))}
}

// longest are the n tasks that took longest, in their order.
func longest(path []runview.Stretch, n int) []runview.Stretch {
	sorted := slices.Clone(path)
	slices.SortStableFunc(sorted, func(a, b runview.Stretch) int { return int(b.Took - a.Took) })
	least := sorted[n-1].Took
	var keep []runview.Stretch
	for _, t := range path {
		if len(keep) < n && t.Took >= least {
			keep = append(keep, t)
		}
	}
	return keep
}

// drawCores draws the cores in use over time, below the line of those that the run may use.
func drawCores(u *runview.CoresUse) h.Node {
	top := math.Max(math.Max(u.Most, float64(u.Limit)), 1)
	const high = 100.0
	y := func(cores float64) float64 { return math.Round(high*(1-cores/top)*10) / 10 }
	path := fmt.Sprintf("M0 %gV%g", high, y(u.Levels[0]))
	for k, level := range u.Levels {
		path += fmt.Sprintf("V%gH%d", y(level), k+1)
	}
	label := fmt.Sprintf("Cores in use over time: %s", u.Text())
	return h.Group{
		h.El("svg.cores", h.Attr("viewBox", fmt.Sprintf("0 0 %d %g", len(u.Levels), high)), h.Attr("preserveAspectRatio", "none"),
			h.Attr("role", "img"), h.Attr("aria-label", label),
			h.El("path.ink.s-running", h.Attr("d", path+fmt.Sprintf("V%gZ", high)))),
		h.El("p.scale", h.El("span", h.Text("begin")), h.El("span", h.Text(label)), h.El("span", h.Text("end"))),
	}
}
