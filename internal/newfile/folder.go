package newfile

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"e3/internal/format/notation"
	"e3/internal/format/pattern"
)

// mostFiles bounds the number of files of a folder that are read. many is the number of files of one kind in a folder
// from which on they are one input.
const (
	mostFiles  = 5000
	many       = 4
	mostScript = 256 << 10
)

// interpreters run scripts by their suffix.
var interpreters = map[string]string{
	".awk": "awk -f", ".py": "python3", ".sh": "bash", ".bash": "bash", ".r": "Rscript", ".jl": "julia", ".pl": "perl", ".js": "node", ".rb": "ruby",
}

// dataKinds are suffixes of files that programs read.
var dataKinds = []string{
	".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".feather", ".arrow", ".xlsx", ".xls", ".xml", ".txt", ".dat", ".tab", ".yaml", ".yml", ".toml", ".ini",
	".npy", ".npz", ".h5", ".hdf5", ".pkl", ".rds", ".rdata", ".sqlite", ".db", ".fasta", ".fa", ".fastq", ".fq", ".bam", ".vcf", ".bed", ".gff", ".gtf",
	".png", ".jpg", ".jpeg", ".tif", ".tiff", ".wav", ".mp3", ".geojson", ".shp", ".nc", ".md", ".sql", ".log", ".gz", ".zip", ".bz2", ".xz", ".zst",
}

// skipped are folders that hold no part of a pipeline.
var skipped = []string{"node_modules", "venv", "env", "__pycache__", "results", "build", "dist", "target", "renv"}

// notData are files about a project, which no program of it reads.
var notData = []string{
	"readme", "license", "licence", "changelog", "contributing", "requirements", "environment", "pyproject", "setup", "package", "package-lock", "dvc", "e3", "citation",
	"docker-compose", "compose", "poetry", "uv", "pipfile", "taskfile", "snakefile", "mkdocs", "cargo", "tsconfig", "renv",
}

// FromFolder drafts a package file for the files of a folder: data as inputs, programs as tasks. The names in a program
// tell, as a guess, what it reads and writes.
func FromFolder(fsys fs.FS, name string) (*Draft, error) {
	f := &folder{Draft: &Draft{Name: packageName(name)}, fsys: fsys}
	f.Results = "results/"
	if err := f.walk(); err != nil {
		return nil, err
	}
	f.head()
	f.findEnvironments(fsys)
	f.read()
	made := f.outputs()
	f.data()
	f.programs(made)
	f.example()
	return f.Draft, nil
}

func packageName(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r < 0x80 && (notation.IsWord(byte(r)) || r == '-' && b.Len() > 0) {
			b.WriteRune(r)
		} else if b.Len() > 0 {
			b.WriteByte('-')
		}
	}
	text := strings.Trim(b.String(), "-")
	if !notation.ValidName(text) {
		return "pipeline"
	}
	return text
}

type folder struct {
	*Draft
	fsys    fs.FS
	files   []string // data, in order
	scripts []string
	special []string // files of other tools

	notebooks []string

	sheetOf  *sheetExample // of the first table that names files
	cut      bool
	wanted   map[string]string   // inputs by path
	texts    map[string]string   // texts of scripts
	imported map[string][]string // scripts that other scripts import, with the importing ones
	modules  []string            // of scripts: those that only others import, and tests
}

func (f *folder) walk() error {
	n := 0
	return fs.WalkDir(f.fsys, ".", func(p string, e fs.DirEntry, err error) error {
		name := path.Base(p)
		switch {
		case err != nil && p == ".":
			return err
		case err != nil:
			return fs.SkipDir // the folder cannot be read
		case p == ".":
			return nil
		case strings.HasPrefix(name, "."), e.IsDir() && slices.Contains(skipped, strings.ToLower(name)):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !e.Type().IsRegular():
			return nil
		}
		if n++; n > mostFiles {
			f.cut = true
			return fs.SkipAll
		}
		ext := strings.ToLower(path.Ext(name))
		stem := strings.ToLower(strings.TrimSuffix(name, path.Ext(name)))
		_, program := interpreters[ext]
		switch {
		case special(p):
			f.special = append(f.special, p)
			if program {
				f.scripts = append(f.scripts, p) // what it sources is part of it
			}
		case slices.Contains(notData, stem):
		case program:
			f.scripts = append(f.scripts, p)
		case ext == ".ipynb":
			f.notebooks = append(f.notebooks, p)
		case slices.Contains(dataKinds, ext):
			f.files = append(f.files, p)
		}
		return nil
	})
}

