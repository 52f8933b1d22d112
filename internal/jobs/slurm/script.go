package slurm

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"e3/internal/jobs/queue"
)

// Needs of the worker itself, in addition to the command's.
const (
	extraMemory = 64 << 20
	extraTime   = 5 * time.Minute
	bytesPerSec = 20 << 20 // a safe lower bound of the rate at which inputs arrive
)

// features and gres match names from package files that are safe in Slurm's expressions.
var (
	features = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:=-]*$`)
	gres     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:/-]*$`)
)

// demands returns the arguments of sbatch for a job's needs. Jobs with equal demands share an array.
func (o *Options) demands(j *queue.Job) ([]string, error) {
	p := &j.Policy
	args := []string{fmt.Sprintf("--cpus-per-task=%d", max(1, ceil(p.CPU)))}
	if p.Memory > 0 {
		const unit = 1 << 20
		args = append(args, fmt.Sprintf("--mem=%dM", ceil(float64(p.Memory)/unit+extraMemory/unit)))
	}
	if p.Timeout > 0 {
		limit := p.Timeout + extraTime + time.Duration(j.InputBytes/bytesPerSec)*time.Second
		args = append(args, fmt.Sprintf("--time=%d", ceil(max(limit, p.Timeout).Minutes()))) // the sum may overflow a Duration
	}
	var asked []string
	for _, r := range p.Resources {
		name, mapped := o.Resources[r.Name]
		if !mapped {
			name = r.Name
		}
		if name == "" {
			continue
		}
		if !gres.MatchString(name) {
			return nil, fmt.Errorf("resource %q cannot be asked of Slurm by this name: say which gres it is with --slurm-resource", r.Name)
		}
		asked = append(asked, fmt.Sprintf("%s:%d", name, ceil(r.Value)))
	}
	if len(asked) > 0 {
		slices.Sort(asked)
		args = append(args, "--gres="+strings.Join(asked, ","))
	}
	labels := slices.Clone(j.Labels)
	slices.Sort(labels)
	for _, label := range labels {
		if !features.MatchString(label) {
			return nil, fmt.Errorf("label %q cannot be asked of Slurm: a feature's name has letters, digits, and _ . : = -", label)
		}
	}
	if len(labels) > 0 {
		args = append(args, "--constraint="+strings.Join(slices.Compact(labels), "&"))
	}
	return args, nil
}

// ceil rounds up, within what Slurm accepts.
func ceil(f float64) int64 {
	return int64(min(math.Ceil(max(f, 0)), math.MaxInt32))
}

// groups combines jobs into submissions, one call of sbatch each, in their order. refused are those that cannot be
// submitted.
func (o *Options) groups(jobs []*job, most int) (subs []*submission, refused map[*job]error) {
	open := make(map[string]*submission)
	refused = make(map[*job]error)
	for _, j := range jobs {
		args, err := o.demands(&j.Job)
		if err != nil {
			refused[j] = err
			continue
		}
		key := j.Workspace + "\x00" + strings.Join(args, "\x00")
		x := open[key]
		if x == nil || len(x.jobs) == most {
			x = &submission{token: rand.Text(), args: args}
			open[key] = x
			subs = append(subs, x)
		}
		x.add(j)
	}
	return subs, refused
}

// add puts a job into the submission.
func (x *submission) add(j *job) {
	j.of, j.index = x, len(x.jobs)
	x.jobs = append(x.jobs, j)
	x.unfinished++
}

// split halves a submission that was not made yet.
func (x *submission) split() (first, second *submission) {
	first, second = &submission{token: rand.Text(), args: x.args}, &submission{token: rand.Text(), args: x.args}
	for i, j := range x.jobs {
		if i < len(x.jobs)/2 {
			first.add(j)
		} else {
			second.add(j)
		}
	}
	return first, second
}

// comment is the job comment, which carries the token.
func (x *submission) comment() string { return commentPrefix + x.token }

const commentPrefix = "e3 "

// sbatch returns the arguments of sbatch.
func (x *submission) sbatch(o *Options) []string {
	args := append([]string{"--parsable", "--requeue", "--nodes=1", "--ntasks=1", "--chdir=/", "--output=/dev/null"}, x.args...)
	args = append(args, "--job-name="+x.named)
	args = append(args, o.Args...)
	args = append(args, "--comment="+x.comment())
	if n := len(x.jobs); n > 1 {
		args = append(args, fmt.Sprintf("--array=0-%d", n-1))
	}
	return args
}

// maxName bounds the name of a Slurm job.
const maxName = 100

// name is the name in squeue: e3:<workspace>.<task>, or the common prefix of several.
func (x *submission) name() string {
	name := ""
	for i, j := range x.jobs {
		own := "e3:" + j.Workspace + "." + j.Task
		if i == 0 {
			name = own
			continue
		}
		n := 0
		for n < min(len(name), len(own)) && name[n] == own[n] {
			n++
		}
		name = name[:n]
	}
	plain := func(r rune) rune {
		// Other programs parse some of these characters, and Slurm expands some in file names.
		if r > ' ' && r <= '~' && !strings.ContainsRune(`=|%\"'`, r) {
			return r
		}
		return '_'
	}
	name = strings.Map(plain, name)
	return cmp.Or(name[:min(len(name), maxName)], "e3")
}

// script returns the batch script. It has no line from which sbatch reads options: those end at the first command.
func (x *submission) script(o *Options, logs *logs) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\nset -u\n")
	b.WriteString("case \"${SLURM_ARRAY_TASK_ID:-0}\" in\n")
	for i, j := range x.jobs {
		fmt.Fprintf(&b, "%d) job=%s ;;\n", i, quote(j.Ref()))
	}
	b.WriteString("*) exit 64 ;;\nesac\n")
	if logs != nil {
		dir := quote(logs.dir)
		fmt.Fprintf(&b, "if [ -d %s ]; then exec >>%s.\"${SLURM_ARRAY_TASK_ID:-0}\" 2>&1; fi\n", dir, quote(filepath.Join(logs.dir, x.token)))
	}
	fmt.Fprintf(&b, "exec %s worker %s --job \"$job\"", quote(o.Program), quote(o.Repo))
	for _, arg := range o.Worker {
		b.WriteString(" " + quote(arg))
	}
	b.WriteString("\n")
	return b.String()
}

// quote quotes a word for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
