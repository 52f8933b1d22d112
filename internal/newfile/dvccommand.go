package newfile

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"e3/internal/format/manifest"
	"e3/internal/format/pattern"
)

// command makes the script of a task from the commands of a stage.
func (s *stage) command(cmd *yaml.Node) {
	var script []string
	several := cmd.Kind == yaml.SequenceNode
	for _, line := range lines(cmd) {
		text := s.script(cmd, line)
		if flags := asSh(line); flags != "" {
			text = "set" + flags + "   # as sh has it\n" + text
			if several {
				text = "(\n" + text + "\n)"
			}
		}
		script = append(script, text)
	}
	run := strings.Join(script, "\n")
	if len(s.outs) == 0 || len(s.task.Out) == 1 && !slices.ContainsFunc(s.outs, func(o stageOut) bool { return o.path == s.task.Out[0].Path }) {
		run = "{\n" + run + "\n} > \"$out\""
		if s.wdir != "." {
			run = strings.Replace(run, "\"$out\"", "\"$OLDPWD/$out\"", 1)
		}
	}
	if s.wdir != "." {
		run = "mkdir -p " + quoteShell(s.wdir) + " && cd " + quoteShell(s.wdir) + "\n" + run
	}
	s.task.Run = run
}

var (
	piped     = pattern.Of(`[^|]\|[^|]`)
	separated = pattern.Of(`[;\n]\s*\S`)
	named     = pattern.Of(`\$[A-Za-z0-9_@*#]|\\\$\{`)
)

// asSh are the options with which bash runs a command as sh does, to which DVC gives it: there the last status counts,
// and a variable may be unset.
func asSh(cmd string) (flags string) {
	if separated().MatchString(strings.TrimSpace(cmd)) {
		flags += " +e"
	}
	if named().MatchString(cmd) {
		flags += " +u"
	}
	if piped().MatchString(cmd) {
		flags += " +o pipefail"
	}
	return flags
}

// script is one command, in which live values and items are variables of the task.
func (s *stage) script(n *yaml.Node, text string) string {
	list, err := s.pieces(text)
	if err != nil {
		s.note(n, true, "%v; write the value by hand", err)
		return text
	}
	var b strings.Builder
	quote := byte(0)
	for i, p := range list {
		if p.literal {
			quote = quoteAfter(quote, p.text)
			b.WriteString(p.text)
			continue
		}
		if o, mapping := p.value.(manifest.Object); mapping && p.source != "" && quote == 0 {
			s.note(n, false, "${%s} stands in the command with the names that it has now: after an edit of its names, edit the command as well", p.path)
			b.WriteString(s.liveFlags(n, p, "", o))
			continue
		}
		name := p.variable
		if p.source != "" {
			name = s.parameter(n, p)
		}
		if name == "" {
			b.WriteString(p.text)
			continue
		}
		b.WriteString(reference(name, quote, simple(p), i+1 < len(list) && startsName(list[i+1].text)))
	}
	return b.String()
}

// liveFlags are the arguments that DVC makes of a mapping, with the values of a file of parameters as variables.
func (s *stage) liveFlags(n *yaml.Node, p piece, at string, o manifest.Object) string {
	var b []string
	for _, m := range o {
		flag := "--" + at + m.Name
		one := piece{text: words(m.Value), value: m.Value, source: p.source, path: p.path + "." + m.Name}
		switch v := m.Value.(type) {
		case manifest.Object:
			b = append(b, s.liveFlags(n, one, at+m.Name+".", v))
		case bool:
			b = append(b, `$([ "$`+s.parameter(n, one)+`" = true ] && echo `+flag+`)`)
		case []any:
			s.note(n, true, "${%s} is a list, which stands in the command as it is now: after an edit of it, edit the command as well", one.path)
			b = append(b, flags("", manifest.Object{{Name: at + m.Name, Value: v}}))
		default:
			b = append(b, flag+` "$`+s.parameter(n, one)+`"`)
		}
	}
	return strings.Join(slices.DeleteFunc(b, func(s string) bool { return s == "" }), " ")
}