func (f *folder) head() {
	f.Head = []string{
		"Made by e3 new from the files of this folder. Guesses are marked: look it over, then type",
		"",
		"  e3 start -f e3.yaml",
		"",
		"A task runs in an empty folder with copies of its inputs at their paths, and nothing else. Its inputs and outputs are also",
		"variables of its command: \"$name\". doc/package-file.md has every key.",
	}
	if f.cut {
		f.Head = append(f.Head, fmt.Sprintf("Only the first %d files were looked at.", mostFiles))
	}
	for _, p := range f.special {
		switch peer := peerOf(p); peer {
		case "make":
			f.Head = append(f.Head, "", p+" is here. A rule of it becomes a task by hand: the target is out, the prerequisites are in, the recipe is run",
				"(with $x for $$x, \"$out\" for $@, and the names of the inputs for $< and $^). doc/coming-from.md has the idioms of make.")
		case "":
			f.Head = append(f.Head, "", p+" is here: e3 new --from "+p+" turns it into a package file.")
		default:
			f.Head = append(f.Head, "", p+" is here, of "+peer+". Its rules become tasks by hand: what they read is in, what they write is out, the",
				"command is run. doc/coming-from.md has the idioms of other programs beside those of e3.")
		}
	}
	if len(f.notebooks) > 0 {
		f.Head = append(f.Head, "", "Notebooks are left out. One that makes results becomes a task that papermill runs: doc/python.md shows how.")
		for _, p := range f.notebooks[:min(len(f.notebooks), many)] {
			f.Head = append(f.Head, "  "+scalar(p))
		}
	}
}

// data makes inputs of files: one for each file, or one for all files of a kind in a folder that has many.
func (f *folder) data() {
	f.wanted = map[string]string{}
	f.sheets()
	groups := map[string][]string{}
	var order []string
	for _, p := range f.files {
		key := path.Dir(p) + "/*" + path.Ext(p)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], p)
	}
	for _, key := range order {
		group := groups[key]
		if len(group) >= many && !strings.HasPrefix(key, "./") {
			name := f.input("glob", key, fmt.Sprintf("%d files", len(group)))
			f.wanted[key] = name
			for _, p := range group {
				f.wanted[p] = name
			}
			continue
		}
		for _, p := range group {
			f.wanted[p] = f.input("file", p, "")
		}
	}
}

// mention is a quoted or bare word that looks like a file's name.
var mention = pattern.Of(`[A-Za-z0-9_][A-Za-z0-9_./-]*\.[A-Za-z][A-Za-z0-9]{0,9}\b`)

// A name is probably written if the first pattern stands before it on its line, or the second behind it; and read if the
// third stands before it, and the second not behind it.
var (
	writesBefore = pattern.Of(`(--out\w*["'].*\bdefault\s*=\s*|\bto_[a-z]+\(\s*(\w+\s*=\s*)?|savefig\(\s*|ggsave\(\s*|\bsave\w*\([^)]*|\bwrite[._A-Za-z]*\([^)]*|\b(png|pdf|svg)\(\s*|>>?\s*|-o\s+|--out(put)?[= ])["']?$`)
	readsBefore  = pattern.Of(`(\b(open|read[\w.]*|load\w*)\(\s*|<\s*|\bcat\s+)["']?$`)
	writesBehind = pattern.Of(`^["']\)*(\s*,\s*(mode\s*=\s*)?["'][wax]|\.write_(text|bytes)\(|\.open\(\s*(mode\s*=\s*)?["'][wax])`)
)

// made are suffixes of files that programs write, beside the suffixes of files that they read.
var madeKinds = []string{".html", ".pdf", ".svg", ".joblib", ".pt", ".onnx", ".bin", ".model", ".tex"}

// written lists the files that a script probably writes.
func written(text string) (names []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, at := range mention().FindAllStringIndex(line, -1) {
			name := path.Clean(line[at[0]:at[1]])
			ext := strings.ToLower(path.Ext(name))
			if !slices.Contains(dataKinds, ext) && !slices.Contains(madeKinds, ext) || !fs.ValidPath(name) {
				continue
			}
			if writesBefore().MatchString(line[:at[0]]) || writesBehind().MatchString(line[at[1]:]) {
				names = append(names, name)
			}
		}
	}
	return names
}

