package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"e3/internal/format/notation"
)

// The ranges of the numbers in a policy.
const (
	maxRetries  = 1_000
	maxPriority = 1_000_000
	maxCode     = 255
	maxGrowth   = 1_000
	maxLabels   = 32
)

// policyPlaces are the positions of the keys that consistent compares.
type policyPlaces struct{ suspend, onOOM, batch Pos }

// policy reads one of the settings that do not enter a task's cache key.
func (d *decoder) policy(where, key string, n *node, p *Policy, at *policyPlaces) {
	where += ": " + key
	switch key {
	case "description":
		p.Description = d.text(where, n)
	case "timeout":
		before := len(d.report.errs)
		p.Timeout = d.duration(where, n)
		if p.Timeout == 0 && n.kind != badNode && len(d.report.errs) == before {
			d.report.add(n.pos, "leave it out for no limit", "%s: want more than 0", where)
		}
	case "retries":
		p.Retries = d.retries(where, n)
	case "resources":
		p.Resources = d.resources(where, n)
	case "priority":
		p.Priority = d.count(where, n, -maxPriority, maxPriority)
	case "approve":
		p.Approve, _ = d.boolean(where, n)
	case "suspend":
		at.suspend = n.pos
		p.Suspend = d.count(where, n, 1, maxCode)
	case "on_lost":
		switch text := d.text(where, n); {
		case text == "keep":
			p.OnLost = Keep
		case text == "kill":
			p.OnLost = Kill
		case n.kind == stringNode:
			d.report.add(n.pos, "", "%s: %q is neither keep nor kill", where, truncate(text))
		}
	case "may_fail":
		p.MayFail, _ = d.boolean(where, n)
	case "batch":
		at.batch = n.pos
		p.Batch = d.count(where, n, 1, notation.MaxBatch)
	case "limits":
		if yes, ok := d.boolean(where, n); ok && yes {
			p.Limits = Limited
		} else if ok {
			p.Limits = Unlimited
		}
	case "on_oom":
		at.onOOM = n.pos
		p.OnOOM = d.growth(where, n)
	case "queue":
		if p.Queue = d.text(where, n); n.kind == stringNode && !notation.ValidName(p.Queue) {
			d.report.add(n.pos, nameRule, "%s: %q is not the name of a queue", where, truncate(p.Queue))
		}
	case "labels":
		p.Labels = d.labels(where, n)
	}
}

// consistent checks the parts of a policy against each other.
func (d *decoder) consistent(where string, p *Policy, at *policyPlaces) {
	r := &p.Retries
	if p.Suspend != 0 && slices.Contains(r.On, strconv.Itoa(p.Suspend)) {
		d.report.add(at.suspend, "remove it there, or choose another", "%s: suspend: %d is in retries: on as well, but asks for a pause and is no failure", where, p.Suspend)
	}
	if p.OnOOM.Factor == 0 {
		return
	}
	if memory := p.Resources.Memory; memory == 0 {
		d.report.add(at.onOOM, "add resources: {memory: 2GiB}, or what the first attempt needs", "%s: on_oom: no memory is declared that could grow", where)
	} else if p.OnOOM.Max > 0 && p.OnOOM.Max <= memory {
		d.report.add(at.onOOM, "", "%s: on_oom: max is not above resources: memory, so that nothing could grow", where)
	}
	switch {
	case r.Max == 0:
		d.report.add(at.onOOM, "add retries: {max: 2}", "%s: on_oom: there are no retries, so that no attempt would get more memory", where)
	case len(r.On) > 0 && !slices.Contains(r.On, "oom"):
		d.report.add(at.onOOM, "add oom to it", "%s: on_oom: retries: on has no oom, so that no attempt would get more memory", where)
	}
}

func (d *decoder) retries(where string, n *node) Retries {
	var r Retries
	switch n.kind {
	case intNode:
		r.Max = d.count(where, n, 0, maxRetries)
	case mapNode:
		before := len(d.report.errs)
		var most, on, lost *node
		d.fields(where, n, retryKeys, func(key, v *node) {
			switch key.text {
			case "max":
				most = v
				r.Max = d.count(where+": max", v, 0, maxRetries)
			case "backoff":
				r.Backoff = d.duration(where+": backoff", v)
			case "on":
				on = v
				r.On = d.retryReasons(where+": on", v)
			case "lost":
				lost = v
				if r.Lost = d.count(where+": lost", v, 0, maxRetries); r.Lost == 0 {
					r.Lost = -1
				}
			}
		})
		if most == nil && lost == nil {
			d.report.add(n.pos, "", "%s: max, the number of retries, is missing", where)
		}
		if on == nil || len(d.report.errs) > before {
			break
		}
		has := slices.Contains(r.On, "lost")
		switch {
		case has && r.Lost < 0:
			d.report.add(lost.pos, "remove it from on", "%s: on has lost, but lost is 0", where)
		case !has && r.Lost > 0:
			d.report.add(lost.pos, "add lost to it", "%s: on has no lost, so that no attempt follows one whose worker is lost", where)
		case r.Max == 0 && (len(r.On) > 1 || !has):
			d.report.add(on.pos, "add max: 2", "%s: on: there are no retries", where)
		}
	default:
		d.wrongType(where, n, "a whole number or a mapping such as {max: 2, backoff: 5s}")
	}
	return r
}

