package slurm

import (
	"fmt"
	"strconv"
	"strings"

	"e3/executions"
)

// squeueFormat selects the fields of listed. The comment, which may contain anything, comes last.
const squeueFormat = "%A|%F|%K|%T|%N|%r|%k"

// listed is a line of squeue: a job, or a task of an array.
type listed struct {
	array  string // Slurm's id of the submission
	index  int    // in the array; 0 without an array
	state  string
	nodes  string
	reason string
	token  string // of the submission
}

// parseListed reads a line of squeue. ok is false unless a [Submitter] submitted the job.
func parseListed(line string) (l listed, ok bool) {
	fields := strings.SplitN(strings.TrimRight(line, "\r\n"), "|", 7)
	if len(fields) != 7 {
		return l, false
	}
	// The reason before it may contain a | too; the token follows the last one.
	last := fields[6][strings.LastIndexByte(fields[6], '|')+1:]
	token, ok := strings.CutPrefix(strings.TrimSpace(last), commentPrefix)
	if !ok || !isNumber(fields[1]) {
		return l, false
	}
	l = listed{array: fields[1], state: fields[3], nodes: fields[4], reason: fields[5], token: token}
	if fields[2] != "N/A" && fields[2] != "" {
		n, err := strconv.Atoi(fields[2])
		if err != nil || n < 0 {
			return l, false
		}
		l.index = n
	}
	return l, l.state != ""
}

// shown is a job as printed by "scontrol --oneliner show job", or the pending tasks of an array, which share a line.
type shown struct {
	tasks  string // of an array: "3", or "0,2-9%4"; else ""
	state  string
	reason string
	node   string
	exit   string // <code>:<signal>
}

// parseShown reads a line of scontrol. Values may have spaces; the first occurrence of a field counts. Fields that
// users control follow the ones read here, except the name, which has no spaces ([submission.name]).
func parseShown(line string) (x shown, ok bool) {
	fields := make(map[string]string)
	for word := range strings.FieldsSeq(line) {
		name, value, ok := strings.Cut(word, "=")
		if _, there := fields[name]; ok && !there {
			fields[name] = value
		}
	}
	x = shown{tasks: fields["ArrayTaskId"], state: fields["JobState"], reason: fields["Reason"], node: fields["BatchHost"], exit: fields["ExitCode"]}
	return x, isNumber(fields["JobId"]) && x.state != ""
}

// indexes lists the tasks of a line, of an array of n; a job without an array is the first. Unreadable parts are
// skipped: of many tasks Slurm prints only some, followed by "...".
func (x *shown) indexes(n int) (list []int) {
	if x.tasks == "" {
		return []int{0}
	}
	tasks, _, _ := strings.Cut(x.tasks, "%") // drops the limit of concurrent tasks
	for part := range strings.SplitSeq(tasks, ",") {
		span, by, stepped := strings.Cut(part, ":")
		from, to, several := strings.Cut(span, "-")
		if !several {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, errLast := strconv.Atoi(to)
		step, errStep := 1, error(nil)
		if stepped {
			step, errStep = strconv.Atoi(by)
		}
		if err != nil || errLast != nil || errStep != nil || first < 0 || step < 1 {
			continue
		}
		for i := first; i <= min(last, n-1); i += min(step, n) {
			list = append(list, i)
		}
	}
	return list
}

// maxArraySize reads the bound of an array's indexes from "scontrol show config"; 1 if there are no arrays.
func maxArraySize(config string) int {
	for line := range strings.Lines(config) {
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.TrimSpace(name) != "MaxArraySize" {
			continue
		}
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
			return max(n, 1)
		}
	}
	return 1
}

// parseSubmitted reads the output of "sbatch --parsable": the id, and the cluster's name if there are several. Site
// plugins may print lines before.
func parseSubmitted(out string) (id string, ok bool) {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	id, _, _ = strings.Cut(strings.TrimSpace(lines[len(lines)-1]), ";")
	return id, isNumber(id)
}

func isNumber(s string) bool {
	return s != "" && len(s) < 20 && strings.Trim(s, "0123456789") == ""
}

// ended says how a job in a state has ended; "" if it has not.
func ended(state string) (reason executions.Reason, how string) {
	if i := strings.IndexAny(state, "+ "); i >= 0 { // drops flags, and the author of a cancellation
		state = state[:i]
	}
	switch state {
	case "CANCELLED":
		return executions.ReasonCancelled, "was cancelled"
	case "TIMEOUT":
		return executions.ReasonTimeout, "was ended at its time limit"
	case "DEADLINE":
		return executions.ReasonTimeout, "was ended at its deadline"
	case "OUT_OF_MEMORY":
		return executions.ReasonOOM, "was ended because memory ran out"
	case "NODE_FAIL":
		return executions.ReasonLost, "was lost with its node"
	case "BOOT_FAIL":
		return executions.ReasonLost, "was lost because its node did not boot"
	case "PREEMPTED":
		return executions.ReasonLost, "was ended in favour of another"
	case "REVOKED":
		return executions.ReasonLost, "was revoked"
	case "COMPLETED":
		return executions.ReasonLost, "has ended before its task"
	case "FAILED":
		return executions.ReasonLost, "has failed"
	}
	return "", ""
}

// neverRuns tells whether a pending job waits for action by a person.
func neverRuns(reason string) bool {
	reason = strings.ToLower(strings.ReplaceAll(reason, "_", " "))
	switch reason {
	case "badconstraints", "partitionconfig", "partitionnodelimit", "partitiontimelimit", "invalidaccount", "invalidqos", "accountnotallowed",
		"qosnotallowed", "jobhelduser", "jobheldadmin", "dependencyneversatisfied", "reservationdeleted", "jobholdmaxrequeue", "maxmemperlimit",
		"launch failed requeued held", "job requeued in held state":
		return true
	}
	return (strings.HasPrefix(reason, "qos") || strings.HasPrefix(reason, "assoc")) && strings.Contains(reason, "perjob")
}

// failure says how a job's script failed, by Slurm's form of its exit code.
func failure(exit string) (reason executions.Reason, how string) {
	code, signal, _ := strings.Cut(exit, ":")
	switch {
	case signal != "" && signal != "0" && isNumber(signal):
		return executions.ReasonLost, fmt.Sprintf("was ended by signal %s", signal)
	case code == "126" || code == "127":
		return executions.ReasonStart, "could not start e3 on its node"
	case isNumber(code) && code != "0":
		return executions.ReasonLost, fmt.Sprintf("failed: e3 worker exited with code %s", code)
	}
	return executions.ReasonLost, "has failed"
}
