package newfile_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v4"
)

// TestMain makes this test's binary the interpreters that the pipelines in testdata/dvc call: links of these names lead
// to it. Their programs look like Python and R; what a stub does with them stands at stub.
func TestMain(m *testing.M) {
	if slices.Contains(stubNames, filepath.Base(os.Args[0])) {
		if err := runStub(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

var stubNames = []string{"python", "python3", "Rscript"}

// A stub stands for a program of a pipeline. It writes down all that decides a result: the command line, the modules
// that were imported, the values of the parameters that are used, the files that are read. Each output holds that, so
// two runs have equal outputs if, and only if, their programs have seen the same.
//
// It understands these statements and passes over all others:
//
//	import a.b, from .a import b, source("a.R")   a module of the project; only known libraries may be missing
//	sys.path.append("src")                        modules are also there
//	p = yaml.safe_load(open("params.yaml"))["a"]  a file of parameters, or a part of it; also JSON and TOML
//	use(p["b"]["c"], argv[1], args.name)          values that count
//	read("path")                                  a file, or all files of a folder
//	write, write_json, write_csv("path", "x,y")   an output
//	write_dir("path", "a.txt", "b/c.txt")         a folder with files
//	print()                                       what was seen goes to the standard output
//	if word: statement                            for the programs whose first argument is the word
//
// An argument is "text", argv[1], args.name (the option --name) or p["b"]; those that follow fill in {} in the first.
type stub struct {
	argv   []string
	roots  []string // where modules are
	facts  []string
	loaded map[string]loadedParams
	seen   map[string]bool
	writes []func() error
}

type loadedParams struct {
	file  string
	at    []string
	value any
}

func runStub(args []string) error {
	s := &stub{loaded: map[string]loadedParams{}, seen: map[string]bool{}}
	if len(args) > 0 && args[0] == "-u" {
		args = args[1:]
	}
	if len(args) > 1 && args[0] == "-m" {
		s.argv, s.roots = args[1:], []string{"."}
		if err := s.module(args[1], "."); err != nil {
			return err
		}
	} else {
		if len(args) == 0 {
			return fmt.Errorf("stub: no program")
		}
		s.argv, s.roots = args, []string{path.Dir(args[0])}
		s.roots = append(s.roots, filepath.SplitList(os.Getenv("PYTHONPATH"))...)
		if err := s.program(args[0]); err != nil {
			return err
		}
	}
	line := make([]string, len(s.argv))
	for i, a := range s.argv {
		line[i] = a
		if f, err := strconv.ParseFloat(a, 64); err == nil {
			line[i] = strconv.FormatFloat(f, 'g', -1, 64) // 1e-05 is 0.00001
		}
	}
	s.facts = append(s.facts, fmt.Sprintf("arguments %q", line))
	for _, write := range s.writes {
		if err := write(); err != nil {
			return err
		}
	}
	return nil
}

var (
	stubIf     = regexp.MustCompile(`^if (\w+): (.*)$`)
	stubImport = regexp.MustCompile(`^import ([\w., ]+)$`)
	stubFrom   = regexp.MustCompile(`^from ([\w.]+) import (.+)$`)
	stubSource = regexp.MustCompile(`^source\("([^"]+)"\)`)
	stubPath   = regexp.MustCompile(`^sys\.path\.\w+\((?:0, )?"([^"]+)"\)`)
	stubLoad   = regexp.MustCompile(`^(\w+) (?:=|<-) [\w.()]+\(open\(([^()]*)\)\)(.*)$`)
	stubCall   = regexp.MustCompile(`^(read|write|write_json|write_csv|write_dir|print)\((.*)\)$`)
	stubArg    = regexp.MustCompile(`"[^"]*"|argv\[\d\]|args\.\w+|\w+(?:\[(?:"[^"]*"|[\w.]+(?:\[\d\])?)\])+`)
	stubValue  = regexp.MustCompile(`(\w+)((?:\[(?:"[^"]*"|args\.\w+|argv\[\d\])\])+)`)
	stubStep   = regexp.MustCompile(`\[("[^"]*"|args\.\w+|argv\[\d\])\]`)
)

// libraries need not be in the project.
var libraries = strings.Fields(`PIL argparse json logging numpy os pandas pathlib random re ruamel.yaml sklearn sys
	tomllib torch yaml`)

func (s *stub) program(file string) error {
	if file = path.Clean(file); s.seen[file] {
		return nil
	}
	s.seen[file] = true
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s.fact("program "+file, text)
	for line := range strings.Lines(string(text)) {
		if err := s.statement(strings.TrimSpace(line), path.Dir(file)); err != nil {
			return fmt.Errorf("%s: %s: %w", file, strings.TrimSpace(line), err)
		}
	}
	return nil
}

func (s *stub) statement(line, dir string) error {
	if m := stubIf.FindStringSubmatch(line); m != nil {
		if len(s.argv) < 2 || s.argv[1] != m[1] {
			return nil
		}
		line = m[2]
	}
	if m := stubImport.FindStringSubmatch(line); m != nil {
		for name := range strings.SplitSeq(m[1], ",") {
			if err := s.module(strings.TrimSpace(name), dir); err != nil {
				return err
			}
		}
		return nil
	}
	if m := stubFrom.FindStringSubmatch(line); m != nil {
		return s.module(m[1], dir, strings.Split(m[2], ",")...)
	}
	if m := stubSource.FindStringSubmatch(line); m != nil {
		return s.program(m[1])
	}
	if m := stubPath.FindStringSubmatch(line); m != nil {
		s.roots = append(s.roots, m[1])
		return nil
	}
	if m := stubLoad.FindStringSubmatch(line); m != nil {
		return s.load(m[1], m[2], m[3])
	}
	for _, m := range stubValue.FindAllStringSubmatch(line, -1) {
		if p, ok := s.loaded[m[1]]; ok {
			v, at, err := s.descend(p, m[2])
			if err != nil {
				return err
			}
			text, err := json.Marshal(v)
			if err != nil {
				return err
			}
			s.facts = append(s.facts, fmt.Sprintf("value of %s: %s = %s", p.file, strings.Join(at, "."), text))
		}
	}
	if m := stubCall.FindStringSubmatch(line); m != nil {
		return s.call(m[1], m[2])
	}
	return nil
}

// module runs a module, the packages around it and, of a package, the modules that are named.
func (s *stub) module(name, dir string, names ...string) error {
	roots := s.roots
	bare := strings.TrimLeft(name, ".")
	if up := len(name) - len(bare); up > 0 {
		for range up - 1 {
			dir = path.Dir(dir)
		}
		roots = []string{dir}
	}
	steps := strings.FieldsFunc(bare, func(r rune) bool { return r == '.' })
	for _, root := range roots {
		at := path.Join(append([]string{root}, steps...)...)
		file, err := os.Stat(at + ".py")
		isFile := err == nil && file.Mode().IsRegular()
		folder, err := os.Stat(at)
		if !isFile && (err != nil || !folder.IsDir()) {
			continue
		}
		for i := range len(steps) + 1 {
			around := path.Join(append([]string{root}, steps[:i]...)...) + "/__init__.py"
			if _, err := os.Stat(around); err == nil && (i > 0 || len(steps) == 0) {
				if err := s.program(around); err != nil {
					return err
				}
			}
		}
		if isFile {
			return s.program(at + ".py")
		}
		for _, n := range names {
			if n = path.Join(at, strings.TrimSpace(n)+".py"); exists(n) {
				if err := s.program(n); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if slices.Contains(libraries, bare) {
		return nil
	}
	return fmt.Errorf("ModuleNotFoundError: %s", name)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// load binds a name to a file of parameters.
func (s *stub) load(name, arg, steps string) error {
	args, err := s.args(arg)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	p := loadedParams{file: args[0]}
	if path.Ext(args[0]) == ".toml" {
		err = toml.Unmarshal(data, &p.value)
	} else {
		err = yaml.Unmarshal(data, &p.value)
	}
	if err != nil {
		return err
	}
	p.value, p.at, err = s.descend(p, steps)
	s.loaded[name] = p
	return err
}

func (s *stub) descend(p loadedParams, steps string) (any, []string, error) {
	v, at := p.value, slices.Clone(p.at)
	for _, m := range stubStep.FindAllStringSubmatch(steps, -1) {
		step, err := s.arg(m[1])
		if err != nil {
			return nil, nil, err
		}
		o, _ := v.(map[string]any)
		next, ok := o[step]
		if !ok {
			return nil, nil, fmt.Errorf("KeyError: %s of %s", strings.Join(append(at, step), "."), p.file)
		}
		v, at = next, append(at, step)
	}
	return v, at, nil
}

// args are the values of arguments; those that follow fill in {} in the first.
func (s *stub) args(text string) (list []string, err error) {
	for _, one := range stubArg.FindAllString(text, -1) {
		v, err := s.arg(one)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 && strings.Contains(list[0], "{}") {
			list[0] = strings.Replace(list[0], "{}", v, 1)
		} else {
			list = append(list, v)
		}
	}
	return list, nil
}

func (s *stub) arg(text string) (string, error) {
	switch {
	case strings.HasPrefix(text, `"`):
		return strings.Trim(text, `"`), nil
	case strings.HasPrefix(text, "argv["):
		i, err := strconv.Atoi(strings.Trim(text, "argv[]"))
		if err != nil || i >= len(s.argv) {
			return "", fmt.Errorf("IndexError: %s", text)
		}
		return s.argv[i], nil
	case strings.HasPrefix(text, "args."):
		name := strings.TrimPrefix(text, "args.")
		for i, a := range s.argv {
			a, value, joined := strings.Cut(a, "=")
			if a != "-"+name && strings.ReplaceAll(a, "-", "_") != "__"+name {
				continue
			}
			if !joined && i+1 < len(s.argv) {
				value = s.argv[i+1]
			}
			return value, nil
		}
		return "", fmt.Errorf("no option --%s", name)
	}
	m := stubValue.FindStringSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("no value: %s", text)
	}
	v, _, err := s.descend(s.loaded[m[1]], m[2])
	return fmt.Sprint(v), err
}

func (s *stub) call(verb, text string) error {
	args, err := s.args(text)
	if err != nil {
		return err
	}
	switch verb {
	case "read":
		return s.read(args[0])
	case "print":
		s.writes = append(s.writes, func() error {
			_, err := fmt.Println(strings.Join(s.facts, "\n"))
			return err
		})
		return nil
	}
	files := map[string]string{args[0]: "text"}
	switch verb {
	case "write_json":
		files[args[0]] = "json"
	case "write_csv":
		files[args[0]] = args[1]
	case "write_dir":
		files = map[string]string{}
		for _, name := range args[1:] {
			files[path.Join(args[0], name)] = "text"
		}
	}
	s.writes = append(s.writes, func() error {
		for name, form := range files {
			if err := s.write(name, form); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// read takes note of a file, or of all files of a folder, but for hidden ones and those of DVC.
func (s *stub) read(name string) error {
	found := false
	err := filepath.WalkDir(name, func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(e.Name(), ".") && p != name || strings.HasSuffix(p, ".dvc"):
			return nil
		case e.IsDir():
			return nil
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		found = true
		s.fact("file "+filepath.ToSlash(p), data)
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("%s is empty", name)
	}
	return err
}

func (s *stub) fact(what string, data []byte) {
	s.facts = append(s.facts, what+" "+shortSum(data))
}

func shortSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// write writes an output: text, JSON, or a table with the given columns.
func (s *stub) write(name, form string) error {
	text := path.Clean(name) + " was made of\n" + strings.Join(s.facts, "\n") + "\n"
	sum := sha256.Sum256([]byte(text))
	switch form {
	case "text":
	case "json":
		text = fmt.Sprintf("{\"sum\": %q, \"nested\": {\"loss\": 0.%03d}}\n", shortSum([]byte(text)), int(sum[0])*3)
	default:
		text = form + "\n"
		for i := range 3 {
			row := make([]string, strings.Count(form, ",")+1)
			for k := range row {
				row[k] = strconv.Itoa(int(sum[3*i+k]))
			}
			text += strings.Join(row, ",") + "\n"
		}
	}
	if err := os.MkdirAll(path.Dir(name), 0o777); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o666)
}
