package compare

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/parallel"
	"e3/objectstore"
)

// tasks compares the declarations and the outcomes of the tasks of both sides.
func (c *comparison) tasks() (Tasks, error) {
	d := Tasks{Changes: []TaskChange{}}
	changes := map[string]*TaskChange{}
	change := func(name string) *TaskChange {
		t, ok := changes[name]
		if !ok {
			t = &TaskChange{Name: name, Change: Changed}
			changes[name] = t
		}
		return t
	}
	common := 0
	switch same := c.was.PackageHash == c.is.PackageHash && (c.was.PackageHash != "" || c.was.RunID != "" && c.was.RunID == c.is.RunID); {
	case same && c.was.pkg != nil:
		common = len(c.was.pkg.Tasks)
	case same:
		common = len(c.was.tasks)
	case c.was.pkg == nil || c.is.pkg == nil:
		d.Unknown = join(c.was.pkgGone, c.is.pkgGone)
		for name := range c.was.tasks {
			if _, ok := c.is.tasks[name]; ok {
				common++
			}
		}
	default:
		n, err := c.declared(change)
		if err != nil {
			return d, err
		}
		common = n
	}
	for name, a := range c.was.tasks {
		b := c.is.tasks[name]
		if a.state != "" && b.state != "" && a.state != b.state {
			t := change(name)
			t.Was, t.Is = a.state, b.state
			t.Why = cmp.Or(c.is.why[name], c.was.why[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		if changes[name].Change == Changed {
			common--
		}
		d.Changes = append(d.Changes, *changes[name])
	}
	d.Same = max(0, common)
	return d, nil
}

// declared compares two packages and returns the number of tasks that are in both.
func (c *comparison) declared(change func(string) *TaskChange) (common int, err error) {
	was := make(map[string]*record.PackageTask, len(c.was.pkg.Tasks))
	for i := range c.was.pkg.Tasks {
		was[c.was.pkg.Tasks[i].Name] = &c.was.pkg.Tasks[i]
	}
	type pair struct{ was, is *record.PackageTask }
	var pairs []pair
	for i := range c.is.pkg.Tasks {
		is := &c.is.pkg.Tasks[i]
		old, ok := was[is.Name]
		if !ok {
			change(is.Name).Change = Added
			continue
		}
		common++
		delete(was, is.Name)
		if !sameTask(old, is) {
			pairs = append(pairs, pair{old, is})
		}
	}
	for name := range was {
		change(name).Change = Removed
	}
	parts := make([][]Part, len(pairs))
	err = parallel.Each(c.ctx, len(pairs), func(ctx context.Context, k int) (err error) {
		parts[k], err = c.parts(ctx, pairs[k].was, pairs[k].is)
		return err
	})
	for k := range pairs {
		if len(parts[k]) > 0 {
			change(pairs[k].is.Name).Parts = parts[k]
		}
	}
	return common, err
}

// sameTask is a quick check whether two tasks have the same declaration.
func sameTask(a, b *record.PackageTask) bool {
	return a.Task == b.Task && a.Output == b.Output && slices.EqualFunc(a.Wiring, b.Wiring, sameWire) &&
		slices.Equal(policyFacts(&a.Policy), policyFacts(&b.Policy))
}

func sameWire(a, b record.Wire) bool {
	return a.Kind == b.Kind && a.Name == b.Name && a.Entry == b.Entry && slices.Equal(a.Items, b.Items)
}

// A fact is one element of a declaration. Its text is complete; it is shortened only for display.
type fact struct{ part, name, text string }

// parts returns the parts of a declaration that differ.
func (c *comparison) parts(ctx context.Context, a, b *record.PackageTask) ([]Part, error) {
	was, lostA, err := c.facts(ctx, a)
	if err != nil {
		return nil, err
	}
	is, lostB, err := c.facts(ctx, b)
	if err != nil {
		return nil, err
	}
	if a.Task != b.Task && (lostA != "" || lostB != "") {
		parts := []Part{{Part: "declaration", Change: Changed, Was: lostA, Is: lostB}}
		return append(parts, differing(policyFacts(&a.Policy), policyFacts(&b.Policy))...), nil
	}
	parts := differing(was, is)
	if len(parts) == 0 && a.Task != b.Task {
		parts = append(parts, Part{Part: "declaration", Change: Changed, Was: "in one order", Is: "in another order"})
	}
	return parts, nil
}

// differing pairs facts by part and name, in the order of the first list; facts of the second list alone come last. If
// the arguments are swapped, facts of both lists keep their order.
func differing(was, is []fact) []Part {
	type key struct{ part, name string }
	now := make(map[key]string, len(is))
	for _, f := range is {
		now[key{f.part, f.name}] = f.text
	}
	then := make(map[key]bool, len(was))
	var parts []Part
	for _, f := range was {
		k := key{f.part, f.name}
		if then[k] {
			continue
		}
		then[k] = true
		switch text, ok := now[k]; {
		case !ok:
			parts = append(parts, Part{Part: f.part, Name: f.name, Change: Removed, Was: truncate(f.text)})
		case text != f.text:
			parts = append(parts, Part{Part: f.part, Name: f.name, Change: Changed, Was: truncate(f.text), Is: truncate(text)})
		}
	}
	for _, f := range is {
		if k := (key{f.part, f.name}); !then[k] {
			then[k] = true
			parts = append(parts, Part{Part: f.part, Name: f.name, Change: Added, Is: truncate(f.text)})
		}
	}
	slices.SortStableFunc(parts, func(a, b Part) int {
		if n := slices.Index(partOrder, a.Part) - slices.Index(partOrder, b.Part); n != 0 {
			return n
		}
		return strings.Compare(a.Name, b.Name)
	})
	return parts
}

var partOrder = []string{"declaration", "command", "env", "pass_env", "secrets", "inputs", "wiring", "output", "version", "room", "environment", "policy"}

// facts lists the elements of a declaration. lost says why its task object cannot be read.
func (c *comparison) facts(ctx context.Context, pt *record.PackageTask) (list []fact, lost string, err error) {
	h, err := objectstore.ParseHash(pt.Task)
	if err != nil {
		return nil, "", fmt.Errorf("task %s: %w", pt.Name, err)
	}
	t, err := executions.LoadTask(ctx, c.objects, h)
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return nil, "the task object is no longer here", nil
	case errors.Is(err, record.ErrType):
		return nil, "the task object is of the TypeScript e3", nil
	case err != nil:
		return nil, "", fmt.Errorf("task %s: %w", pt.Name, err)
	}
	list = append(list, fact{"command", "", commandText(t)})
	for _, e := range t.Env {
		list = append(list, fact{"env", e.Name, e.Value})
	}
	for i, in := range t.Inputs {
		list = append(list, fact{"inputs", in.Name, placed(in.Kind, in.Path)})
		if i < len(pt.Wiring) {
			list = append(list, fact{"wiring", in.Name, wireText(&pt.Wiring[i])})
		}
	}
	if t.Output.Multi {
		for _, e := range t.Output.Entries {
			list = append(list, fact{"output", e.Name, placed(e.Kind, e.Path)})
		}
	} else {
		e := &t.Output.Entries[0]
		list = append(list, fact{"output", "", placed(e.Kind, e.Path)})
	}
	if t.Version != "" {
		list = append(list, fact{"version", "", t.Version})
	}
	for _, name := range t.Passed.Env {
		list = append(list, fact{"pass_env", name, "passed"})
	}
	for _, name := range t.Passed.Secrets {
		list = append(list, fact{"secrets", name, "passed"})
	}
	if t.Room.Closed {
		list = append(list, fact{"room", "", t.Room.String()})
	}
	if t.Image != "" {
		list = append(list, fact{"image", "", "sha256:" + t.Image})
	}
	for _, f := range t.EnvironmentFacts() {
		list = append(list, fact{"environment", f.Name, f.Value})
	}
	return append(list, policyFacts(&pt.Policy)...), "", nil
}

// placed is the kind and the path of a staged input or a collected output; a scalar is not staged.
func placed(k record.Kind, path string) string {
	if path == "" {
		return k.String()
	}
	return k.String() + " at " + path
}

// commandText is a command for display: a script unchanged, a list as JSON.
func commandText(t *record.Task) string {
	if t.Argv == nil {
		return t.Shell
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(t.Argv); err != nil { // a list of strings always encodes
		return strings.Join(t.Argv, " ")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// wireText names the source of an input.
func wireText(w *record.Wire) string {
	output := func(task, entry string) string {
		if entry == "" {
			return task
		}
		return task + "." + entry
	}
	switch w.Kind {
	case record.WireInput:
		return output("input "+w.Name, w.Entry)
	case record.WireOutput:
		return output(w.Name, w.Entry)
	}
	items := make([]string, len(w.Items))
	for i, it := range w.Items {
		from := it.Task
		if it.Input != "" {
			from = "input " + it.Input
		}
		items[i] = it.Label + ": " + output(from, it.Entry)
	}
	return fmt.Sprintf("%d outputs: %s", len(items), strings.Join(items, ", "))
}

// policyFacts lists the fields of a policy that differ from the defaults. It names passed variables and secrets,
// which is safe because a policy holds no values.
func policyFacts(p *record.Policy) []fact { return fieldFacts(nil, reflect.ValueOf(p).Elem()) }

// fieldFacts lists the fields of a policy that are not zero. A list of pairs has a fact for each.
func fieldFacts(list []fact, v reflect.Value) []fact {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		name, format, ok := strings.Cut(field.Tag.Get("fact"), ":")
		if !ok {
			format = "%s"
		}
		if name == "" {
			name = underscored(field.Name)
		}
		switch {
		case value.Kind() == reflect.Struct:
			list = fieldFacts(list, value)
		case value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0:
		case value.Kind() == reflect.Slice && value.Type().Elem().Implements(reflect.TypeFor[fmt.Stringer]()):
			texts := make([]string, value.Len())
			for k := range texts {
				texts[k] = fmt.Sprint(value.Index(k))
			}
			list = append(list, fact{"policy", name, strings.Join(texts, "; ")})
		case value.Kind() == reflect.Slice && value.Type().Elem().Kind() == reflect.Struct:
			for k := range value.Len() {
				pair := value.Index(k)
				list = append(list, fact{"policy", fmt.Sprint(name, " ", pair.Field(0)), fmt.Sprint(pair.Field(1))})
			}
		case value.Kind() == reflect.Slice:
			list = append(list, fact{"policy", name, strings.Join(value.Interface().([]string), ", ")})
		default:
			list = append(list, fact{"policy", name, fmt.Sprintf(format, fmt.Sprint(value))})
		}
	}
	return list
}

// underscored turns the name of a field into its key in the package file: MayFail into may_fail.
func underscored(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) && unicode.IsLower(rune(name[i-1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
