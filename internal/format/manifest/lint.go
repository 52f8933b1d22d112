package manifest

import (
	"errors"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"e3/internal/format/notation"
	"e3/internal/format/pattern"
	"e3/internal/format/record"
)

// A Warning reports a part of a correct file that is probably a mistake.
type Warning Error

func (w Warning) String() string { return (*Error)(&w).Error() }

// Lint finds inputs that no task reads, braces in arguments that look like a misspelt name, and shell scripts that
// expand a name of the task outside of quotes.
func Lint(d *Definition) []Warning {
	l := linter{def: d, shell: syntax.NewParser()}
	l.unusedInputs()
	if len(d.Tasks) == 0 && len(d.Families) == 0 {
		l.warn(Pos{1, 1}, "there are no tasks, so nothing runs: write them below tasks:")
	}
	var last *Spec
	for i := range d.Tasks {
		if t := &d.Tasks[i]; t.Spec != last {
			last = t.Spec
			l.task(t)
		}
	}
	l.warnings = append(l.warnings, d.doubts...)
	slices.SortStableFunc(l.warnings, func(a, b Warning) int { return (*Error)(&a).compare((*Error)(&b)) })
	return l.warnings
}

type linter struct {
	def      *Definition
	shell    *syntax.Parser
	warnings []Warning
}

func (l *linter) warn(pos Pos, format string, args ...any) {
	l.warnings = append(l.warnings, Warning(faultAt(l.def.File, pos, "", format, args...)))
}

func (l *linter) unusedInputs() {
	if l.def.Pending() {
		return // tasks that are not known yet may read the inputs
	}
	used := make([]bool, len(l.def.Inputs))
	for i := range l.def.Families {
		for _, s := range l.def.Families[i].Sources {
			for k := range l.def.Inputs {
				used[k] = used[k] || l.def.Inputs[k].Name == s.Input
			}
		}
	}
	for _, items := range l.def.FanIns {
		for _, it := range items {
			if it.Task < 0 {
				used[it.Input] = true
			}
		}
	}
	for i := range l.def.Tasks {
		for _, in := range l.def.Tasks[i].Inputs {
			if in.Source.Kind == FromInput {
				used[in.Source.Index] = true
			}
		}
	}
	for i, u := range used {
		if in := &l.def.Inputs[i]; in.Kind == ParamsInput && l.def.readsParamOf(in.Name) {
			continue
		}
		if !u {
			l.warn(l.def.Inputs[i].Pos, "no task reads the %s", record.InputLabel(l.def.Inputs[i].Name))
		}
	}
}

// placeholders warns of words in braces that a script has where Snakemake or a list would put a value.
func (l *linter) placeholders(t *Task, names []string) {
	told := map[string]bool{}
	for _, b := range braces(l.shell, t.Command.Shell) {
		write := ""
		switch {
		case slices.Contains(names, b.member):
			write = `"$` + b.member + `"`
		case slices.Contains(names, b.name):
			write = `"$` + b.name + `"`
		case slices.Contains([]string{"input", "output", "wildcards", "params", "threads", "log"}, b.name):
			write = "one of its variables, $" + strings.Join(names, ", $")
		}
		if write != "" && !told[b.name+b.member] {
			told[b.name+b.member] = true
			l.warn(t.RunPos, "task %s: line %d of the script has {%s}, which bash takes as it is; write %s",
				t.Base, b.line, strings.TrimSuffix(b.name+"."+b.member, "."), write)
		}
	}
}

// expressions warns of ${{ … }}, which GitHub's workflows replace. Bash takes it for a bad substitution, unless it is in
// single quotes.
func (l *linter) expressions(t *Task) {
	for _, text := range append([]string{t.Command.Shell}, t.Command.Argv...) {
		at := strings.Index(text, "${{")
		if at < 0 {
			continue
		}
		end := strings.Index(text[at:], "}}")
		if _, err := l.shell.Parse(strings.NewReader(t.Command.Shell), ""); end < 0 || t.Command.Shell != "" && err == nil {
			continue
		}
		name, write := strings.TrimSpace(text[at+3:at+end]), "{name}"
		name = name[strings.LastIndexByte(name, '.')+1:]
		if t.Command.Shell != "" {
			write = `"$name"`
		}
		l.warn(t.RunPos, "task %s: run has %s, which nothing here replaces; write %s", t.Base, truncate(text[at:at+end+2]), strings.Replace(write, "name", name, 1))
		return
	}
}

// words are the inputs of a task whose values are texts of several words, such as options of a program: a script may
// split them.
func (l *linter) words(t *Task) map[string]bool {
	words := map[string]bool{}
	for _, in := range t.Inputs {
		if in.Source.Kind == FromInput && in.Kind == Scalar {
			text, _ := l.def.Inputs[in.Source.Index].Value.(string)
			words[in.Name] = strings.ContainsAny(text, " \t\n")
		}
	}
	return words
}

