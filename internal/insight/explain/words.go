package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"e3/internal/format/record"
	"e3/internal/human"
)

// cause converts a difference to a cause with a text of one line.
func (d *Difference) cause(ws, task string) Cause {
	c := Cause{Kind: d.Part, Workspace: ws, Task: task, Subject: d.Name, Text: d.Text(task)}
	if d.Input != "" {
		c.Subject = d.Input
	}
	if d.Part == Input || d.Part == Made {
		if d.Change != nil && len(d.Change.Files) > 0 {
			c.Path = d.Change.Files[0].Path
		}
	}
	if d.Part == ItemAdded || d.Part == ItemRemoved {
		for _, it := range d.Items {
			if it.How != "changed" {
				c.Path = it.Label
				break
			}
		}
	}
	return c
}

// Text describes a difference of a task in one line.
func (d *Difference) Text(task string) string {
	name := truncate(d.Name, maxText)
	switch d.Part {
	case Command:
		if d.Was != d.Is {
			return fmt.Sprintf("the command changed from a %s to a %s", d.Was, d.Is)
		}
		return "the command changed"
	case Environment:
		if d.Was == ofTools || d.Is == ofTools {
			return toolText(d.Name, d.Is != "")
		}
		what := "environment variable"
		if isConstant(task, d.Name, d.Is) || isConstant(task, d.Name, d.Was) {
			what = "matrix constant"
		}
		return what + " " + name + " " + became(d.Was, d.Is, " from ")
	case Version:
		return "the version " + became(quotedIf(d.Was), quotedIf(d.Is), " from ")
	case Batch:
		return fmt.Sprintf("the task has %s now, not %s", d.Is, d.Was)
	case Room:
		return fmt.Sprintf("the room is %s now, not %s", d.Is, d.Was)
	case Image:
		switch {
		case d.Was == "":
			return "it runs in image " + d.Is + " now"
		case d.Is == "":
			return "it runs in no image now, but with the machine's programs"
		}
		return fmt.Sprintf("it runs in another image, %s instead of %s", d.Is, d.Was)
	case Programs:
		return d.programsText()
	case InputAdded:
		return "input " + name + " was added"
	case InputRemoved:
		return "input " + name + " was removed"
	case InputRenamed:
		return fmt.Sprintf("input %s is named %s now", truncate(d.Was, maxText), truncate(d.Is, maxText))
	case InputPath:
		return fmt.Sprintf("input %s is staged at %s now, not at %s", name, truncate(d.Is, maxText), truncate(d.Was, maxText))
	case InputKind:
		return fmt.Sprintf("input %s is staged as %s now, not as %s", name, article(d.Is), article(d.Was))
	case InputSource:
		return fmt.Sprintf("input %s comes from %s now, not from %s", name, truncate(d.Is, maxText), truncate(d.Was, maxText))
	case ItemAdded, ItemRemoved:
		return "input " + name + ": " + d.itemsText()
	case Output:
		if d.Name == "" || d.Name == "out" && d.Was != "" && d.Is != "" {
			return "the output " + became(d.Was, d.Is, " from ")
		}
		return "output " + name + " " + became(truncate(d.Was, maxText), truncate(d.Is, maxText), " from ")
	case Definition:
		if d.Name == "order" {
			return "the order of what the task declares changed"
		}
		return "the task changed; its earlier definition is no longer stored"
	case Input, Made:
		if d.kind == record.KindVariable {
			return "environment variable " + name + " " + became(d.Was, d.Is, " from ")
		}
		if program, ok := record.ToolOf(d.Name); ok && d.kind == record.KindTool {
			return programText(program, d.Is)
		}
		what := name
		if d.Input != "" {
			what = truncate(d.Input, maxText)
		}
		return record.InputLabel(what) + d.Change.text()
	}
	return "its inputs differed; the earlier ones are no longer on record"
}

// programsText says how the environment of the task's programs differs.
func (d *Difference) programsText() string {
	switch {
	case d.Name == "name" && d.Was == "":
		return "it uses the environment " + truncate(d.Is, maxText) + " now"
	case d.Name == "name" && d.Is == "":
		return "it uses no environment now"
	case d.Name == "name":
		return fmt.Sprintf("it uses the environment %s now, not %s", truncate(d.Is, maxText), truncate(d.Was, maxText))
	case d.Name == "run":
		return "the command that makes its environment changed"
	}
	return "its environment: " + truncate(d.Name, maxText) + " " + became(truncate(d.Was, maxText), truncate(d.Is, maxText), " from ")
}

