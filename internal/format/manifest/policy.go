package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"e3/internal/format/notation"
	"e3/internal/format/record"
)

// The ranges of the numbers in a policy.
const (
	maxRetries  = 1_000
	maxPriority = 1_000_000
	maxCode     = 255
	maxGrowth   = 1_000
	maxLabels   = 32
)

// A policyReader reads the settings of one task that do not enter its cache key.
type policyReader struct {
	*decoder
	record.Policy
	limits                *bool // nil: not given
	suspend, onOOM, batch Pos   // places of keys that consistent compares
}

// policyKeys are the keys of a policy with their readers. The schema has each too.
var policyKeys = map[string]func(p *policyReader, where string, n *node){
	"description": func(p *policyReader, where string, n *node) { p.Description = p.text(where, n) },
	"timeout": func(p *policyReader, where string, n *node) {
		before := len(p.report.errs)
		p.Timeout = p.duration(where, n)
		if p.Timeout == 0 && n.kind != badNode && len(p.report.errs) == before {
			p.report.add(n.pos, "leave it out for no limit", "%s: want more than 0", where)
		}
	},
	"retries":   (*policyReader).readRetries,
	"resources": (*policyReader).readResources,
	"on_oom":    (*policyReader).readGrowth,
	"priority": func(p *policyReader, where string, n *node) {
		p.Priority = p.count(where, n, -maxPriority, maxPriority)
	},
	"approve": func(p *policyReader, where string, n *node) { p.Approve, _ = p.boolean(where, n) },
	"suspend": func(p *policyReader, where string, n *node) {
		p.suspend, p.Suspend = n.pos, p.count(where, n, 1, maxCode)
	},
	"on_lost": func(p *policyReader, where string, n *node) {
		switch text := p.text(where, n); {
		case text == record.OnLostKeep.String():
			p.OnLost = record.OnLostKeep
		case text == record.OnLostKill.String():
			p.OnLost = record.OnLostKill
		case n.kind == stringNode:
			p.report.add(n.pos, didYouMean(text, slices.Values([]string{"keep", "kill"})), "%s: %q is neither keep nor kill", where, truncate(text))
		}
	},
	"may_fail": func(p *policyReader, where string, n *node) { p.MayFail, _ = p.boolean(where, n) },
	"batch": func(p *policyReader, where string, n *node) {
		p.batch, p.Batch = n.pos, p.count(where, n, 1, notation.MaxBatch)
	},
	"limits": func(p *policyReader, where string, n *node) {
		if yes, ok := p.boolean(where, n); ok {
			p.Limits, p.limits = yes, &yes
		}
	},
	"queue": func(p *policyReader, where string, n *node) {
		if p.Queue = p.text(where, n); n.kind == stringNode && !notation.ValidName(p.Queue) {
			p.report.add(n.pos, nameRule, "%s: %q is not the name of a queue", where, truncate(p.Queue))
		}
	},
	"labels": func(p *policyReader, where string, n *node) { p.Labels = p.readLabels(where, n) },
}

// limitResources applies the file's setting to tasks that do not say whether their resources are limits.
func (d *decoder) limitResources() {
	for i := range d.bases {
		if b := &d.bases[i]; d.limits && b.limits == nil {
			p := *b.spec.Policy
			p.Limits = true
			b.spec.Policy = d.shared.policy(p)
		}
	}
}

// consistent checks the parts of a policy against each other.
func (p *policyReader) consistent(where string) {
	if p.Suspend != 0 && slices.Contains(p.RetryOn, strconv.FormatInt(p.Suspend, 10)) {
		p.report.add(p.suspend, "remove it there, or choose another", "%s: suspend: %d is in retries: on as well, but asks for a pause and is no failure", where, p.Suspend)
	}
	if p.OOM.Factor == 0 {
		return
	}
	if p.Memory == 0 {
		p.report.add(p.onOOM, "add resources: {memory: 2GiB}, or what the first attempt needs", "%s: on_oom: no memory is declared that could grow", where)
	} else if p.OOM.Max > 0 && p.OOM.Max <= p.Memory {
		p.report.add(p.onOOM, "", "%s: on_oom: max is not above resources: memory, so that nothing could grow", where)
	}
	switch {
	case p.Retries == 0:
		p.report.add(p.onOOM, "add retries: {max: 2}", "%s: on_oom: there are no retries, so that no attempt would get more memory", where)
	case len(p.RetryOn) > 0 && !slices.Contains(p.RetryOn, "oom"):
		p.report.add(p.onOOM, "add oom to it", "%s: on_oom: retries: on has no oom, so that no attempt would get more memory", where)
	}
}

