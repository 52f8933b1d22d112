package ui

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/insight/explain"
	"e3/internal/insight/history"
	h "e3/internal/insight/markup"
	"e3/internal/insight/runview"
)

func (b *taskBody) page(f *frame) h.Node {
	var views []tab
	for _, v := range []struct{ name, view string }{
		{"Log", taskLog}, {"Why", taskWhy}, {"Inputs and outputs", taskData}, {"History", taskHistory},
	} {
		url := f.With("view", strings.TrimPrefix(v.view, taskLog), "line", "", "find", "", "log", "", "io", "", "n", "",
			"path", "")
		views = append(views, tab{v.name, url, v.view == b.View})
	}
	return h.Group{b.head(f), navigation("tabs inner", "Views of the task", views), note(b.Missing), b.view(f),
		b.command()}
}

func (b *taskBody) head(f *frame) h.Node {
	pin := h.Node(nil)
	if b.Execution != nil {
		pin = f.action("pin", hidden("w", f.Workspace), hidden("x", b.Execution.ExecutionID),
			input("Note", "note", "", 20), h.Text(" "), button("Pin this execution"))
	}
	return h.El("header.head",
		h.El("h1", h.El("span.mono", h.Line(b.Task)), h.If(b.State != "", h.Text(" "), badge(b.State))),
		h.If(b.Note != "", h.El("p.lead", h.Line(b.Note))), facts(b.Facts), b.Together.links(f),
		b.attemptsOfRun(f),
		h.If(b.State == string(runview.TaskDeferred), f.decision(b.Task)), pin)
}

// links are the other items of the same command.
func (t *together) links(f *frame) h.Node {
	if t == nil {
		return nil
	}
	said := fmt.Sprintf("One of the %d items of a command", t.Items)
	if len(t.Others) > 0 {
		said += ", with"
	}
	return h.El("p.links", h.ID("together"), dim(said),
		h.Map(t.Others, func(task string) h.Node { return h.Group{h.Text(" "), f.taskLink(task, "r", t.Run)} }),
		h.If(t.More > 0, h.Text(" "), dim(fmt.Sprintf("and %d more", t.More))))
}

// attemptsOfRun lets the reader choose an attempt of the run, earliest first; nothing if there is only one.
func (b *taskBody) attemptsOfRun(f *frame) h.Node {
	var links h.Group
	for i := range slices.Backward(b.History) {
		if a := &b.History[i]; b.Run != nil && a.MadeBy == b.Run.RunID {
			links = append(links, h.El("a", h.Attr("href", attemptURL(f, a)), h.If(b.isShown(a), h.Attr("aria-current", "true")),
				h.Textf("%d ", a.Number), state(string(a.Status))), h.Text(" "))
		}
	}
	return h.If(len(links) > 2, h.El("p.links", dim("Attempts of this run:"), h.Text(" "), links))
}

// isShown reports whether the page is about an attempt.
func (b *taskBody) isShown(a *history.Attempt) bool {
	return b.Execution != nil && a.ExecutionID == b.Execution.ExecutionID
}

// attemptURL is the page of an attempt; "" if the attempt was not started.
func attemptURL(f *frame, a *history.Attempt) string {
	if a.ExecutionID == "" {
		return ""
	}
	return f.With("x", a.ExecutionID, "view", "", "line", "", "find", "", "io", "", "n", "", "path", "")
}

// view is the view of a task that the address chooses.
func (b *taskBody) view(f *frame) h.Node {
	switch {
	case b.View == taskLog && b.Log != nil:
		return b.Log.section(f)
	case b.View == taskWhy && b.Why != nil:
		return why(f, b.Why)
	case b.View == taskData:
		return b.dataView()
	case b.View == taskHistory:
		return b.attemptsView(f)
	}
	return nil
}

func (b *taskBody) command() h.Node {
	text := h.Text(b.Shell)
	if b.Shell == "" {
		text = h.Map(b.Words, func(w string) h.Node { return h.Group{h.Line(w), h.Text("\n")} })
	}
	if b.Shell == "" && len(b.Words) == 0 {
		return nil
	}
	env := h.Map(b.Env, func(v record.EnvVar) h.Node {
		return h.El("div", h.El("dt", h.Line(v.Name)), h.El("dd.mono", h.Line(v.Value)))
	})
	return section("command", "Command", block("text", text), h.If(len(b.Env) > 0, h.El("details",
		h.El("summary", h.Text(human.Count(len(b.Env), "variable")+" of its environment")), h.El("dl.facts", env))))
}