// read reads the scripts, and finds out which of them are only parts of others.
func (f *folder) read() {
	f.texts, f.imported = map[string]string{}, map[string][]string{}
	for _, p := range f.scripts {
		if data, err := fs.ReadFile(f.fsys, p); err == nil && len(data) <= mostScript {
			f.texts[p] = wholePaths(string(data))
		}
	}
	for _, p := range f.scripts {
		if path.Ext(p) == ".py" {
			look := &programs{fsys: f.fsys, wdir: "."}
			look.file(p)
			for _, m := range look.modules {
				if m != p && !slices.Contains(f.imported[m], p) {
					f.imported[m] = append(f.imported[m], p)
				}
			}
			continue
		}
		called := regexp.MustCompile(`source\(["'][^"']*` + regexp.QuoteMeta(path.Base(p)) + `|(?m)^\s*(\.|source)\s+\S*` + regexp.QuoteMeta(path.Base(p)))
		for other, text := range f.texts {
			if other != p && called.MatchString(text) {
				f.imported[p] = append(f.imported[p], other)
			}
		}
	}
	for _, p := range f.scripts {
		_, err := fs.Stat(f.fsys, path.Dir(p)+"/__init__.py")
		ofPackage := path.Ext(p) == ".py" && err == nil && !strings.Contains(f.texts[p], "__main__")
		ofPeer := peerOf(p) != "" || ofSnakemake().MatchString(f.texts[p])
		if f.imported[p] != nil || ofPackage || ofPeer || tests().MatchString(p) {
			f.modules = append(f.modules, p)
		}
	}
}

// ofSnakemake is in scripts that only a rule of Snakemake can start.
var ofSnakemake = pattern.Of(`\bsnakemake[.@](input|output|params|wildcards|threads|config)\b`)

// tests are files of tests, by their names.
var tests = pattern.Of(`(^|/)(tests?/|conftest\.py$|test_[^/]*\.py$|[^/]*_test\.py$)`)

var (
	divided  = pattern.Of(`["']\s*/\s*["']`)
	joined   = pattern.Of(`path\.join\(([^()]*)\)`)
	comma    = pattern.Of(`["']\s*,\s*["']`)
	assigned = pattern.Of(`(?m)^\s*([A-Za-z_]\w*)\s*=[^=\n]*(["'][\w./-]+\.\w{1,8}["'])\)?\s*(#.*)?$`)
)

// wholePaths writes a path of Python that stands in parts, or in a variable, as one text where it is used.
func wholePaths(text string) string {
	text = divided().ReplaceAllString(text, "/")
	text = joined().ReplaceAllStringFunc(text, func(s string) string { return comma().ReplaceAllString(s, "/") })
	for _, m := range assigned().FindAllStringSubmatch(text, mostVariables) {
		use := regexp.MustCompile(`([(\s,])` + m[1] + `([.,)]|\s*,)`)
		if used := use.ReplaceAllString(text, "${1}"+m[2]+"${2}"); used != text {
			text = strings.Replace(used, m[0], "", 1)
		}
	}
	return text
}

// mostVariables bounds the variables of a script that are looked at.
const mostVariables = 100

// outputs finds the files that scripts write, with the script. A file that is here already is one of them if its script
// does nothing else with it.
func (f *folder) outputs() (made map[string]string) {
	made = map[string]string{}
	var all []string
	for _, p := range f.scripts {
		if slices.Contains(f.modules, p) {
			continue
		}
		for _, m := range written(f.texts[p]) {
			if made[m] == "" && !f.reads(p, m) && !f.overlaps(all, m) {
				made[m] = p
				all = append(all, m)
			}
		}
	}
	f.files = slices.DeleteFunc(f.files, func(p string) bool { return made[p] != "" })
	return made
}