// retryReasons reads the failures that are retried: words and exit codes.
func (d *decoder) retryReasons(where string, n *node) []string {
	if n.kind != listNode {
		d.wrongType(where, n, "a list such as [timeout, oom, 75]")
		return nil
	}
	if len(n.list) == 0 {
		d.report.add(n.pos, "leave it out if every failure is worth another attempt, or write retries: 0", "%s: the list is empty", where)
	}
	reasons := make([]string, 0, min(len(n.list), len(retryWords)+maxCode))
	for i := range n.list {
		item := &n.list[i]
		switch {
		case item.kind == intNode && (item.int() < 1 || item.int() > maxCode):
			d.report.add(item.pos, "", "%s: %d is no exit code of a failure; want a number from 1 to %d", where, item.int(), maxCode)
			continue
		case item.kind == stringNode && !slices.Contains(retryWords, item.text):
			hint := d.suggest(item.text, retryWords)
			if code, err := strconv.Atoi(item.text); err == nil && code > 0 && code <= maxCode {
				hint = fmt.Sprintf("for an exit code write %d without quotes", code)
			}
			d.report.add(item.pos, hint, "%s: %q is none of %s, or an exit code", where, truncate(item.text), strings.Join(retryWords, ", "))
			continue
		case item.kind != intNode && item.kind != stringNode:
			d.wrongType(where, item, "a word or an exit code")
			continue
		}
		reason := item.text
		if item.kind == intNode {
			reason = strconv.FormatInt(item.int(), 10)
		}
		reason = d.intern(reason)
		if slices.Contains(reasons, reason) {
			d.report.add(item.pos, "", "%s: %s is here for the second time", where, reason)
			continue
		}
		reasons = append(reasons, reason)
	}
	return d.shared.strings(reasons)
}

// growth reads how the demand for memory grows after memory ran out.
func (d *decoder) growth(where string, n *node) Growth {
	var g Growth
	if n.kind != mapNode {
		d.wrongType(where, n, "a mapping such as {memory: x2, max: 64GiB}")
		return g
	}
	given := false
	d.fields(where, n, growthKeys, func(key, v *node) {
		switch key.text {
		case "memory":
			given = true
			g.Factor = d.factor(where+": memory", v)
		case "max":
			g.Max = d.size(where+": max", v)
		}
	})
	if !given {
		d.report.add(n.pos, "add memory: x2", "%s: memory, by how much it grows, is missing", where)
	}
	return g
}

// factor reads "x2" or "x1.5".
func (d *decoder) factor(where string, n *node) float64 {
	const want = "a factor such as x2 or x1.5"
	if n.kind != stringNode {
		hint := ""
		if n.kind == intNode || n.kind == floatNode {
			hint = "write x" + n.text
		}
		d.report.add(n.pos, hint, "%s: want %s, not %s", where, want, n.kind)
		return 0
	}
	digits, ok := strings.CutPrefix(n.text, "x")
	whole, fraction, dot := strings.Cut(digits, ".")
	ok = ok && whole != "" && whole[0] != '0' && notation.Only(whole, notation.IsDigit) && notation.Only(fraction, notation.IsDigit) && dot == (fraction != "")
	f, err := strconv.ParseFloat(digits, 64)
	switch {
	case !ok:
		hint := ""
		if number, cut := strings.CutSuffix(n.text, "x"); cut && number != "" && notation.Only(number, notation.IsDigit) {
			hint = "write x" + number
		}
		d.report.add(n.pos, hint, "%s: %q is not %s", where, truncate(n.text), want)
		return 0
	case err != nil || f <= 1 || f > maxGrowth:
		d.report.add(n.pos, "", "%s: want more than x1, and at most x%d", where, maxGrowth)
		return 0
	}
	return f
}

// labels reads the labels that a worker must have.
func (d *decoder) labels(where string, n *node) []string {
	if n.kind != listNode {
		d.wrongType(where, n, "a list such as [gpu, big]")
		return nil
	}
	if len(n.list) > maxLabels {
		d.report.add(n.pos, "", "%s: there are more than %d", where, maxLabels)
		return nil
	}
	labels := make([]string, 0, len(n.list))
	for i := range n.list {
		switch item := &n.list[i]; {
		case item.kind != stringNode:
			d.wrongType(where, item, "a label")
		case !notation.ValidName(item.text):
			d.report.add(item.pos, nameRule, "%s: %q is not a label", where, truncate(item.text))
		case slices.Contains(labels, item.text):
			d.report.add(item.pos, "", "%s: %q is here for the second time", where, item.text)
		default:
			labels = append(labels, d.intern(item.text))
		}
	}
	return d.shared.strings(labels)
}

func (d *decoder) resources(where string, n *node) Resources {
	var r Resources
	if n.kind != mapNode {
		d.wrongType(where, n, "a mapping such as {cpu: 2, memory: 2GiB}")
		return r
	}
	d.members(where, n, "resource", func(key, v *node) {
		switch {
		case key.text == "cpu":
			r.CPU = d.amount(where+": cpu", v)
		case key.text == "memory":
			r.Memory = d.size(where+": memory", v)
		case !notation.ValidName(key.text):
			d.report.add(key.pos, nameRule, "%s: %q is not the name of a resource", where, truncate(key.text))
		default:
			if like := d.suggest(key.text, []string{"cpu", "memory"}); like != "" && v.kind == stringNode {
				d.report.add(key.pos, like, "%s: unknown key %q", where, key.text)
				return
			}
			r.Other = append(r.Other, Amount{d.intern(key.text), d.amount(where+": "+key.text, v)})
		}
	})
	return r
}