func (v *logView) section(f *frame) h.Node {
	size := human.Bytes(v.Sizes[v.Stream])
	if v.Total > 0 {
		size = human.Count(v.Total, "line") + ", " + size
	}
	var up, down, lines h.Node
	last, tail := v.First+len(v.Lines)-1, "yes"
	if v.First > 1 {
		up = more(f.With("line", itoa(max(1, v.First-maxLogLines+lineMargin))), "earlier lines")
	}
	if len(v.Lines) > 0 && last < v.Total {
		down, tail = more(f.With("line", itoa(last+1+lineMargin)), "later lines"), "no"
	}
	switch {
	case len(v.Lines) > 0:
		lines = h.El("div.log", h.Attr("tabindex", "0"), h.Attr("role", "region"), h.Attr("aria-label", v.Stream),
			h.Attr("data-tail", tail),
			h.El("ol", h.Attr("start", itoa(v.First)), h.Map(v.Lines, func(l logLine) h.Node { return l.item(f) })))
	case v.Err == "":
		lines = note("It printed nothing there.")
	}
	return h.El("section", h.Attr("aria-labelledby", "log-h"), h.El("h2.away", h.ID("log-h"), h.Text("Log")),
		h.El("div.logbar", v.streams(f), h.If(!f.Static, v.search(f)), h.Text(" "),
			h.El("span.dim", h.Text(size), h.If(v.Raw != "", h.Text(" · "), link(v.Raw, h.Text("all of it"))))),
		v.hits(f), up, lines, down,
		h.If(v.Sizes[v.Stream] > maxLogRead, note("Only the first 128 MiB were looked at.")),
		h.If(v.Err != "", warnings([]string{v.Err})))
}

// streams are the links to the streams of the log; in a file, which has only one stream, the stream's name.
func (v *logView) streams(f *frame) h.Node {
	return h.El("nav.streams", h.Attr("aria-label", "Streams"), h.Map(streamNames, func(name string) h.Node {
		label, url := name, f.With("log", textIf(name != v.Usual, name), "line", "", "find", "")
		switch {
		case v.Sizes[name] == 0:
			label += " (empty)"
		case v.Telling && name == "stderr":
			label = human.LookOf("failed").Mark + " stderr, where it failed"
		}
		switch {
		case url != "":
			return h.El("a", h.Attr("href", url), h.If(name == v.Stream, h.Attr("aria-current", "page")), h.Text(label))
		case name == v.Stream:
			return h.Text(label)
		}
		return nil
	}))
}

// search is a form that looks for a word in the log, and keeps the rest of the address.
func (v *logView) search(f *frame) h.Node {
	var kept h.Group
	for _, key := range slices.Sorted(maps.Keys(f.Place.Query)) {
		if key != "find" && key != "line" {
			kept = append(kept, hidden(key, f.Place.get(key)))
		}
	}
	return h.El("form", h.Attr("method", "get"), h.Attr("action", "/task"), h.Attr("role", "search"),
		h.Attr("aria-label", "In the log"), kept,
		input("Find", "find", v.Find, 0, h.Attr("type", "search")), h.Text(" "), button("Find"))
}

func (v *logView) hits(f *frame) h.Node {
	if v.Find == "" {
		return nil
	}
	said := fmt.Sprintf("%s with “%s”", human.Count(len(v.Hits), "line"), v.Find)
	if v.MoreHits > 0 {
		said += fmt.Sprintf(", and %d more", v.MoreHits)
	}
	return h.El("div.hits", h.Attr("role", "status"), h.El("p", h.Line(said)),
		h.El("ol", h.Map(v.Hits, func(x hit) h.Node {
			return h.El("li", h.Attr("value", itoa(x.N)), link(lineURL(f, x.N), h.Text(x.Text)))
		})))
}

// lineURL is the address of a line.
func lineURL(f *frame, n int, pairs ...string) string {
	return f.With(append(pairs, "line", itoa(n))...) + "#L" + itoa(n)
}

func (l logLine) item(f *frame) h.Node {
	n := itoa(l.N)
	return h.El("li", h.ID("L"+n), h.If(l.Hit, h.Class("hit")),
		h.El("a.n", h.Attr("href", lineURL(f, l.N, "find", "")), h.Attr("tabindex", "-1"), h.Attr("aria-label", "line "+n),
			h.Text(n)),
		h.El("span.l", painted(l.Segments), h.If(l.Rest != "", h.Text(" "), dim(l.Rest))))
}

