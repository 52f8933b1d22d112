//go:build amd64 || arm64

package runner_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"e3/internal/host/room"
	"e3/internal/host/runner"
	"e3/internal/host/trace"
)

// traced runs a script in a working directory with the given inputs, beside a project with the given files, and returns
// what was found: "kind path", sorted. closed says in which room.
func traced(t *testing.T, closed bool, inputs, others, files []string, script string) []string {
	t.Helper()
	project, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	spec := shell(t, script, "")
	if closed {
		spec = inRoom(t, spec)
	} else if spec.Dir, err = filepath.EvalSymlinks(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		fill(t, project, file)
	}
	for _, file := range inputs {
		fill(t, spec.Dir, file)
	}
	spec.Env = append(spec.Env, "project="+project)
	look := &trace.Look{Work: spec.Dir, Project: []string{project}, Inputs: inputs, Others: others, Looks: true, Report: filepath.Join(t.TempDir(), "opened")}
	if closed {
		look.Work = room.Work
	}
	spec.Trace = look
	r, err := newSupervisor(t).Run(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%q: %d", script, r.ExitCode)
	text, err := os.ReadFile(look.Report)
	if err != nil {
		t.Fatal(err)
	}
	list := trace.Parse(string(text))
	var found []string
	for _, f := range list {
		if f.Kind == trace.Sought && slices.ContainsFunc(list, func(other trace.Finding) bool { return other.Kind != trace.Sought && other.Path == f.Path }) {
			continue // a program may look before it opens
		}
		found = append(found, string(f.Kind)+" "+f.Path)
	}
	slices.Sort(found)
	return found
}

// fill writes a file, or makes a folder if its name ends with a slash.
func fill(t *testing.T, dir, file string) {
	t.Helper()
	path := filepath.Join(dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(file, "/") {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return
	}
	text := "text of " + file + "\n"
	if strings.HasSuffix(file, ".sh") {
		text = "#!/bin/sh\ncat more.txt\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestTraced(t *testing.T) {
	files := []string{"data/a.csv", "data/b.csv", "bin/fit.sh", "more.txt", "out.txt", ".git/config", ".env", "deploy.pem", "unread.txt", "empty/"}
	for name, c := range map[string]struct {
		inputs, others []string
		script         string
		want           []string
		program        string
	}{
		"a file that is missing":      {script: "cat data/a.csv || true", want: []string{"f data/a.csv"}},
		"a redirection":               {script: "read x < data/a.csv || true", want: []string{"f data/a.csv"}},
		"from a subshell, elsewhere":  {script: "mkdir d; (cd d; cat ../data/a.csv) || true", want: []string{"f data/a.csv"}},
		"a pattern lists":             {script: "cat data/*.csv || true", want: []string{"d data"}},
		"a folder that is entered":    {script: "cd data || cd more.txt || cd nothing || true", want: []string{"d data", "s more.txt"}},
		"a script":                    {script: "./bin/fit.sh || true", want: []string{"f bin/fit.sh"}},
		"what it writes":              {script: "echo x > out.txt; cat out.txt; echo y >> more.txt", want: nil},
		"what the project has not":    {script: "cat nothing data/nothing || true", want: nil},
		"keys and tools":              {script: "cat .git/config .env deploy.pem || true", want: nil},
		"tests":                       {script: "[ -e more.txt ] || [ -f data/a.csv ] || [ -d data ] || [ -r .env ] || [ -e nothing ] || true", want: []string{"s data", "s data/a.csv", "s more.txt"}},
		"a test, then nothing":        {script: "if [ -f more.txt ]; then cat more.txt; fi", want: []string{"s more.txt"}},
		"a test of an input":          {inputs: []string{"data/a.csv"}, script: "[ -s data/a.csv ] && [ -d data ]; touch out.txt; [ -f out.txt ]", want: nil},
		"a test of another's output":  {others: []string{"model.bin"}, script: "[ -x model.bin ] || test -w out.txt || true", want: []string{"s model.bin", "s out.txt"}},
		"a copy":                      {script: "cp more.txt x || true", want: []string{"s more.txt"}},
		"a folder of headers":         {program: "gcc", script: "echo '#include \"a.csv\"' > x.c; gcc -Idata -c x.c -o x.o || true", want: []string{"s data"}},
		"what make looks for":         {program: "make", script: "printf 'x: more.txt\\n\\tcat more.txt > x\\n' > M; make -f M || true", want: []string{"s more.txt"}},
		"inputs":                      {inputs: []string{"data/a.csv", "unread.txt"}, script: "cat data/a.csv data/a.csv; cat data/b.csv || true", want: []string{"f data/b.csv", "r data/a.csv"}},
		"outputs of others":           {others: []string{"model.bin", "fits"}, script: "cat model.bin fits/1.txt x/model.bin || true", want: []string{"m fits", "m model.bin"}},
		"processes of processes":      {script: "sh -c 'sh -c \"cat data/a.csv & wait\" | cat' || true; setsid cat more.txt || true", want: []string{"f data/a.csv", "f more.txt"}},
		"a folder as an input":        {inputs: []string{"data/a.csv"}, script: "ls data; cat data/b.csv || true", want: []string{"f data/b.csv"}},
		"it may trace itself no more": {script: "exec 3< more.txt || true", want: []string{"f more.txt"}},
		"perl":                        {program: "perl", script: "perl -e 'open(F, \"<\", \"more.txt\"); opendir(D, \"data\")'", want: []string{"d data", "f more.txt"}},
		"python":                      {program: "python3", script: "/usr/bin/python3 -c 'import os\nfor f in (lambda: open(\"more.txt\"), lambda: os.listdir(\"data\"), lambda: os.stat(\"out.txt\"), lambda: os.path.exists(\"bin/fit.sh\")):\n  try: f()\n  except OSError: pass'", want: []string{"d data", "f more.txt", "s bin/fit.sh", "s out.txt"}},
		"a compiler":                  {program: "gcc", inputs: []string{"main.c"}, script: "echo '#include \"more.txt\"' > x.c; gcc -c x.c -o x.o || true", want: []string{"f more.txt"}},
		"make":                        {program: "make", script: "make -f more.txt || true", want: []string{"f more.txt"}},
		"threads":                     {program: "python3", script: "/usr/bin/python3 -c 'import threading\ndef f(n):\n  try: open(n)\n  except OSError: pass\nts=[threading.Thread(target=f, args=(n,)) for n in (\"more.txt\", \"data/a.csv\", \"data/b.csv\")*20]\n[t.start() for t in ts]; [t.join() for t in ts]'", want: []string{"f data/a.csv", "f data/b.csv", "f more.txt"}},
		"node":                        {program: "node", script: "node -e 'try { require(\"fs\").readFileSync(\"more.txt\") } catch {}'", want: []string{"f more.txt"}},
	} {
		for _, closed := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", open", true: ", closed"}[closed], func(t *testing.T) {
				if c.program != "" {
					if _, err := exec.LookPath(c.program); err != nil {
						t.Skipf("%s is not installed: install it", c.program)
					}
				}
				if got := traced(t, closed, c.inputs, c.others, files, c.script); !slices.Equal(got, c.want) {
					t.Errorf("found %q, want %q", got, c.want)
				}
			})
		}
	}
}

