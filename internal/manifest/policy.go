package manifest

// The ranges of whole numbers that a policy may hold.
const (
	maxRetries  = 1_000
	maxPriority = 1_000_000
)

// policy reads one of the keys that do not enter a task's key.
func (d *decoder) policy(where, key string, n *node, p *Policy) {
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
	}
}

func (d *decoder) retries(where string, n *node) Retries {
	var r Retries
	switch n.kind {
	case intNode:
		r.Max = d.count(where, n, 0, maxRetries)
	case mapNode:
		given := false
		d.fields(where, n, retryKeys, func(key, v *node) {
			switch key.text {
			case "max":
				given = true
				r.Max = d.count(where+": max", v, 0, maxRetries)
			case "backoff":
				r.Backoff = d.duration(where+": backoff", v)
			}
		})
		if !given {
			d.report.add(n.pos, "", "%s: max, the number of retries, is missing", where)
		}
	default:
		d.wrongType(where, n, "a whole number or a mapping such as {max: 2, backoff: 5s}")
	}
	return r
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
		case !ValidName(key.text):
			d.report.add(key.pos, nameRule, "%s: %q is not the name of a resource", where, clip(key.text))
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
