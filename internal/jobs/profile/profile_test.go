package profile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
	"e3/internal/jobs/cluster"
	"e3/internal/jobs/queue"
)

// toy is a profile to which tests add.
const toy = `submit: enqueue -n e3-${token}
submitted: '^job (?P<id>\d+)'
status: joblist
listed: '^(?P<id>\d+) (?P<state>\w+) e3-(?P<token>\w+)'
cancel: drop ${ids}
`

// Every profile that is shipped, or shown in the page, can be read.
func TestShipped(t *testing.T) {
	files, err := fs.Glob(Shipped, "profiles/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("shipped are %q, %v", files, err)
	}
	texts := map[string][]byte{}
	for _, file := range files {
		texts[file], _ = Shipped.ReadFile(file)
	}
	page, err := os.ReadFile("../../../doc/executors.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	for i, m := range shown {
		texts[fmt.Sprint("example ", i+1)] = m[1]
	}
	if len(shown) < 4 {
		t.Errorf("the page shows %d profiles, want more", len(shown))
	}
	for file, text := range texts {
		if _, err := Decode("x", file, text); err != nil {
			t.Error(err)
		}
	}
}

func TestDecodeFaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "p.yaml: the file is empty",
		"a: [":                         "p.yaml: ",
		"- a":                          "p.yaml:1: a profile is a mapping",
		toy + "statsu: x":              `p.yaml:6: a profile has no "statsu"; did you mean "status"?`,
		toy + "cancel: x":              `p.yaml:6: "cancel" is there twice`,
		toy + "states: {runing: x}":    `p.yaml:6: states has no "runing"; did you mean "running"?`,
		toy + "states: {running: '('}": "p.yaml:6: states.running: error parsing regexp",
		toy + "messages: x":            "p.yaml:6: messages is a mapping",
		toy + "timeout: soon":          `p.yaml:6: timeout is a duration like 2m, not "soon"`,
		toy + "timeout: [1]":           "p.yaml:6: timeout is a text",
		toy + "input: *x":              "p.yaml: ",
		toy + "array: none\nindex: I":  "p.yaml:6: array is the number of jobs",
		toy + "array: 3":               "array and index go together",
		toy + "explain: x":             "explain and explained go together",
		toy + "input: |\n  a ${nmae}":  "p.yaml:6: input: there is no ${nmae}; did you mean \"name\"?",
		toy + "input: a ${name}":       "p.yaml:6: input: ${name} may have any characters: write ${name:json}",
		toy + "input: ${memory}":       `there is no ${memory}; did you mean "memory:`,
		strings.ReplaceAll(toy, "cancel: drop ${ids}", ""):        `it lacks "cancel"`,
		strings.ReplaceAll(toy, "${ids}", "all"):                  "p.yaml:5: cancel: it lacks ${ids}",
		strings.ReplaceAll(toy, "${token}", "x"):                  "p.yaml:1: submit: it lacks ${token}",
		strings.ReplaceAll(toy, "-n e3", "-q ${queue} -n e3"):     "p.yaml:1: submit: the first line, ",
		strings.ReplaceAll(toy, "joblist", "joblist ${token}"):    "p.yaml:3: status: the first line, ",
		strings.ReplaceAll(toy, "joblist", `"joblist 'a"`):        "p.yaml:3: status: arguments ",
		strings.ReplaceAll(toy, "(?P<id>\\d+)'", "\\d+'"):         "p.yaml:2: submitted: the pattern must have a group (?P<id>…)",
		strings.ReplaceAll(toy, "(?P<state>", "(?P<staet>"):       `p.yaml:4: listed: no group "staet" is read; did you mean "state"?`,
		toy + "values: {x: " + strings.Repeat("x", MaxSize) + "}": "p.yaml: it is longer than the 64 KiB",
	} {
		if _, err := Decode("p", "p.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// job is one that asks for all there is.
var job = queue.Job{ID: "j", Queue: "toy", Workspace: "dev", Task: "a task", Labels: []string{"ssd", "big", "ssd"}, InputBytes: 40 << 20,
	Policy: record.Policy{CPU: 1.5, Memory: 1 << 30, Timeout: time.Hour, Queue: "long",
		Resources: []record.Amount{{Name: "tape", Value: 1.5}, {Name: "gpu", Value: 2}, {Name: "db", Value: 1}}}}

func TestTemplates(t *testing.T) {
	o := &Options{Args: []string{"-P", "my project"}, Resources: map[string]string{"gpu": "a100", "db": ""}}
	p := &Profile{own: map[string]string{"image": "im'age", "queue": "short"}}
	full := &cluster.Batch{Token: "tok", Name: "e3:dev.a_task[", Script: "#!/bin/sh\necho \"$1\" ${x}\n", Logs: "/logs", Jobs: []queue.Job{job}}
	bare := &cluster.Batch{Token: "tok", Name: "e3:dev.b", Script: "s", Jobs: []queue.Job{{}}}
	for _, test := range []struct{ text, full, bare string }{
		{"a 'b c'  \"d\"'e'", "a|b c|de", "a|b c|de"},
		{"a ${token} $${token} $x ${name}", "a|tok|${token}|$x|e3:dev.a_task[", "a|tok|${token}|$x|e3:dev.b"},
		{"a\n-q ${queue}", "a|-q|long", "a|-q|short"},
		{"a\n-m ${memory:MiB}M ${core_memory:GiB}G", "a|-m|1088M|1G", "a"},
		{"a\n-t ${time:s} ${time:m} ${time:hms}", "a|-t|3902|66|1:05:02", "a"},
		{"a -c ${cores}\n\\,mem=${memory:KiB}\n\\,x", "a|-c|2,mem=1114112,x", "a|-c|1,x"},
		{"a\n-l ${label}\n-r ${resource}=${amount}", "a|-l|big|-l|ssd|-r|a100=2|-r|tape=2", "a"},
		{"a\n--all=${labels:&} ${resources:=,}", "a|--all=big&ssd|a100=2,tape=2", "a"},
		{"a ${args}", "a|-P|my project", "a|-P|my project"},
		{"a '${script:json}' ${image}", `a|"#!/bin/sh\necho \"$1\" ${x}\n"|im'age`, `a|"s"|im'age`},
		{"a\n--array=0-${last}", "a", "a"},
	} {
		for b, want := range map[*cluster.Batch]string{full: test.full, bare: test.bare} {
			words, err := template(test.text).words(o.values(p, b))
			if got := strings.Join(words, "|"); got != want || err != nil {
				t.Errorf("%q: got %q, %v, want %q", test.text, got, err, want)
			}
		}
	}
	if got := template("a\nb: ${memory:MiB}\nc: ${script:json}\n").text(o.values(p, bare)); got != "a\nc: \"s\"\n" {
		t.Errorf("an input: got %q, want it without what has no value", got)
	}
}

// A demand for which a profile has no words fails the task, as does a name that could be more than one.
func TestDemandsOfToy(t *testing.T) {
	t.Setenv("PATH", bin(t, "enqueue", "joblist", "drop"))
	for _, test := range []struct {
		add, want string
		j         queue.Job
	}{
		{"", "", queue.Job{}},
		{"", `label "ssd" cannot be asked of toy: its profile has no ${label}`, queue.Job{Labels: []string{"ssd"}}},
		{"input: ${label}", "", queue.Job{Labels: []string{"ssd"}}},
		{"input: ${label}", `label "-x" cannot be asked`, queue.Job{Labels: []string{"-x"}}},
		{"input: ${labels:,}", `label "a,b" cannot be asked`, queue.Job{Labels: []string{"a,b"}}},
		{"", "", queue.Job{Policy: record.Policy{Resources: []record.Amount{{Name: "db", Value: 1}}}}},
		{"", `resource "gpu" cannot be asked`, queue.Job{Policy: record.Policy{Resources: []record.Amount{{Name: "gpu", Value: 1}}}}},
		{"", `queue "--x" cannot be asked`, queue.Job{Policy: record.Policy{Queue: "--x"}}},
	} {
		p, err := Decode("toy", "toy.yaml", []byte(toy+test.add))
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Scheduler(Options{Resources: map[string]string{"db": ""}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Demands(&test.j); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.add, err, test.want)
		}
	}
}

// bin makes a folder of programs that print their input and arguments.
func bin(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nPATH=/usr/bin:/bin\n[ -e "+dir+"/fails ] && { cat "+dir+"/fails >&2; exit 1; }\ncat; echo \"$@\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What the calls do with answers, and with failures.
func TestCalls(t *testing.T) {
	dir := bin(t, "enqueue", "joblist", "drop", "ended")
	t.Setenv("PATH", dir)
	const more = "input: |\n  job 7\n  job 8\nexplain: ended ${id} code=3\nexplained: 'code=(?P<exit>\\d+)'\nmessages: {none: nobody, unknown: no job, limit: full}\n"
	p, err := Decode("toy", "toy.yaml", []byte(strings.ReplaceAll(toy, "status: joblist", "status: joblist 9 run e3-tok")+more))
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Scheduler(Options{})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(context.Context) (string, error){
		"submit": func(ctx context.Context) (string, error) {
			return s.Submit(ctx, &cluster.Batch{Token: "t", Jobs: []queue.Job{{}}})
		},
		"list": func(ctx context.Context) (got string, err error) {
			err = s.List(ctx, func(l cluster.Listed) { got += l.ID + " " + l.Token + " " + l.Said })
			return got, err
		},
		"explain": func(ctx context.Context) (got string, err error) {
			err = s.Explain(ctx, "9", "tok", func(l cluster.Listed) { got += fmt.Sprint(l.State, " ", l.How) })
			return got, err
		},
		"cancel": func(ctx context.Context) (string, error) { return "", s.Cancel(ctx, []string{"9", "10"}) },
	}
	for _, test := range []struct {
		fails string
		want  map[string]string // what is got, or the kind of the error
	}{
		{"", map[string]string{"submit": "8", "list": "9 tok run", "explain": "3 failed: e3 worker exited with code 3", "cancel": ""}},
		{"nobody", map[string]string{"submit": "!", "list": "", "explain": "!", "cancel": "!"}},
		{"no job", map[string]string{"submit": "!unknown", "list": "!unknown", "explain": "!unknown", "cancel": ""}},
		{"it is full", map[string]string{"submit": "!limit", "list": "!limit", "explain": "!limit", "cancel": "!limit"}},
		{"connection refused", map[string]string{"submit": "!temporary", "list": "!temporary", "explain": "!temporary", "cancel": "!temporary"}},
	} {
		os.Remove(filepath.Join(dir, "fails"))
		if test.fails != "" {
			if err := os.WriteFile(filepath.Join(dir, "fails"), []byte(test.fails), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for name, call := range calls {
			got, err := call(t.Context())
			if err != nil {
				got = "!"
				for kind, is := range map[string]error{"unknown": cluster.ErrUnknown, "limit": cluster.ErrLimit, "temporary": cluster.ErrTemporary} {
					if errors.Is(err, is) {
						got += kind
					}
				}
			}
			if got != test.want[name] {
				t.Errorf("%s, where it says %q: got %q, %v, want %q", name, test.fails, got, err, test.want[name])
			}
		}
	}
}

// An explanation without a state tells why a job is held, and not that there is one.
func TestExplainedReason(t *testing.T) {
	t.Setenv("PATH", bin(t, "enqueue", "why"))
	p, err := Decode("toy", "toy.yaml", []byte(toy+"explain: why ${id} wants 9 cores\nexplained: '^9 (?P<reason>wants .*)$'\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Scheduler(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []cluster.Listed
	err = s.Explain(t.Context(), "9", "tok", func(l cluster.Listed) { got = append(got, l) })
	if want := []cluster.Listed{{Held: "wants 9 cores"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestSchedulerFaults(t *testing.T) {
	t.Setenv("PATH", bin(t, "joblist"))
	for add, want := range map[string]string{
		"":                    `its commands are not on this machine: exec: "enqueue"`,
		"values: {image: ''}": `the value of "image" is empty: make the profile your own (e3 executor show toy)`,
	} {
		p, err := Decode("toy", "toy.yaml", []byte(toy+add))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Scheduler(Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", add, err, want)
		}
	}
	p, err := Decode("toy", "toy.yaml", []byte(toy))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin(t, "enqueue"))
	if _, err := p.Scheduler(Options{Args: []string{"-x"}}); err == nil || !strings.Contains(err.Error(), "submit has no ${args}") {
		t.Errorf("arguments without a place: got %v", err)
	}
}

// States of the shipped profiles, as their schedulers print them.
func TestStates(t *testing.T) {
	for file, kinds := range map[string]map[string]string{
		"sge": {"qw": "waiting", "r": "running", "hqw": "held", "Eqw": "held", "dr": "ending", "Rr": "running", "Rq": "waiting", "37": "timeout", "0": "failed", "100": "failed", "26": "lost"},
		"pbs": {"Q": "waiting", "R": "running", "H": "held", "E": "ending", "C": "failed", "F": "failed"},
		"kubernetes": {"": "", "SuccessCriteriaMet:": "ending", "FailureTarget:BackoffLimitExceeded": "failed", "SuccessCriteriaMet: Complete:": "done",
			"FailureTarget:BackoffLimitExceeded Failed:BackoffLimitExceeded": "failed", "FailureTarget:DeadlineExceeded Failed:DeadlineExceeded": "timeout",
			"Unschedulable: 0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector.": "waiting",
			"Unschedulable: 0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.":                     "held",
			"ImagePullBackOff Back-off pulling image \"none\"":                                                                 "held", "ContainerCreating": "", "ErrImagePull": "",
			"OOMKilled": "oom", "Error": "failed", "Evicted Error": "lost", "NodeLost": "lost", "Completed": "done"},
		"aws-batch": {"RUNNABLE None None": "waiting", "RUNNING None None": "running", "SUCCEEDED None None": "done", "FAILED None None": "failed",
			"FAILED Host EC2 (instance i-1) terminated. None": "lost", "FAILED Job attempt duration exceeded timeout None": "timeout",
			"FAILED Essential container in task exited\tOutOfMemoryError: Container killed due to memory usage": "oom"},
	} {
		text, err := Shipped.ReadFile("profiles/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		p, err := Decode(file, file, text)
		if err != nil {
			t.Fatal(err)
		}
		for said, want := range kinds {
			if got := p.Kind(said); got != want {
				t.Errorf("%s: %q: got %q, want %q", file, said, got, want)
			}
		}
	}
}

// Answers of real schedulers.
func TestListed(t *testing.T) {
	for file, test := range map[string]struct{ key, answer, want string }{
		"sge": {"listed", `job-ID  prior   name       user         state submit/start at     queue                          slots ja-task-ID 
-----------------------------------------------------------------------------------------------------------------
      2 0.55500 e3-abcdefg root         r     11/29/2026 18:19:37 main@n1                            2        
       Full jobname:     e3-abcdefghijkl
       Master Queue:     main@n1
     13 0.60500 toobig     root         qw    11/29/2026 18:20:08                                  100        
       Full jobname:     toobig
     14 0.60500 e3-abcdefg root         qw    11/29/2026 18:20:08                                  100        
       Full jobname:     e3-abcdefghijk7
`, "2 abcdefghijkl r n1;14 abcdefghijk7 qw "},
		"pbs": {"listed", `Job id              Name             User            Time Use S Queue
------------------- ---------------- --------------- -------- - -----
13                  e3-abcdefghijkl  root            00:00:00 Q main           
14.server           e3-abcdefghijk7  root            00:00:00 R main           
15.server           other            root            00:00:00 R main           
`, "13 abcdefghijkl Q ;14 abcdefghijk7 R "},
		"kubernetes": {"listed", "e3-abcdefghijkl\t\t\ne3-abcdefghijk7\tFailureTarget:BackoffLimitExceeded Failed:BackoffLimitExceeded \t\n" +
			"e3-abcdefghijkl-x7b2q\t\tUnschedulable: 0/1 nodes are available.\ne3-abcdefghijk7-qqqqq\tReady: PodScheduled: \t \ne3-abcdefghijk7-zzzzz\tPodScheduled: \tImagePullBackOff Back-off\n",
			"e3-abcdefghijkl abcdefghijkl  ;e3-abcdefghijk7 abcdefghijk7 FailureTarget:BackoffLimitExceeded Failed:BackoffLimitExceeded ;" +
				"e3-abcdefghijkl abcdefghijkl Unschedulable: 0/1 nodes are available. ;e3-abcdefghijk7 abcdefghijk7 ImagePullBackOff Back-off "},
		"aws-batch": {"listed", "6af6e6e3-fe81\te3-abcdefghijkl\tNone\tRUNNING\tNone\tNone\n7c58-1\te3-abcdefghijk7\t3\tFAILED\tNone\tNone\n",
			"6af6e6e3-fe81 abcdefghijkl RUNNING None\tNone ;7c58-1 abcdefghijk7 FAILED None\tNone "},
	} {
		text, err := Shipped.ReadFile("profiles/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		p, err := Decode(file, file, text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		(&Scheduler{Profile: p}).read(test.key, test.answer, func(l cluster.Listed) {
			got = append(got, fmt.Sprintf("%s %s %s %s", l.ID, l.Token, l.Said, l.Node))
		})
		if want := strings.Split(test.want, ";"); !slices.Equal(got, want) {
			t.Errorf("%s: got  %q\nwant %q", file, got, want)
		}
	}
}

// Whatever a profile says, it is read or refused; what is read can be filled in, and no value makes a word more.
func FuzzDecode(f *testing.F) {
	files, _ := fs.Glob(Shipped, "profiles/*.yaml")
	for _, file := range files {
		text, _ := Shipped.ReadFile(file)
		f.Add(string(text), "1 run e3-abcdefghijkl\n")
	}
	f.Add(toy, "job 1\n")
	f.Fuzz(func(t *testing.T, text, answer string) {
		p, err := Decode("x", "x.yaml", []byte(text))
		if err != nil {
			return
		}
		words := map[int]bool{}
		for _, value := range []string{"v", "a 'b' \"c\" ${token}\n$(id) \\"} {
			b := &cluster.Batch{Token: "tok", Name: value, Script: value, Logs: value, Jobs: []queue.Job{job}}
			list, err := p.texts["submit"].words((&Options{Args: []string{"-x"}}).values(p, b))
			if err != nil || len(list) == 0 {
				t.Fatalf("its command cannot be filled in: %q, %v", list, err)
			}
			words[len(list)] = true
		}
		if len(words) != 1 {
			t.Errorf("a value is more than a word: %v", words)
		}
		s := &Scheduler{Profile: p}
		for _, key := range []string{"submitted", "listed", "explained"} {
			if p.patterns[key] != nil {
				s.read(key, answer, func(cluster.Listed) {})
			}
		}
	})
}