// TestTracedLosesNothing: each file is found that processes open at the same time, some of them from folders that they enter and
// leave, so that a path never counts from a folder of before.
func TestTracedLosesNothing(t *testing.T) {
	const loops, each = 4, 80
	var files, want []string
	for i := range loops {
		for k := range each {
			name := fmt.Sprintf("in/%d/%d.txt", i, k)
			files, want = append(files, name, "at/"+name), append(want, "f "+name) // the second one, seen from a folder too deep
		}
	}
	slices.Sort(want)
	script := fmt.Sprintf(`for i in $(seq 0 %d); do
		(mkdir -p at/$i; for k in $(seq 0 4 %d); do
			cd at/$i; read x < ../../in/$i/$k.txt
			cd ..; read x < ../in/$i/$((k + 1)).txt
			cd ..; read x < in/$i/$((k + 2)).txt; (cd at; read x < ../in/$i/$((k + 3)).txt)
		done) 2> /dev/null &
	done; wait`, loops-1, each-1)
	for _, closed := range []bool{false, true} {
		if got := traced(t, closed, nil, nil, files, script); !slices.Equal(got, want) {
			t.Errorf("closed %t: found %d of %d: %q", closed, len(got), len(want), got)
		}
	}
}

// TestTracedOutside: in the open room a command finds the project by its absolute path.
func TestTracedOutside(t *testing.T) {
	got := traced(t, false, nil, nil, []string{"data/a.csv", "data/b.csv", ".env"}, `cat "$project/data/a.csv" "$project/.env"; ls "$project/data" "$project" /usr/lib; cat "$project/none" || true`)
	if want := []string{"d data", "f data/a.csv"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
}

// TestTracedEnds: a traced command ends as others do, and the errors of its start are theirs.
func TestTracedEnds(t *testing.T) {
	s := newSupervisor(t)
	for _, script := range []string{"true", "exit 7", "kill -TERM $$", "kill -KILL 0", "(sleep 600 &); exit 3", "setsid sleep 600 & exit 0", "cat /dev/null /no/such || exit 5", "sh -c 'exit 4'"} {
		plain, err := s.Run(t.Context(), shell(t, script, t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		spec := shell(t, script, t.TempDir())
		spec.Trace = &trace.Look{Work: spec.Dir, Report: filepath.Join(t.TempDir(), "r")}
		got, err := s.Run(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if got.ExitCode != plain.ExitCode || got.Signal != plain.Signal || got.Straggler != plain.Straggler {
			t.Errorf("%s: ended with %+v, traced with %+v", script, plain, got)
		}
	}
	for _, argv := range [][]string{{"./text"}, {"./none"}, {"/"}} {
		spec := runner.Spec{Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}, Dir: t.TempDir()}
		fill(t, spec.Dir, "script.txt")
		if err := os.WriteFile(filepath.Join(spec.Dir, "text"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, plain := s.Run(t.Context(), spec)
		spec.Trace = &trace.Look{Work: spec.Dir, Report: filepath.Join(t.TempDir(), "r")}
		_, got := s.Run(t.Context(), spec)
		if plain == nil || got == nil || plain.Error() != got.Error() {
			t.Errorf("%q: %v, traced %v", argv, plain, got)
		}
	}
}
