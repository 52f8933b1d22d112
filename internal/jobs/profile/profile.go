// Package profile has any scheduler with commands for a terminal as a [cluster.Scheduler]: a profile is a YAML file with
// those commands, and patterns that read their answers (doc/executors.md). Some are shipped.
package profile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/jobs/cluster"
	"e3/internal/jobs/queue"
	"e3/internal/parallel"
)

// Options say how the scheduler is asked.
type Options struct {
	Args      []string          // ${args}
	Resources map[string]string // its names for resources ([cluster.Resources])
	Queue     string            // ${queue} of tasks that name none; "" has none
	Program   string            // ${program}
	// Array, Index and Unseen are those of [cluster.Traits]; 0: one job, and 10 s.
	Array  int
	Index  string
	Unseen time.Duration
	Env    []string // of its commands; nil: this process's
	// Told is told of each command and its answer; nil: nothing is.
	Told func(words []string, stdin, answer string, err error)
}

// Scheduler is the scheduler of a profile.
type Scheduler struct {
	*Profile
	cluster.Commands
	o Options
}

var _ cluster.Scheduler = (*Scheduler)(nil)

// Scheduler returns the scheduler. Its commands must be on this machine.
func (p *Profile) Scheduler(o Options) (*Scheduler, error) {
	for name := range p.own {
		if o.values(p, nothing).of[name] == "" {
			return nil, fmt.Errorf("%s: the value of %q is empty: make the profile your own (e3 executor show %s), and write it there", p.file, name, p.Name)
		}
	}
	if len(o.Args) > 0 && !p.texts["submit"].has("args") {
		return nil, fmt.Errorf("%s: submit has no ${args}, where --executor-args could go", p.file)
	}
	for _, key := range []string{"submit", "status", "explain", "cancel"} {
		if words, _ := cluster.Words(string(p.texts[key])); len(words) > 0 { // explain is optional
			if _, err := exec.LookPath(words[0]); err != nil {
				return nil, fmt.Errorf("submit to %s: its commands are not on this machine: %w (run e3 start where you would type %s)", p.Name, err, words[0])
			}
		}
	}
	o.Unseen, o.Array = cmp.Or(o.Unseen, 10*time.Second), max(o.Array, 1)
	if o.Env == nil {
		o.Env = os.Environ()
	}
	return &Scheduler{p, cluster.Commands{Env: o.Env, Timeout: p.timeout, Told: o.Told,
		Temporary: p.patterns["messages.temporary"], Limit: p.patterns["messages.limit"], Unknown: p.patterns["messages.unknown"]}, o}, nil
}

// nothing is a batch for commands that need none.
var nothing = &cluster.Batch{Jobs: []queue.Job{{}}}

