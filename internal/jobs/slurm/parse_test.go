package slurm

import (
	"os"
	"slices"
	"strings"
	"testing"

	"e3/executions"
)

func readLines(t testing.TB, name string) (all []string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// The files of testdata were printed by Slurm 22.05 for jobs of all kinds, one of them not e3's.
func TestParseListed(t *testing.T) {
	var got []listed
	for _, line := range readLines(t, "testdata/squeue.txt") {
		if l, ok := parseListed(line); ok {
			got = append(got, l)
		}
	}
	want := []listed{
		{"1", 1, "CANCELLED", "n2", "None", "TOKENA"},
		{"2", 0, "FAILED", "n2", "NonZeroExitCode", "TOKENB"},
		{"3", 0, "FAILED", "n2", "NonZeroExitCode", "TOKENC"},
		{"4", 0, "FAILED", "n2", "JobLaunchFailure", "TOKEND"},
		{"7", 0, "FAILED", "", "BadConstraints", "TOKENF"},
		{"1", 2, "PENDING", "", "Priority", "TOKENA"},
		{"1", 3, "PENDING", "", "Priority", "TOKENA"},
		{"4", 1, "PENDING", "", "Priority", "TOKEND"},
		{"8", 0, "PENDING", "", "Resources", "TOKENG"},
		{"9", 0, "PENDING", "", "BeginTime", "TOKENH"},
		{"9", 1, "PENDING", "", "BeginTime", "TOKENH"},
		{"9", 2, "PENDING", "", "BeginTime", "TOKENH"},
		{"6", 0, "PENDING", "", "JobHeldUser", "TOKENE"},
		{"1", 0, "RUNNING", "n1", "None", "TOKENA"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestParseShown(t *testing.T) {
	var got []shown
	for _, line := range readLines(t, "testdata/scontrol.txt") {
		if x, ok := parseShown(line); ok {
			got = append(got, x)
		}
	}
	want := []shown{
		{"2-3", "PENDING", "Priority", "", "0:0"},
		{"1", "CANCELLED", "None", "n2", "0:15"},
		{"0", "RUNNING", "None", "n1", "0:0"},
		{"", "FAILED", "NonZeroExitCode", "n2", "3:0"},
		{"", "FAILED", "NonZeroExitCode", "n2", "127:0"},
		{"1", "PENDING", "Priority", "", "0:0"},
		{"0", "FAILED", "JobLaunchFailure", "n2", "0:9"},
		{"", "FAILED", "None", "n2", "0:0"}, // a name that lies, which none of ours can
		{"", "PENDING", "JobHeldUser", "", "0:0"},
		{"", "FAILED", "BadConstraints", "", "0:1"},
		{"", "PENDING", "Resources", "", "0:0"},
		{"0-2", "PENDING", "BeginTime", "", "0:0"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestShownTasks(t *testing.T) {
	for text, want := range map[string][]int{
		"": {0}, "3": {3}, "2-3": {2, 3}, "0,2-4%4": {0, 2, 3, 4}, "1-5:2": {1, 3, 5}, "4,6-99": {4, 6, 7, 8, 9}, "10": nil,
		"1,3-...": {1}, "x": nil, "-1": nil, "1-3:0": nil, "0-9:9223372036854775807": {0},
	} {
		if got := (&shown{tasks: text}).indexes(10); !slices.Equal(got, want) {
			t.Errorf("tasks %q of 10: got %v, want %v", text, got, want)
		}
	}
}

func FuzzParseListed(f *testing.F) {
	for _, line := range readLines(f, "testdata/squeue.txt") {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		l, ok := parseListed(line)
		if ok && (l.index < 0 || !isNumber(l.array) || l.state == "" || !strings.Contains(line, commentPrefix+l.token)) {
			t.Errorf("parseListed(%q): got %+v", line, l)
		}
	})
}

func FuzzParseShown(f *testing.F) {
	for _, line := range readLines(f, "testdata/scontrol.txt") {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		x, ok := parseShown(line)
		if ok && x.state == "" {
			t.Errorf("parseShown(%q): got %+v", line, x)
		}
		if list := x.indexes(10); slices.ContainsFunc(list, func(i int) bool { return i < 0 || i >= 10 }) {
			t.Errorf("parseShown(%q): tasks %v of 10", line, list)
		}
		if reason, how := failure(x.exit); reason == "" || how == "" {
			t.Errorf("failure(%q): got %q, %q", x.exit, reason, how)
		}
	})
}

func FuzzParseSubmitted(f *testing.F) {
	for _, out := range []string{"12\n", "12;cluster\n", "site policy: be kind\n12\n", "", "x", "1 2"} {
		f.Add(out)
	}
	f.Fuzz(func(t *testing.T, out string) {
		if id, ok := parseSubmitted(out); ok && !isNumber(id) {
			t.Errorf("parseSubmitted(%q): got %q", out, id)
		}
	})
}

func TestParseSubmitted(t *testing.T) {
	for out, want := range map[string]string{"12\n": "12", "12;cluster\n": "12", "be kind\n 13\n": "13", "": "", "Submitted batch job 12\n": "", "-1": ""} {
		id, ok := parseSubmitted(out)
		if ok != (want != "") || ok && id != want {
			t.Errorf("parseSubmitted(%q): got %q, %t, want %q", out, id, ok, want)
		}
	}
}

func TestMaxArraySize(t *testing.T) {
	for config, want := range map[string]int{"A = 1\nMaxArraySize            = 1001\n": 1001, "": 1, "MaxArraySize = 0": 1, "MaxArraySize = x": 1} {
		if got := maxArraySize(config); got != want {
			t.Errorf("maxArraySize(%q): got %d, want %d", config, got, want)
		}
	}
}

func TestEnded(t *testing.T) {
	tests := map[string]executions.Reason{
		"CANCELLED": executions.ReasonCancelled, "CANCELLED by 7": executions.ReasonCancelled, "TIMEOUT": executions.ReasonTimeout,
		"DEADLINE": executions.ReasonTimeout, "OUT_OF_MEMORY": executions.ReasonOOM, "NODE_FAIL": executions.ReasonLost,
		"PREEMPTED": executions.ReasonLost, "COMPLETED": executions.ReasonLost, "FAILED": executions.ReasonLost, "FAILED+STAGE_OUT": executions.ReasonLost,
		"PENDING": "", "RUNNING": "", "COMPLETING": "", "REQUEUED": "", "SUSPENDED": "", "": "",
	}
	for state, want := range tests {
		if got, how := ended(state); got != want || (how == "") != (want == "") {
			t.Errorf("ended(%q): got %q, %q, want %q", state, got, how, want)
		}
	}
}

func TestFailure(t *testing.T) {
	for exit, want := range map[string]executions.Reason{
		"127:0": executions.ReasonStart, "126:0": executions.ReasonStart, "3:0": executions.ReasonLost, "0:9": executions.ReasonLost, "": executions.ReasonLost,
	} {
		if got, _ := failure(exit); got != want {
			t.Errorf("failure(%q): got %q, want %q", exit, got, want)
		}
	}
}

func TestNeverRuns(t *testing.T) {
	for reason, want := range map[string]bool{
		"BadConstraints": true, "PartitionTimeLimit": true, "JobHeldUser": true, "launch_failed_requeued_held": true, "QOSMaxMemoryPerJob": true,
		"AssocMaxCpuPerJobLimit": true, "Priority": false, "Resources": false, "None": false, "QOSMaxJobsPerUserLimit": false, "BeginTime": false,
	} {
		if got := neverRuns(reason); got != want {
			t.Errorf("neverRuns(%q): got %t, want %t", reason, got, want)
		}
	}
}