// ofTools names a program that a task has in its key.
const ofTools = "a program of tools"

// toolText says that a task now has a program in its key, or no longer has it.
func toolText(program string, has bool) string {
	name := truncate(program, maxText)
	switch {
	case record.ToolFile(program) && has:
		return "what interprets or loads " + name + " is in the key now"
	case record.ToolFile(program):
		return "what interprets or loads " + name + " is in the key no more"
	case has:
		return "program " + name + " was added to tools"
	}
	return "program " + name + " was removed from tools"
}

// programText says how a program differs. changed lists the differing files (record.ToolChanges), separated by
// commas.
func programText(program, changed string) string {
	name := truncate(program, maxText)
	text := name + " is another program"
	parts := strings.Split(changed, ", ")
	if record.ToolFile(program) { // the program's own file is another input
		text = "what loads " + name + " is different"
		var by []string
		for len(parts) > 0 && strings.HasPrefix(parts[0], record.ToolInterpreter+" ") {
			by = append(by, strings.TrimPrefix(parts[0], record.ToolInterpreter+" "))
			parts = parts[1:]
		}
		switch len(by) {
		case 0:
		case 1:
			text = truncate(by[0], maxText) + ", the interpreter of " + name + ", is another program"
		default:
			text = truncate(strings.Join(by, ", "), maxText) + ", interpreters of " + name + ", are other programs"
		}
	}
	if rest := strings.Join(parts, ", "); rest != "" && rest != record.ToolProgram+" "+program {
		text += ": " + truncate(rest, maxText) + " changed"
	}
	return text
}

func became(was, is, from string) string {
	switch {
	case was == "":
		return "was added: " + is
	case is == "":
		return "was removed; it was " + was
	}
	return "changed" + from + was + " to " + is
}

func quotedIf(s string) string {
	if s == "" {
		return ""
	}
	return strconv.Quote(truncate(s, maxText))
}

func article(kind string) string {
	if strings.HasPrefix(kind, "e") {
		return "an " + kind
	}
	return "a " + kind
}

// isConstant guesses whether a variable is a constant of the matrix item that a task is named after.
func isConstant(task, name, quoted string) bool {
	_, label, ok := strings.Cut(task, "[")
	if !ok {
		return false
	}
	label = strings.TrimSuffix(label, "]")
	value, err := strconv.Unquote(quoted)
	return err == nil && (label == value || slices.Contains(strings.Split(label, ","), name+"="+value))
}

func (d *Difference) itemsText() string {
	var first []string
	added, removed := 0, 0
	for _, it := range d.Items {
		if it.How == "changed" {
			continue
		}
		if it.How == "added" {
			added++
		} else {
			removed++
		}
		if len(first) < 2 {
			first = append(first, "item "+truncate(it.Label, 60)+" was "+it.How)
		}
	}
	text := strings.Join(first, ", ")
	if more := added + removed - len(first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// text describes the change, to follow the name of the input.
func (c *ContentChange) text() string {
	switch {
	case c == nil:
		return " changed"
	case len(c.Files) > 0:
		f := &c.Files[0]
		text := ": " + truncate(f.Path, maxText) + " "
		switch {
		case f.How == "changed" && f.WasSize != f.IsSize:
			text += fmt.Sprintf("changed (%s → %s)", human.Bytes(f.WasSize), human.Bytes(f.IsSize))
		case f.How == "changed":
			text += "changed"
		case f.How == "added", f.How == "removed":
			text += "was " + f.How
		default:
			text += "is " + f.How
		}
		if c.Count > 1 {
			text += ", and " + human.Count(c.Count-1, "more change")
			if c.Count >= maxCounted {
				text += " or more"
			}
		}
		return text
	case len(c.Values) > 0:
		v := &c.Values[0]
		text := " changed: "
		if v.Path != "" {
			text = ": " + truncate(v.Path, 80) + " "
			switch {
			case v.Was == "":
				text += "was added: " + v.Is
			case v.Is == "":
				text += "was removed; it was " + v.Was
			default:
				text += v.Was + " → " + v.Is
			}
		} else {
			text += v.Was + " → " + v.Is
		}
		if c.Count > 1 {
			text += ", and " + human.Count(c.Count-1, "more change")
		}
		return text
	case c.WasSize != nil && c.IsSize != nil && *c.WasSize != *c.IsSize:
		return fmt.Sprintf(" changed (%s → %s)", human.Bytes(*c.WasSize), human.Bytes(*c.IsSize))
	}
	return " changed"
}