// simple reports whether a value is one word of a command.
func simple(p piece) bool {
	return p.variable != "" || !strings.ContainsAny(p.text, " \t\n*?[]'\"")
}

// reference is a variable in a script, where quote is the quotation mark that is open.
func reference(name string, quote byte, word, joined bool) string {
	v := "$" + name
	if joined {
		v = "${" + name + "}"
	}
	switch {
	case quote == '\'':
		return `'"` + v + `"'`
	case quote == 0 && word:
		return `"` + v + `"`
	}
	return v
}

func startsName(s string) bool {
	return s != "" && regexpWord().MatchString(s[:1])
}

var regexpWord = pattern.Of(`[A-Za-z0-9_]`)

// quoteAfter is the quotation mark that is open behind a text.
func quoteAfter(quote byte, s string) byte {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && quote != '\'':
			i++
		case quote == c:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		}
	}
	return quote
}

// parameter is the variable of a live value; "" if its present text has to stand in the command.
func (s *stage) parameter(n *yaml.Node, p piece) string {
	if isCollection(p.value) {
		s.note(n, true, "${%s} is a mapping or list of %s, which stands in the command as it is now: after an edit of it, edit the command as well", p.path, p.source)
		return ""
	}
	source := s.input("params", p.source, "") + "." + p.path
	for _, r := range s.task.In {
		if r.Input == source {
			return r.As
		}
	}
	if text, _ := manifest.ScalarText(p.value); text != p.text {
		s.note(n, false, "${%s} reaches the command as %s, where DVC writes %s", p.path, text, p.text)
	}
	name := identifier(strings.ReplaceAll(p.path[strings.LastIndexByte(p.path, '.')+1:], "-", "_"))
	base := name
	for i := 2; s.taken(name); i++ {
		if name = base + "_" + string(rune('0'+i%10)); i == 2 && strings.Contains(p.path, ".") {
			name = identifier(strings.NewReplacer(".", "_", "-", "_").Replace(p.path))
		}
	}
	s.task.In = append(s.task.In, Ref{Input: source, As: name})
	return name
}

// taken reports whether a name is a variable of the task already, or of its command.
func (s *stage) taken(name string) bool {
	return manifest.BashSets(name) || s.family != nil && (slices.Contains(s.family.dims, name) || s.family.used[name]) ||
		slices.ContainsFunc(s.task.In, func(r Ref) bool { return r.As == name }) ||
		slices.ContainsFunc(s.task.Out, func(o Out) bool { return o.Name == name }) ||
		regexp.MustCompile(`\$\{?`+name+`\b|(?m)(^|[\s;&|(])`+name+`=`).MatchString(expression().ReplaceAllString(strings.Join(lines(field(s.body, "cmd")), "\n"), ""))
}

// undeclared adds the files that a command names, and those that its programs import, as far as dvc.yaml does not name
// them: DVC lets a program read all that is there.
func (s *stage) undeclared(cmd *yaml.Node) {
	look := &programs{fsys: s.fsys, wdir: s.wdir}
	for _, line := range lines(cmd) {
		if list, err := s.pieces(line); err == nil {
			line = ""
			for _, p := range list {
				if line += p.text; p.variable != "" && len(s.family.items) > 0 {
					line += s.family.items[0].values[p.variable]
				}
			}
		}
		look.command(line)
	}
	for _, d := range slices.Clone(s.deps) {
		look.file(d.path)
	}
	slices.Sort(look.found)
	for _, p := range slices.Compact(look.found) {
		if s.covered(p) {
			continue
		}
		if whole := s.values(p); whole != nil && s.reader(path.Base(p)) {
			var names []string
			for _, m := range whole {
				if manifest.ValidOnly(m.Name) && s.programUses(path.Base(p), m.Name) {
					names = append(names, m.Name)
				}
			}
			if names != nil {
				s.task.In = append(s.task.In, Ref{Input: s.input("params", p, ""), As: identifier(path.Base(p)), Only: strings.Join(manifest.Outermost(names), ", ")})
				continue
			}
		}
		s.deps = append(s.deps, stageDep{p, cmd})
	}
	for _, what := range look.foreign {
		s.note(cmd, false, "%s asks DVC while it runs (%s), and DVC finds no project in the folder of a task: pass the values by files or arguments", what, "dvc.api")
	}
}