func (p *policyReader) readRetries(where string, n *node) {
	switch n.kind {
	case intNode:
		p.Retries = p.count(where, n, 0, maxRetries)
	case mapNode:
		before := len(p.report.errs)
		var most, on, lost *node
		p.fields(where, n, retryKeys, func(key, v *node) {
			switch key.text {
			case "max":
				most = v
				p.Retries = p.count(where+": max", v, 0, maxRetries)
			case "backoff":
				p.Backoff = p.duration(where+": backoff", v)
			case "on":
				on = v
				p.RetryOn = p.retryReasons(where+": on", v)
			case "lost":
				lost = v
				if p.Lost = record.LostRetries(p.count(where+": lost", v, 0, maxRetries)); p.Lost == 0 {
					p.Lost = record.NeverAfterLoss
				}
			}
		})
		if most == nil && lost == nil {
			p.missing(n, "", "%s: max, the number of retries, is missing", where)
		}
		if on == nil || len(p.report.errs) > before {
			break
		}
		has := slices.Contains(p.RetryOn, "lost")
		switch {
		case has && p.Lost < 0:
			p.report.add(lost.pos, "remove it from on", "%s: on has lost, but lost is 0", where)
		case !has && p.Lost > 0:
			p.report.add(lost.pos, "add lost to it", "%s: on has no lost, so that no attempt follows one whose worker is lost", where)
		case p.Retries == 0 && (len(p.RetryOn) > 1 || !has):
			p.report.add(on.pos, "add max: 2", "%s: on: there are no retries", where)
		}
	default:
		p.wrongType(where, n, "a whole number or a mapping such as {max: 2, backoff: 5s}")
	}
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

// readGrowth reads the growth of the demand for memory after memory ran out.
func (p *policyReader) readGrowth(where string, n *node) {
	p.onOOM = n.pos
	if n.kind != mapNode {
		p.wrongType(where, n, "a mapping such as {memory: x2, max: 64GiB}")
		return
	}
	given := false
	p.fields(where, n, growthKeys, func(key, v *node) {
		switch key.text {
		case "memory":
			given = true
			p.OOM.Factor = p.factor(where+": memory", v)
		case "max":
			p.OOM.Max = p.size(where+": max", v)
		}
	})
	if !given {
		p.missing(n, "add memory: x2", "%s: memory, by how much it grows, is missing", where)
	}
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

// readLabels reads the labels that a worker must have.
func (d *decoder) readLabels(where string, n *node) []string {
	if n.kind == listNode && len(n.list) > maxLabels {
		d.report.add(n.pos, "", "%s: there are more than %d", where, maxLabels)
		return nil
	}
	return d.shared.strings(distinct(d, where, n, "a list such as [gpu, big]", "a label", func(item *node) bool {
		if !notation.ValidName(item.text) {
			d.report.add(item.pos, nameRule, "%s: %q is not a label", where, truncate(item.text))
			return false
		}
		return true
	}))
}

func (p *policyReader) readResources(where string, n *node) {
	if n.kind != mapNode {
		p.wrongType(where, n, "a mapping such as {cpu: 2, memory: 2GiB}")
		return
	}
	p.members(where, n, "resource", func(key, v *node) {
		switch {
		case key.text == "cpu":
			p.CPU = p.amount(where+": cpu", v)
		case key.text == "memory":
			p.Memory = p.size(where+": memory", v)
		case !notation.ValidName(key.text):
			p.report.add(key.pos, nameRule, "%s: %q is not the name of a resource", where, truncate(key.text))
		default:
			like := p.suggest(key.text, []string{"cpu", "memory"})
			if like != "" && v.kind == stringNode {
				p.report.add(key.pos, like, "%s: unknown key %q", where, key.text)
				return
			}
			if like != "" {
				p.def.doubts = append(p.def.doubts, Warning(faultAt(p.report.file, key.pos, like, "%s: %s is a resource of that name, which only --resource bounds", where, key.text)))
			}
			name := p.intern(key.text)
			p.Resources = append(p.Resources, record.Amount{Name: name, Value: p.amount(where+": "+key.text, v)})
		}
	})
}