// why is the answer to why the task ran, or did not, or failed.
func why(f *frame, w *explain.Explanation) h.Node {
	whys := func(task string) h.Node { return f.taskLink(task, "view", taskWhy) }
	chain := h.Map(w.Chain, func(task string) h.Node { return h.El("li", whys(task)) })
	changed := h.Map(w.Changed, func(c explain.Cause) h.Node {
		return h.El("li", h.El("b", h.Line(c.Task)), h.Text(": "), h.Line(c.Text))
	})
	return section("why", "Why", h.El("p.lead", h.ID("sentence"), h.Line(w.Sentence)),
		h.If(len(w.Chain) > 1, note("By way of"), h.El("ol.chain", chain)),
		reason(f, w.Reason), failure(w.Failure),
		h.If(len(w.Changed) > 0, h.El("h3", h.Text("Since it last worked")), h.El("ul", changed)),
		downstream(f, w.Downstream), notes(w.Notes))
}

func notes(list []string) h.Node { return h.Map(list, note) }

func failure(x *explain.Failure) h.Node {
	if x == nil {
		return nil
	}
	var parts h.Group
	if len(x.Tail) > 0 {
		parts = append(parts, note("The end of its "+x.Log+":"),
			block("text", h.Map(x.Tail, func(s string) h.Node { return h.Group{h.Line(s), h.Text("\n")} })))
	}
	if s := x.Succeeded; s != nil {
		parts = append(parts, note(fmt.Sprintf("The same command on the same inputs succeeded before: execution %s of %s",
			short(s.Execution), stamp(s.At))))
	}
	return parts
}

func downstream(f *frame, d *explain.Downstream) h.Node {
	if d == nil {
		return nil
	}
	return h.Group{
		h.El("h3", h.Line("What follows from "+d.Of+": "+human.Count(d.Total, "task"))),
		h.El("ul.inline", h.Map(d.Tasks, func(t explain.DownstreamTask) h.Node {
			return h.El("li", f.taskLink(t.Task), h.If(t.State != "", h.Text(" "), dim(t.State)))
		})),
	}
}

// reason is a cause with the causes behind it, down to the roots.
func reason(f *frame, r *explain.Reason) h.Node {
	if r == nil {
		return nil
	}
	text := cmp.Or(textIf(r.AsAbove, "as above"), r.Cause.Text)
	compared := h.Node(nil)
	if c := r.Compared; c != nil && c.Execution != "" {
		compared = h.Group{h.Text(" "), dim("compared with execution " + short(c.Execution))}
	}
	differences := make(h.Group, len(r.Differences))
	for i := range r.Differences {
		differences[i] = difference(f, &r.Differences[i], r.Task)
	}
	return h.El("div.reason",
		h.El("p", f.taskLink(r.Task, "view", taskWhy), h.Text(": "), h.Line(text), compared),
		differences, notes(r.Notes), reason(f, r.Before),
		h.Map(r.Upstream, func(up *explain.Reason) h.Node { return reason(f, up) }),
		h.If(r.Omitted > 0, note(fmt.Sprintf("and %d more upstream that were not looked at", r.Omitted))))
}

func difference(f *frame, d *explain.Difference, task string) h.Node {
	producer := h.Node(nil)
	if d.Producer != "" {
		producer = h.Group{h.Text(", made by "), f.taskLink(d.Producer, "view", taskWhy)}
	}
	lines := h.Map(d.Lines, func(l explain.Line) h.Node {
		class := "minus"
		if l.Op == "+" {
			class = "plus"
		}
		return h.Group{h.El("span", h.Class(class), h.Line(l.Op+" "+l.Text)), h.Text("\n")}
	})
	var texts []string
	for _, it := range d.Items {
		texts = append(texts, it.Label+" "+it.How)
	}
	return h.El("div.difference", h.El("p", h.Line(d.Text(task)), producer),
		h.If(len(d.Lines) > 0, block("text diff", lines)), h.If(len(texts) > 0, items(texts)), change(d.Change),
		h.If(d.More > 0, note(fmt.Sprintf("and %d more", d.More))))
}

// change shows how the content of an input differs.
func change(c *explain.ContentChange) h.Node {
	if c == nil {
		return nil
	}
	var files, parts []string
	for _, x := range c.Files {
		files = append(files, x.Path+" "+x.How)
	}
	for _, x := range c.Values {
		parts = append(parts, fmt.Sprintf("%s %s → %s", x.Path, x.Was, x.Is))
	}
	return h.Group{h.If(len(files) > 0, items(files)), h.If(len(parts) > 0, items(parts)), note(c.Gone)}
}

// dataView shows inputs and outputs.
func (b *taskBody) dataView() h.Node {
	var parts h.Group
	if b.Shown != nil {
		parts = append(parts, section("shown", b.Shown.Name, h.Class("shown"), b.Shown.draw()))
	}
	if len(b.Outputs) > 0 {
		parts = append(parts, section("out", "Outputs", h.Map(b.Outputs, item.output)))
	}
	if len(b.Inputs) > 0 {
		parts = append(parts, section("in", "Inputs",
			table("", "", "Inputs", heads("Input", "Kind", "From", "Hash"), h.Map(b.Inputs, item.input))))
	}
	return parts
}