// covered reports whether a path is among the inputs or outputs of a stage, or in one of them, or around an output.
func (s *stage) covered(p string) bool {
	for _, d := range s.deps {
		if p == d.path || strings.HasPrefix(p, d.path+"/") {
			return true
		}
	}
	if s.looked[p] {
		return true
	}
	for q, m := range s.made {
		q = m.stage.present(q)
		if m.stage == s && (p == q || strings.HasPrefix(p, q+"/")) || strings.HasPrefix(q, p+"/") {
			return true
		}
		if m.stage != s && (p == q || strings.HasPrefix(p, q+"/")) {
			return s.feeds(m.stage, 0) // to read it would be a circle
		}
	}
	return p == s.file || strings.HasSuffix(p, ".dvc") || path.Base(p) == "dvc.lock"
}

// feeds reports whether another stage reads an output of this one, directly or through others.
func (s *stage) feeds(other *stage, depth int) bool {
	if other == s || depth > 50 {
		return true
	}
	for _, d := range other.deps {
		for q, m := range s.made {
			q = m.stage.present(q)
			if m.stage != other && (d.path == q || strings.HasPrefix(d.path, q+"/") || strings.HasPrefix(q, d.path+"/")) && s.feeds(m.stage, depth+1) {
				return true
			}
		}
	}
	return false
}

// texts are the programs among the inputs of a stage.
func (s *stage) texts() (list []string) {
	look := &programs{fsys: s.fsys, wdir: s.wdir}
	for _, line := range lines(field(s.body, "cmd")) {
		look.command(line)
	}
	for _, d := range s.deps {
		look.file(d.path)
	}
	return look.texts
}

// reader reports whether a program of a stage names a file.
func (s *stage) reader(file string) bool {
	return slices.ContainsFunc(s.texts(), func(t string) bool { return strings.Contains(t, file) })
}

// programUses reports whether a program of a stage that names a file of parameters seems to use a value of it.
func (s *stage) programUses(file, name string) bool {
	q := regexp.QuoteMeta(name)
	use := regexp.MustCompile(`\[\s*["']` + q + `["']\s*\]|\.get\(\s*["']` + q + `["']|\b(params|config|cfg|conf)\.` + q + `\b`)
	return slices.ContainsFunc(s.texts(), func(t string) bool { return strings.Contains(t, file) && use.MatchString(t) })
}

// programs looks, without running anything, for the files of a project that commands and programs name.
type programs struct {
	fsys    fs.FS
	wdir    string
	found   []string
	texts   []string
	foreign []string // programs that ask DVC
	seen    map[string]bool
	roots   []string // of PYTHONPATH
	modules []string // files of the modules that the programs import
}

var word = pattern.Of(`[^\s"'=;|&<>(),]+`)

var pythonPath = pattern.Of(`\bPYTHONPATH=["']?([^\s"';&|]+)["']?`)

// command looks at the words of a command.
func (l *programs) command(text string) {
	for _, m := range pythonPath().FindAllStringSubmatch(text, -1) {
		for root := range strings.SplitSeq(m[1], ":") {
			if root = path.Join(l.wdir, root); fs.ValidPath(root) {
				l.roots = append(l.roots, root)
			}
		}
	}
	text = pythonPath().ReplaceAllString(text, "")
	words := word().FindAllString(text, -1)
	for i, w := range words {
		if w == "-m" && i+1 < len(words) {
			l.module(words[i+1], l.wdir, true)
			continue
		}
		if i > 0 && (words[i-1] == "-o" || words[i-1] == "--out" || words[i-1] == "--output") {
			continue
		}
		p := path.Join(l.wdir, w)
		if !fs.ValidPath(p) || p == "." {
			continue
		}
		if info, err := fs.Stat(l.fsys, p); err == nil && info.Mode().IsRegular() {
			l.found = append(l.found, p)
			l.file(p)
		} else if err == nil && info.IsDir() && (strings.Contains(w, "/") || i > 0 && words[i-1] == "cd") {
			l.found = append(l.found, p)
		}
	}
}