// reads reports whether a file that a script writes is here, and probably data of it all the same.
func (f *folder) reads(script, file string) bool {
	alike := 0
	for _, p := range f.files {
		if path.Dir(p) == path.Dir(file) && path.Ext(p) == path.Ext(file) && p != file {
			alike++
		}
	}
	if alike >= many && path.Dir(file) != "." {
		return true // all of them are one input
	}
	if !slices.Contains(f.files, file) {
		return false
	}
	for line := range strings.Lines(f.texts[script]) {
		for _, at := range mention().FindAllStringIndex(line, -1) {
			if path.Clean(line[at[0]:at[1]]) == file && readsBefore().MatchString(line[:at[0]]) && !writesBehind().MatchString(line[at[1]:]) {
				return true
			}
		}
	}
	return false
}

// programs makes a task of each script. made are the files that scripts write.
func (f *folder) programs(made map[string]string) {
	tasks := map[string]*Task{}
	for _, p := range f.scripts {
		if slices.Contains(f.modules, p) {
			continue
		}
		t := &Task{Name: f.name(strings.TrimSuffix(path.Base(p), path.Ext(p))), Environment: f.environmentOf(path.Ext(p))}
		tasks[p] = t
		f.Tasks = append(f.Tasks, t)
		for _, m := range slices.Sorted(maps.Keys(made)) {
			if made[m] == p {
				t.Out = append(t.Out, Out{Name: f.name(path.Base(m)), Path: m})
			}
		}
	}
	source := func(writer, m string) string {
		if t := tasks[writer]; len(t.Out) > 1 {
			for _, o := range t.Out {
				if o.Path == m {
					return t.Name + "." + o.Name
				}
			}
		}
		return tasks[writer].Name
	}
	for _, p := range f.scripts {
		if t := tasks[p]; t != nil {
			f.wire(t, p, made, source)
		}
	}
}

// needs reports whether a script imports another, directly or through others.
func (f *folder) needs(script, helper string, depth int) bool {
	return depth < 8 && slices.ContainsFunc(f.imported[helper], func(by string) bool { return by == script || by != helper && f.needs(script, by, depth+1) })
}

// inFolder reports whether a script names the folder of a file as such.
func (f *folder) inFolder(text, file string) bool {
	dir := path.Dir(file)
	if dir == "." {
		return false
	}
	if strings.Contains(dir, "/") && strings.Contains(text, dir) {
		return !slices.ContainsFunc(f.files, func(o string) bool { return strings.HasPrefix(o, dir+"/") && strings.Contains(text, o) })
	}
	return slices.ContainsFunc([]string{`"` + dir + `"`, "'" + dir + "'", dir + "/*", dir + `/"`, dir + "/'"}, func(s string) bool { return strings.Contains(text, s) })
}