func (it item) output() h.Node {
	said := it.Kind + " at " + it.Path
	var kinds []string
	for _, v := range it.Views {
		if k := v.Kind.String(); !slices.Contains(kinds, k) {
			kinds, said = append(kinds, k), said+" · "+k
		}
	}
	shown := h.Node(nil)
	if it.Preview != nil {
		shown = it.Preview.draw()
	}
	seen := h.Map(it.Seen, func(p *preview) h.Node { return h.Group{h.El("h4", h.Line(p.Name)), p.draw()} })
	return h.El("article.item", h.El("h3", link(it.URL, h.Line(it.Name)), h.Text(" "), dim(said)), shown, seen)
}

func (it item) input() h.Node {
	return h.El("tr", rowHead(link(it.URL, h.Line(it.Name))), cell("td", it.Kind),
		h.El("td", link(it.FromURL, h.Line(it.From))),
		cell("td.id", short(it.Hash)))
}

// draw draws what a preview shows.
func (p *preview) draw() h.Node {
	label := human.Line(p.Name)
	shown := content(&p.Content, label)
	switch {
	case p.Frame != "":
		shown = h.Group{frameOf(label, h.Attr("src", p.Frame)), note("Scripts in this document do not run here.")}
	case len(p.Entries) > 0:
		shown = table("", "", "The directory "+p.Name, heads("Name", "Size.num"), h.Map(p.Entries, entry.line))
	}
	raw := h.If(p.Raw != "", h.El("p.note", link(p.Raw, h.Text("the bytes")), h.Text(" · "),
		h.El("a", h.Attr("href", p.Raw+"&save=1"), h.Flag("download"), h.Text("save"))))
	return h.Group{shown, note(p.Note), raw}
}

func (e entry) line() h.Node {
	return h.El("tr", rowHead(link(e.URL, h.Line(e.Name))), number(cmp.Or(e.Kind, human.Bytes(e.Size))))
}

// attemptsView is the history of the task.
func (b *taskBody) attemptsView(f *frame) h.Node {
	if len(b.History) == 0 {
		return section("hist", "History", note("None"))
	}
	var took, memory []point
	rows := make(h.Group, len(b.History))
	for i := range slices.Backward(b.History) {
		a := &b.History[i]
		p := point{at: a.At(), state: string(a.Status), url: attemptURL(f, a)}
		if a.Timed {
			p.value, p.text = a.Duration.Seconds(), human.Duration(a.Duration)
			took = append(took, p)
		}
		if n := a.Peak(); n > 0 {
			p.value, p.text = float64(n), human.Bytes(n)
			memory = append(memory, p)
		}
		rows[i] = b.attemptLine(f, a)
	}
	plot := func(title string, list []point, text func(float64) string) h.Node {
		drawn := plotOf(list, text)
		return h.If(drawn != nil, h.El("h3", h.Text(title)), scroll("", drawn))
	}
	columns := heads("Execution", "Status", "Started.when", "Took.num", "Memory.num", "Run", "By.opt", "Note")
	return section("hist", "History", plot("Durations", took, seconds),
		plot("Memory", memory, func(v float64) string { return human.Bytes(int64(v)) }),
		table("", "tasks flow", "Attempts, the latest first", columns, rows),
		h.If(b.More, note("There are earlier ones.")))
}

func (b *taskBody) attemptLine(f *frame, a *history.Attempt) h.Node {
	execution, run, memory := h.Text("not started"), "", a.Peak()
	if a.ExecutionID != "" {
		execution = link(attemptURL(f, a), h.Text(short(a.ExecutionID)))
	}
	if a.MadeBy != "" && slices.Contains(a.Runs, a.MadeBy) {
		run = f.runURL(a.MadeBy)
	}
	return h.El("tr", h.If(b.isShown(a), h.Class("now")), h.ID("x-"+a.ExecutionID),
		h.El("th.mono", h.Attr("scope", "row"), execution), h.El("td", state(string(a.Status))),
		cell("td.when", stamp(a.At())), number(textIf(a.Timed, human.Duration(a.Duration))),
		number(textIf(memory > 0, human.Bytes(memory))),
		h.El("td.mono", h.Attr("data-l", "run"), link(run, h.Text(short(a.MadeBy)))), cell("td.opt", a.Worker),
		cell("td", attemptNote(a)))
}
