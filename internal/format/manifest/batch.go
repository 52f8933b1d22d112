package manifest

import "slices"

// The command of a task with batch gets its items from a file. Its environment and arguments hold what all items share,
// so they must not name anything that belongs to one item.

// checkBatch checks that a task with batch has items, and that no person decides about one of them.
func (p *policyReader) checkBatch(where string, b *base) {
	switch {
	case p.Batch == 0:
	case !b.isFamily():
		p.report.add(p.batch, "add a matrix, or remove batch", "%s: batch: the task has no items", where)
	case p.Approve || p.Suspend != 0:
		p.report.add(p.batch, "remove one of them", "%s: batch: a command that serves several items cannot wait for the approval of one", where)
	}
}

// isOwn reports whether the result of a plan depends on the item of the referring task.
func (p *plan) isOwn(b *base) bool {
	if !p.joined {
		return p.own
	}
	return slices.ContainsFunc(slices.Concat(p.selectors, p.itemSelectors), func(s selector) bool {
		_, own := b.own(s.value)
		return own
	})
}

// itemsInCommand refuses names in the arguments of a batch whose meaning differs between the items.
func itemsInCommand(d *decoder, b *base, plans []plan) {
	if b.spec.Policy.Batch == 0 {
		return
	}
	names, _ := b.variables()
	names = slices.Clone(names)
	for i := range plans {
		if plans[i].isOwn(b) {
			names = append(names, plans[i].input.Name)
		}
	}
	for i := range b.spec.Outputs {
		names = append(names, b.spec.Outputs[i].Name)
	}
	for _, arg := range b.spec.Command.Argv {
		for {
			_, name, after, ok := cutBraces(arg)
			if !ok {
				break
			}
			if slices.Contains(names, name) {
				d.report.add(b.spec.RunPos, "read it from the file that E3_BATCH names, or remove batch",
					"task %s: {%s} belongs to one item, and the command of a batch serves several", b.spec.Base, name)
				return
			}
			arg = after
		}
	}
}