func (f *folder) overlaps(outs []string, p string) bool {
	return slices.ContainsFunc(outs, func(q string) bool { return strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/") })
}

// wire fills in the inputs and the command of a script's task.
func (f *folder) wire(t *Task, p string, made map[string]string, source func(writer, path string) string) {
	self := f.input("file", p, "")
	t.In = append(t.In, Ref{Input: self})
	text := f.texts[p]
	add := func(r Ref) {
		if !slices.Contains(t.In, r) {
			t.In = append(t.In, r)
		}
	}
	for _, helper := range f.scripts {
		if f.needs(p, helper, 0) {
			add(Ref{Input: f.input("file", helper, "")})
		}
	}
	for _, d := range f.files {
		if strings.Contains(text, path.Base(d)) || f.inFolder(text, d) {
			add(Ref{Input: f.wanted[d]})
		}
	}
	for _, m := range mention().FindAllString(text, -1) {
		if writer := made[path.Clean(m)]; writer != "" && writer != p && !f.reaches(writer, p, made) {
			add(Ref{Task: source(writer, path.Clean(m))})
		}
	}
	command := interpreters[strings.ToLower(path.Ext(p))] + ` "$` + self + `"`
	if f.overFiles(t, p, command) {
		return
	}
	if len(t.Out) == 0 {
		t.printing(command)
		return
	}
	t.Run = command
	if len(t.Out) == 1 {
		t.Out[0].Name = ""
	}
	t.Comments = append(t.Comments, "guessed from the names in "+p+": what it reads and writes")
}

// printing makes the printed text of a task's command the task's output.
func (t *Task) printing(command string) {
	t.Out = []Out{{Path: t.Name + ".txt"}}
	t.Run = command + ` > "$out"`
	t.Comments = []string{"guessed: it prints its result. If it writes files, name them under out, and leave > \"$out\" away"}
}

// Unwire takes back the guesses about files that programs write and read of each other, since the guesses contradict
// each other.
func (d *Draft) Unwire() {
	for _, t := range d.Tasks {
		t.In = slices.DeleteFunc(t.In, func(r Ref) bool { return r.Task != "" })
		if command, prints := strings.CutSuffix(t.Run, ` > "$out"`); !prints {
			t.printing(command)
		}
	}
}

// reaches reports whether a script would read its own output, directly or through outputs of others.
func (f *folder) reaches(reader, writer string, made map[string]string) bool {
	for _, m := range mention().FindAllString(f.texts[reader], -1) {
		if made[path.Clean(m)] == writer {
			return true
		}
	}
	return false
}

// example makes a task where there is no program, so that the file can be started.
func (f *folder) example() {
	if len(f.Tasks) > 0 {
		return
	}
	t := &Task{Name: "", Out: []Out{{Path: "first.txt"}}, Comments: []string{"an example: put your own command here"}}
	f.Tasks = append(f.Tasks, t)
	if f.sheetOf != nil {
		f.exampleSheet(f.sheetOf, t)
		return
	}
	for _, in := range f.Inputs {
		if in.Kind == "glob" {
			f.exampleItems(in, t)
			return
		}
	}
	t.Name = f.name("first")
	if len(f.Inputs) == 0 {
		f.Inputs = append(f.Inputs, &Input{Name: f.name("greeting"), Kind: "value", Path: "hello", Comment: "e3 set greeting hi"})
		t.In, t.Run = []Ref{{Input: "greeting"}}, `echo "$greeting" > "$out"`
		return
	}
	for _, in := range f.Inputs {
		t.In = append(t.In, Ref{Input: in.Name})
	}
	t.Run = `ls -lR > "$out"`
}

// asItems makes items of the files of an input.
func (in *Input) asItems() {
	in.Kind, in.Path = "files", strings.Replace(in.Path, "*", "{name}", 1)
	in.Comment += ": an item for each, known by its {name}"
}

// takes are patterns of programs that read the files named in their arguments.
var takes = pattern.Of(`sys\.argv|argparse|\bclick\b|\btyper\b|fileinput|\$\{?[1@*]|commandArgs|process\.argv|\bARGV\b|\bARGS\b|<>`)

// overFiles turns a program that reads the files of its arguments into a task for each file of a folder, if there is
// one such folder and nothing tells what the program reads.
func (f *folder) overFiles(t *Task, p, command string) bool {
	var many *Input
	for _, in := range f.Inputs {
		switch {
		case in.Kind != "glob" && in.Kind != "files":
		case many != nil:
			return false
		default:
			many = in
		}
	}
	if many == nil || len(t.In) > 1 || len(t.Out) > 0 || path.Ext(p) != ".awk" && !takes().MatchString(f.texts[p]) {
		return false
	}
	if many.Kind == "glob" {
		many.asItems()
	}
	t.Matrix = many.Name
	t.In = append(t.In, Ref{Input: many.Name + "[name]", As: "file"})
	t.Out = []Out{{Path: t.Name + ".txt"}}
	t.Run = command + ` "$file" > "$out"`
	t.Comments = []string{"guessed: one task for each file, which " + p + " reads, and it prints its result. \"$name\" is the name of the file"}
	return true
}

// exampleItems makes a task for each file of an input, and a task that reads the results of all.
func (f *folder) exampleItems(in *Input, each *Task) {
	in.asItems()
	each.Comments = []string{"an example, one task for each file: put your own command here. \"$file\" is the file, \"$name\" its name"}
	each.Name, each.Out = f.name("each"), []Out{{Path: "each.txt"}}
	each.Matrix, each.In, each.Run = in.Name, []Ref{{Input: in.Name + "[name]", As: "file"}}, `wc -c < "$file" > "$out"`
	f.exampleAll(each)
}

// exampleAll makes a task that gathers the results of the items of another one.
func (f *folder) exampleAll(each *Task) {
	f.Tasks = append(f.Tasks, &Task{
		Name: f.name("all"), Out: []Out{{Path: "all.txt"}}, In: []Ref{{Task: each.Name + "[*]", As: "parts"}}, Run: `(cd "$parts" && grep . *) > "$out"`,
		Comments: []string{"an example: \"$parts\" is a folder with the results of all"},
	})
}
