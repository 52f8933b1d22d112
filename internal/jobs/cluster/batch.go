package cluster

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"e3/executions"
	"e3/internal/jobs/queue"
)

// A Batch is what a scheduler starts as one: a job, or an array of them.
type Batch struct {
	Token   string      // its own, of a-z and 2-7: finds it in the scheduler's list
	Name    string      // for display: e3:<workspace>.<task>, printable and without spaces
	Jobs    []queue.Job // in the order of their indexes; not empty
	Demands []string    // of each of its jobs ([Scheduler.Demands])
	Script  string      // of /bin/sh; no scheduler reads options from it
	Logs    string      // a folder that nodes may share; "": none
}

// tokenLength is short enough for a job's name: PBS takes 15 characters.
const tokenLength = 12

// NewToken returns the token of another batch.
func NewToken() string { return strings.ToLower(rand.Text()[:tokenLength]) }

// batches groups jobs, in their order, by workspace and demands. It ends those that cannot be submitted. The caller holds the
// lock.
func (s *Submitter) batches(jobs []*job, most int) (subs []*submission) {
	open := make(map[string]*submission)
	for _, j := range jobs {
		demands, err := s.scheduler.Demands(&j.Job)
		if err != nil {
			s.end(j, executions.ReasonStart, err.Error())
			continue
		}
		key := j.Workspace + "\x00" + strings.Join(demands, "\x00")
		x := open[key]
		if x == nil || len(x.jobs) == most {
			x = &submission{Batch: Batch{Token: NewToken(), Demands: demands}}
			open[key], s.submissions[x.Token] = x, x
			subs = append(subs, x)
		}
		x.add(j)
	}
	return subs
}

// add puts a job into the submission.
func (x *submission) add(j *job) {
	j.of, j.index = x, len(x.jobs)
	x.jobs, x.Jobs = append(x.jobs, j), append(x.Jobs, j.Job)
	x.unfinished++
}

// maxName bounds the name of a batch.
const maxName = 100

// unsafe are characters that other programs parse, and that Slurm expands in file names.
var unsafe = regexp.MustCompile(`[^!-~]|[=|%\\"']`)

// name is e3:<workspace>.<task>, or the common prefix of several.
func (b *Batch) name() string {
	name := ""
	for i := range b.Jobs {
		own := "e3:" + b.Jobs[i].Workspace + "." + b.Jobs[i].Task
		if i == 0 {
			name = own
		}
		for !strings.HasPrefix(own, name) {
			name = name[:len(name)-1]
		}
	}
	name = unsafe.ReplaceAllString(name, "_")
	return cmp.Or(name[:min(len(name), maxName)], "e3")
}

// script returns the script. It has no line from which a scheduler reads options: those end at the first command.
func (b *Batch) script(o *Options, index string) string {
	var s strings.Builder
	s.WriteString("#!/bin/sh\nset -u\nindex=0\n")
	if index != "" {
		fmt.Fprintf(&s, "index=${%s:-0}\n", index)
	}
	s.WriteString("case $index in\n")
	for i := range b.Jobs {
		fmt.Fprintf(&s, "%d) job=%s ;;\n", i, Quote(b.Jobs[i].Ref()))
	}
	s.WriteString("*) exit 64 ;;\nesac\n")
	if o.Logs != "" {
		fmt.Fprintf(&s, "if [ -d %s ]; then exec >>%s.\"$index\" 2>&1; fi\n", Quote(o.Logs), Quote(filepath.Join(o.Logs, b.Token)))
	}
	fmt.Fprintf(&s, "exec %s worker %s --job \"$job\"", Quote(o.Program), Quote(o.Repo))
	for _, arg := range o.Worker {
		s.WriteString(" " + Quote(arg))
	}
	s.WriteString("\n")
	return s.String()
}

// Quote quotes a word for the shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

const (
	maxTail = 2 << 10 // bytes of a log in a message
	tailLen = 5       // lines
)

// ScriptFile is where a scheduler that wants a file finds the script of a batch, in the folder of its logs.
func ScriptFile(logs, token string) string { return filepath.Join(logs, token+".sh") }

// log is the file for what the script of a job says.
func (o *Options) log(token string, index int) string {
	return filepath.Join(o.Logs, fmt.Sprintf("%s.%d", token, index))
}

// readLog returns the end of what a script has said, as one line; "" if that is nothing.
func (o *Options) readLog(token string, index int) string {
	f, err := os.Open(o.log(token, index))
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	text := make([]byte, min(info.Size(), maxTail))
	n, _ := f.ReadAt(text, info.Size()-int64(len(text)))
	lines := strings.FieldsFunc(strings.ToValidUTF8(string(text[:n]), "\uFFFD"), func(r rune) bool { return r == '\n' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines[max(0, len(lines)-tailLen):], "; ")
}

// dropLog removes what is kept of a job.
func (o *Options) dropLog(token string, index int) {
	if o.Logs != "" {
		os.Remove(o.log(token, index))
		os.Remove(ScriptFile(o.Logs, token))
	}
}