func (l *linter) task(t *Task) {
	names := make([]string, 0, len(t.Inputs)+len(t.Outputs)+len(t.Items))
	for i := range t.Inputs {
		names = append(names, t.Inputs[i].Name)
	}
	words := l.words(t)
	for i := range t.Outputs {
		names = append(names, t.Outputs[i].Name)
	}
	for i := range t.Items {
		names = append(names, t.Items[i].Name)
	}
	l.literal(t)
	l.expressions(t)
	if t.Command.Shell != "" {
		l.placeholders(t, names)
		l.misspelt(t, names)
		l.quotes(t)
		declared := make(map[string]bool, len(names))
		for _, name := range names {
			declared[name] = true
		}
		for _, use := range unquoted(l.shell, t.Command.Shell) {
			if declared[use.name] && !words[use.name] {
				delete(declared, use.name) // warn once for each task and name
				l.warn(t.RunPos, `task %s: line %d of the script uses $%s outside of double quotes; write "$%s"`, t.Base, use.line, use.name, use.name)
			}
		}
		return
	}
	l.variables(t, names)
	for _, arg := range t.Command.Argv {
		for {
			_, name, after, ok := cutBraces(arg)
			if !ok {
				break
			}
			if !slices.Contains(names, name) {
				if like := notation.Nearest(name, slices.Values(names)); like != "" {
					l.warn(t.RunPos, "task %s: {%s} is passed on as it is; did you mean {%s}?", t.Base, name, like)
				}
			}
			arg = after
		}
	}
}

// variables warns of names of the task as a shell would expand them, in a list of arguments, which no shell reads. A
// program that is given code with -c may read them.
func (l *linter) variables(t *Task, names []string) {
	if argv := t.Command.Argv; len(argv) == 1 && strings.ContainsAny(argv[0], " \t\n") {
		l.warn(t.RunPos, "task %s: run is a list of one argument with spaces, which is the name of a program then; write each argument by itself, or run: as one text", t.Base)
	}
	if slices.Contains(t.Command.Argv, "-c") || slices.Contains(t.Command.Argv, "-e") {
		return
	}
	for _, arg := range t.Command.Argv {
		for _, m := range expanded().FindAllStringSubmatch(arg, -1) {
			if name := m[1] + m[2]; slices.Contains(names, name) {
				l.warn(t.RunPos, "task %s: run is a list, which no shell reads, so %s stays as it is; write {%s}, or run: as one text", t.Base, m[0], name)
				return
			}
		}
	}
}

// misspelt warns of variables that a script expands and nothing gives it, if one of the task's is called nearly so: the
// script would end there, since it runs with -u.
func (l *linter) misspelt(t *Task, names []string) {
	names = slices.Clone(names)
	if t.Env != nil {
		for _, v := range t.Env.Set {
			names = append(names, v.Name)
		}
		names = slices.Concat(names, t.Env.Pass, t.Env.Secrets, t.Env.Keyed)
	}
	told := map[string]bool{}
	for _, u := range foreign(l.shell, t.Command.Shell, names) {
		if BashSets(u.name) || slices.Contains(ownEnv, u.name) || strings.HasPrefix(u.name, "E3_") || told[u.name] {
			continue
		}
		if like := notation.Nearest(u.name, slices.Values(names)); like != "" {
			told[u.name] = true
			l.warn(t.RunPos, "task %s: line %d of the script uses $%s, which is no variable of the task; did you mean $%s?", t.Base, u.line, u.name, like)
		}
	}
}

// literal warns of values of env that a shell would expand.
func (l *linter) literal(t *Task) {
	if t.Env == nil {
		return
	}
	for i := range t.Env.Set {
		if v := &t.Env.Set[i]; expands(v.Value) || expands(v.Value+"/") {
			l.warn(t.Pos, "task %s: env: %s is the text %s as it is; a variable of this machine is passed with pass_env: [NAME]", t.Base, v.Name, truncate(v.Value))
		}
	}
}

// quotes warns of a script that ends within a quote or a block, or whose quotes are none.
func (l *linter) quotes(t *Task) {
	script := t.Command.Shell
	if len(script) > maxScript || plainlyQuoted(script) && !strings.ContainsAny(script, typographic) {
		return
	}
	file, err := l.shell.Parse(strings.NewReader(script), "")
	var fault syntax.ParseError
	if errors.As(err, &fault) && unclosed(&fault) {
		l.warn(t.RunPos, "task %s: line %d of the script is no complete command: %s", t.Base, fault.Pos.Line(), fault.Text)
	}
	if err != nil || !strings.ContainsAny(script, typographic) {
		return
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		call, ok := node.(*syntax.CallExpr)
		if !ok || file == nil {
			return true
		}
		for _, word := range call.Args {
			if lit, ok := word.Parts[0].(*syntax.Lit); ok && strings.ContainsAny(lit.Value, typographic) {
				l.warn(t.RunPos, "task %s: line %d of the script has typographic quotes, which bash takes as letters; write \" or '", t.Base, lit.Pos().Line())
				file = nil
				return false
			}
		}
		return true
	})
}

// unclosed reports whether a script lacks the end of a quote, a command or a block. Other faults may be our parser's.
func unclosed(e *syntax.ParseError) bool {
	return e.Incomplete || strings.HasPrefix(e.Text, "reached ")
}

// typographic are the quotes of word processors.
const typographic = "“”„‘’"

// expanded finds variables as a shell expands them.
var expanded = pattern.Of(`\$(?:([a-z_][A-Za-z0-9_]*)|\{([a-z_][A-Za-z0-9_]*)\})`)