var (
	pyImport = pattern.Of(`(?m)^\s*import\s+([\w., ]+)`)
	pyFrom   = pattern.Of(`(?m)^\s*from\s+([.\w]+)\s+import\s+(\([^)]*\)|[^\n#]+)`)
	quoted   = pattern.Of(`["']([\w][\w./-]*\.\w{1,8})["']`)
	sourced  = pattern.Of(`(?m)(?:^\s*|[;&]\s*)(?:\.|source)\s+["']?([^\s"';]+)|source\(\s*["']([^"']+)["']`)
	asksDVC  = pattern.Of(`\bdvc\.api\b|from dvc\b|\bdvc (params|get|exp|metrics)\b`)
)

// file looks at a program: the modules that it imports, and the files that it names.
func (l *programs) file(p string) {
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	ext := strings.ToLower(path.Ext(p))
	if _, program := interpreters[ext]; !program || l.seen[p] {
		return
	}
	l.seen[p] = true
	info, err := fs.Stat(l.fsys, p)
	if err != nil || info.Size() > mostScript || !info.Mode().IsRegular() {
		return
	}
	data, err := fs.ReadFile(l.fsys, p)
	if err != nil {
		return
	}
	text := string(data)
	l.texts = append(l.texts, text)
	if asksDVC().MatchString(text) {
		l.foreign = append(l.foreign, p)
	}
	if ext == ".py" {
		for _, m := range pyImport().FindAllStringSubmatch(text, -1) {
			for name := range strings.SplitSeq(m[1], ",") {
				name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
				l.module(name, path.Dir(p), false)
			}
		}
		for _, m := range pyFrom().FindAllStringSubmatch(text, -1) {
			l.from(m[1], strings.Trim(m[2], "()"), path.Dir(p))
		}
	}
	for _, m := range sourced().FindAllStringSubmatch(text, -1) {
		for _, dir := range []string{l.wdir, path.Dir(p)} {
			l.add(path.Join(dir, m[1]+m[2]))
		}
	}
	for _, m := range quoted().FindAllStringSubmatch(text, -1) {
		l.add(path.Join(l.wdir, m[1]))
	}
}

// add adds a file of the project, and what it names.
func (l *programs) add(p string) bool {
	if !fs.ValidPath(p) {
		return false
	}
	info, err := fs.Stat(l.fsys, p)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	l.found = append(l.found, p)
	l.file(p)
	return true
}

// module adds the files of a module of Python that lies in the project, with the packages around it. run says that it
// is run as a program.
func (l *programs) module(name, dir string, run bool) bool {
	parts := strings.Split(name, ".")
	for _, root := range slices.Compact(append([]string{dir, l.wdir}, append(l.roots, ".", "src")...)) {
		at := path.Join(append([]string{root}, parts...)...)
		here := false
		for _, file := range []string{".py", "/__init__.py", "/__main__.py"} {
			if (run || file != "/__main__.py") && l.add(at+file) {
				l.modules, here = append(l.modules, at+file), true
			}
		}
		if !here {
			continue
		}
		for i := 1; i < len(parts); i++ {
			l.add(path.Join(append([]string{root}, parts[:i]...)...) + "/__init__.py")
		}
		return true
	}
	return false
}

// from adds what "from name import names" imports.
func (l *programs) from(name, names, dir string) {
	bare := strings.TrimLeft(name, ".")
	for range max(len(name)-len(bare)-1, 0) {
		dir = path.Dir(dir)
	}
	if bare != "" {
		l.module(bare, dir, false)
		bare += "."
	}
	for each := range strings.SplitSeq(names, ",") {
		each, _, _ = strings.Cut(strings.TrimSpace(each), " ")
		if each != "" && each != "*" {
			l.module(bare+each, dir, false)
		}
	}
}