// Placeholders that may have any characters. Those from package files have none that a scheduler could take for more than a name.
var (
	free  = []string{"name", "title", "script", "script_file", "user", "logs", "program"}
	plain = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:=/@-]*$`)
	other = regexp.MustCompile(`[^A-Za-z0-9._-]`)
	units = map[string]float64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
)

func count(f float64) string {
	if f == 0 {
		return ""
	}
	return strconv.FormatInt(cluster.Ceil(f), 10)
}

// values are those of placeholders for a batch.
func (o *Options) values(p *Profile, b *cluster.Batch) *values {
	j := &b.Jobs[0]
	name := other.ReplaceAllString(b.Name, "-")
	cores, limit := float64(max(1, cluster.Ceil(j.Policy.CPU))), cluster.Time(j)
	v := &values{lists: map[string][]string{"${args}": o.Args}, labels: slices.Compact(slices.Sorted(slices.Values(j.Labels))), of: map[string]string{
		"token": b.Token, "name": name[:min(len(name), 40)], "title": b.Name, "script": b.Script, "logs": b.Logs, "program": o.Program,
		"script_file": cluster.ScriptFile(b.Logs, b.Token), "queue": cmp.Or(j.Policy.Queue, o.Queue), "last": count(float64(len(b.Jobs) - 1)),
		"user": os.Getenv("USER"), "uid": strconv.Itoa(os.Getuid()), "cores": count(cores),
		"time:s": count(limit.Seconds()), "time:m": count(limit.Minutes()), "time:hms": "", "labels": "", "resources": "",
	}}
	if u, err := user.Current(); err == nil {
		v.of["user"] = u.Username
	}
	for unit, size := range units {
		v.of["memory:"+unit], v.of["core_memory:"+unit] = count(cluster.Memory(j)/size), count(cluster.Memory(j)/size/cores)
	}
	if s := cluster.Ceil(limit.Seconds()); s > 0 {
		v.of["time:hms"] = fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	for _, r := range j.Policy.Resources {
		if called, ok := o.Resources[r.Name]; ok {
			r.Name = called
		}
		if r.Name != "" {
			v.resources = append(v.resources, r)
		}
	}
	slices.SortFunc(v.resources, func(a, b record.Amount) int { return cmp.Compare(a.Name, b.Name) })
	for i, r := range v.resources {
		v.of[fmt.Sprint("resource.", i)], v.of[fmt.Sprint("amount.", i)], v.of["resources"] = r.Name, count(r.Value), r.Name
	}
	for i, label := range v.labels {
		v.of[fmt.Sprint("label.", i)], v.of["labels"] = label, label
	}
	for name, text := range p.own {
		v.of[name] = cmp.Or(v.of[name], text)
	}
	return v
}

// Traits implements [cluster.Scheduler].
func (s *Scheduler) Traits() cluster.Traits {
	return cluster.Traits{Name: s.Name, Array: s.o.Array, Index: s.o.Index, AtOnce: atOnce, Unseen: s.o.Unseen}
}

const atOnce = 4

// Demands implements [cluster.Scheduler]: it is the command, without what differs between batches. It refuses what the profile
// has no line for, and names that are more than that.
func (s *Scheduler) Demands(j *queue.Job) ([]string, error) {
	v := s.o.values(s.Profile, &cluster.Batch{Token: "…", Name: "…", Script: "…", Logs: "…", Jobs: []queue.Job{*j}})
	check := func(what, name string) error {
		has := s.texts["submit"] + s.texts["input"]
		switch {
		case what != "queue" && !has.has(what) && !has.has(what+"s"):
			return fmt.Errorf("%s %q cannot be asked of %s: its profile has no ${%[1]s}; --executor-resource %[2]s= does not ask for a resource", what, name, s.Name)
		case !plain.MatchString(name):
			return fmt.Errorf("%s %q cannot be asked of %s: a name there has letters, digits, and _ . : = / @ -", what, name, s.Name)
		}
		return nil
	}
	var errs []error
	for _, label := range v.labels {
		errs = append(errs, check("label", label))
	}
	for _, r := range v.resources {
		errs = append(errs, check("resource", r.Name))
	}
	if j.Policy.Queue != "" {
		errs = append(errs, check("queue", j.Policy.Queue))
	}
	words, err := s.texts["submit"].words(v)
	return words, errors.Join(append(errs, err)...)
}

// run runs a command of the profile. What submit has in its environment becomes the job's.
func (s *Scheduler) run(ctx context.Context, key string, v *values) (string, error) {
	words, err := s.texts[key].words(v)
	switch {
	case err != nil:
		return "", err
	case key == "submit":
		return s.Run(ctx, s.texts["input"].text(v), words)
	}
	return s.Run(ctx, "", words, "LC_ALL=C")
}

// Submit implements [cluster.Scheduler].
func (s *Scheduler) Submit(ctx context.Context, b *cluster.Batch) (id string, err error) {
	if s.texts["submit"].has("script_file") {
		if b.Logs == "" {
			return "", errors.New("${script_file} wants a folder that the nodes share: a repository in one, or E3_CACHE_DIR")
		}
		if err := os.WriteFile(cluster.ScriptFile(b.Logs, b.Token), []byte(b.Script), 0o700); err != nil {
			return "", err
		}
	}
	out, err := s.run(ctx, "submit", s.o.values(s.Profile, b))
	if err != nil {
		return "", err
	}
	pattern := s.patterns["submitted"]
	for _, m := range pattern.FindAllStringSubmatch(out, -1) {
		id = m[pattern.SubexpIndex("id")]
	}
	if id == "" { // it may have taken effect, as after a lost answer
		err = fmt.Errorf("%w: submitted finds no id in %.200q", cluster.ErrTemporary, out)
	}
	return id, err
}

// List implements [cluster.Scheduler].
func (s *Scheduler) List(ctx context.Context, visit func(cluster.Listed)) error {
	out, err := s.run(ctx, "status", s.o.values(s.Profile, nothing))
	if none, failed := s.patterns["messages.none"], (*cluster.CommandError)(nil); none != nil && errors.As(err, &failed) && none.MatchString(failed.Text) {
		return nil
	}
	if err == nil {
		s.read("listed", out, visit)
	}
	return err
}

// Explain implements [cluster.Scheduler].
func (s *Scheduler) Explain(ctx context.Context, id, token string, visit func(cluster.Listed)) error {
	if s.texts["explain"] == "" {
		return cluster.ErrUnknown
	}
	v := s.o.values(s.Profile, nothing)
	v.of["id"], v.of["token"] = id, token
	out, err := s.run(ctx, "explain", v)
	if err == nil {
		s.read("explained", out, visit)
	}
	return err
}

// Cancel implements [cluster.Scheduler].
func (s *Scheduler) Cancel(ctx context.Context, ids []string) error {
	most := 100
	if s.texts["cancel"].has("id") {
		most = 1
	}
	calls := slices.Collect(slices.Chunk(ids, most))
	errs := make([]error, len(calls))
	parallel.AtMost(ctx, atOnce, len(calls), func(ctx context.Context, k int) error {
		v := s.o.values(s.Profile, nothing)
		v.of["id"], v.lists["${ids}"] = calls[k][0], calls[k]
		if _, err := s.run(ctx, "cancel", v); !errors.Is(err, cluster.ErrUnknown) {
			errs[k] = err
		}
		return nil
	})
	return errors.Join(errs...)
}

// ends say how a job has ended that is in one of these states.
var ends = map[string]cluster.Listed{
	"cancelled": {Reason: executions.ReasonCancelled, How: "was cancelled"},
	"timeout":   {Reason: executions.ReasonTimeout, How: "was ended at its time limit"},
	"oom":       {Reason: executions.ReasonOOM, How: "was ended because memory ran out"},
	"lost":      {Reason: executions.ReasonLost, How: "was lost"},
	"refused":   {Reason: executions.ReasonStart, How: "was refused"},
	"failed":    {Reason: executions.ReasonLost, How: "has failed"},
	"done":      {Reason: executions.ReasonLost, How: "has ended before its task"},
}

// Kind is the state of the profile that the scheduler's word for one means; "" if none does.
func (p *Profile) Kind(said string) string {
	i := slices.IndexFunc(states, func(kind string) bool {
		r := p.patterns["states."+kind]
		return r != nil && r.MatchString(said)
	})
	if i < 0 {
		return ""
	}
	return states[i]
}

// read visits what a pattern finds in an answer.
func (s *Scheduler) read(key, answer string, visit func(cluster.Listed)) {
	r := s.patterns[key]
	for _, m := range r.FindAllStringSubmatch(answer, -1) {
		group := func(name string) string {
			return strings.TrimSpace(append(m, "")[(r.SubexpIndex(name)+len(m)+1)%(len(m)+1)])
		}
		said := strings.TrimSpace(group("state") + " " + group("reason"))
		kind := s.Kind(said)
		if said == "" && group("exit") != "" {
			kind = "done" // only an ended job has an exit code
		}
		l := ends[kind]
		l.ID, l.Token, l.Node, l.Said = group("id"), group("token"), group("node"), said
		l.Index, _ = strconv.Atoi(group("index"))
		switch _, ended := ends[kind]; {
		case kind == "held":
			l.Held = said
		case kind == "ending":
			l.State = cluster.Ending
		case kind == "failed" && s.texts["explain"] != "":
			l.State = cluster.Failed
		case ended:
			l.State = cluster.Ended
		}
		code, _ := strconv.Atoi(group("exit"))
		signal, _ := strconv.Atoi(group("signal"))
		for _, base := range []int{256, 128} { // as shells and PBS say that a signal has ended it
			if code > base && code <= base+64 {
				code, signal = 0, code-base
			}
		}
		if (kind == "failed" || kind == "done") && (code > 0 || signal > 0) {
			l.Reason, l.How = cluster.Exited(code, signal)
		} else if kind == "lost" || kind == "refused" {
			l.How += ": " + said
		}
		visit(l)
	}
}
