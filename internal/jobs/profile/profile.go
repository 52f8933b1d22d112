// Package profile has any scheduler with commands as a [cluster.Scheduler]: a profile is a YAML file with those commands, and
// patterns that read their answers (doc/executors.md).
package profile

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"e3/executions"
	"e3/internal/jobs/cluster"
	"e3/internal/jobs/queue"
	"e3/internal/parallel"
)

// Shipped has the profiles that come with e3, as profiles/<name>.yaml.
//
//go:embed profiles
var Shipped embed.FS

// Options say how the scheduler is asked.
type Options struct {
	Args      []string          // ${args}
	Resources map[string]string // its names for resources; one that is called "" is not asked for
	Queue     string            // ${queue} of tasks that name none; "": it has no value
	Env       []string          // of its commands
	Told      func(words []string, input, answer string, err error)
}

// Scheduler is the scheduler of a profile, a [cluster.Scheduler].
type Scheduler struct {
	*Profile
	c cluster.Commands
	o Options
}

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
	if i := slices.IndexFunc(o.Args, func(arg string) bool { return p.matches("reserved", arg) }); i >= 0 {
		return nil, fmt.Errorf("argument %q of %s: e3 sets this itself", o.Args[i], p.Name)
	}
	words, _ := cluster.Words(string(p.texts["submit"]))
	if _, err := exec.LookPath(words[0]); err != nil {
		return nil, fmt.Errorf("submit to %s: its commands are not on this machine: %w (run e3 start where you would type %s)", p.Name, err, words[0])
	}
	o.Env = slices.DeleteFunc(slices.Clone(o.Env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return p.matches("unset", name) && !p.matches("keep", name)
	})
	return &Scheduler{p, cluster.Commands{Env: o.Env, Timeout: p.timeout, Told: o.Told,
		Temporary: p.patterns["messages.temporary"], Limit: p.patterns["messages.limit"], Unknown: p.patterns["messages.unknown"]}, o}, nil
}

// nothing is a batch for commands that need none.
var nothing = &cluster.Batch{Jobs: []queue.Job{{}}}

// Traits implements [cluster.Scheduler], as do the methods that follow.
func (s *Scheduler) Traits() cluster.Traits {
	return cluster.Traits{Name: s.Name, Array: s.array, Index: s.index}
}

// Demands implements [cluster.Scheduler]: the command, without what differs between batches. It refuses what the profile has
// no placeholder for, and names that are more than that.
func (s *Scheduler) Demands(j *queue.Job) ([]string, error) {
	v := s.o.values(s.Profile, &cluster.Batch{Token: "…", Name: "…", Script: "…", Logs: "…", Jobs: []queue.Job{*j}})
	asked := map[string][]string{"label": v.labels, "queue": {cmp.Or(j.Policy.Queue, "_")}}
	for _, r := range v.resources {
		asked["resource"] = append(asked["resource"], r.Name)
	}
	has := s.texts["submit"] + s.texts["input"]
	for _, what := range slices.Sorted(maps.Keys(asked)) {
		for _, name := range asked[what] {
			if what != "queue" && !has.has(what) && !has.has(what+"s") {
				err := fmt.Errorf("%s %q cannot be asked of %s: its profile has no ${%[1]s}", what, name, s.Name)
				if what == "resource" {
					err = fmt.Errorf("%w; --executor-resource %s= does not ask for it", err, name)
				}
				return nil, err
			}
			if !plain().MatchString(name) {
				return nil, fmt.Errorf("%s %q cannot be asked of %s by this name: one there has letters, digits, and _ . : = / @ -; --executor-resource names a resource", what, name, s.Name)
			}
		}
	}
	return s.texts["submit"].words(v)
}

// run runs a command of the profile. What submit has in its environment becomes the job's.
func (s *Scheduler) run(ctx context.Context, key string, v *values) (string, error) {
	words, err := s.texts[key].words(v)
	switch {
	case err != nil:
		return "", err
	case key == "submit":
		return s.c.Run(ctx, s.texts["input"].text(v), words)
	}
	return s.c.Run(ctx, "", words, "LC_ALL=C")
}

func (s *Scheduler) Submit(ctx context.Context, b *cluster.Batch) (id string, err error) {
	if s.texts["submit"].has("script_file") {
		if b.Logs == "" {
			return "", errors.New("${script_file} wants a folder for the scripts of jobs, that the nodes share")
		}
		if err := os.WriteFile(cluster.ScriptFile(b.Logs, b.Token), []byte(b.Script), 0o700); err != nil {
			return "", err
		}
	}
	out, err := s.run(ctx, "submit", s.o.values(s.Profile, b))
	if err != nil {
		return "", err
	}
	s.read("submitted", out, func(l cluster.Listed) { id = l.ID })
	if id == "" { // it may have taken effect, as after a lost answer
		err = fmt.Errorf("submitted finds no id in %.200q: %w", out, cluster.ErrTemporary)
	}
	return id, err
}

func (s *Scheduler) List(ctx context.Context, visit func(cluster.Listed)) error {
	out, err := s.run(ctx, "status", s.o.values(s.Profile, nothing))
	var failed *cluster.CommandError
	if errors.As(err, &failed) && s.matches("messages.none", failed.Text) {
		return nil
	}
	if err == nil {
		s.read("listed", out, visit)
	}
	return err
}

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

func (s *Scheduler) Cancel(ctx context.Context, ids []string) error {
	most := 100
	if s.texts["cancel"].has("id") {
		most = 1
	}
	calls := slices.Collect(slices.Chunk(ids, most))
	errs := make([]error, len(calls))
	parallel.AtMost(ctx, 4, len(calls), func(ctx context.Context, k int) error {
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
	"cancelled": {State: cluster.Ended, Reason: executions.ReasonCancelled, How: "was cancelled"},
	"timeout":   {State: cluster.Ended, Reason: executions.ReasonTimeout, How: "was ended at its time limit"},
	"oom":       {State: cluster.Ended, Reason: executions.ReasonOOM, How: "was ended because memory ran out"},
	"lost":      {State: cluster.Ended, Reason: executions.ReasonLost, How: "was lost"},
	"refused":   {State: cluster.Ended, Reason: executions.ReasonStart, How: "was refused"},
	"failed":    {State: cluster.Ended, Reason: executions.ReasonLost, How: "has failed"},
	"done":      {State: cluster.Ended, Reason: executions.ReasonLost, How: "has ended before its task"},
	"ending":    {State: cluster.Ending},
}

func (p *Profile) matches(key, text string) bool {
	r := p.patterns[key]
	return r != nil && r.MatchString(text)
}

// Kind is the state of the profile that the scheduler's word for one means; "" if none does.
func (p *Profile) Kind(said string) string {
	i := slices.IndexFunc(states, func(kind string) bool { return p.matches("states."+kind, said) })
	return append(states, "")[(i+len(states)+1)%(len(states)+1)]
}

// read visits what a pattern finds in an answer.
func (s *Scheduler) read(key, answer string, visit func(cluster.Listed)) {
	r := s.patterns[key]
	for _, m := range r.FindAllStringSubmatch(answer, -1) {
		group := map[string]string{}
		for i, name := range r.SubexpNames() {
			group[name] = strings.TrimSpace(m[i])
		}
		said := strings.TrimSpace(group["state"] + " " + group["reason"])
		kind := s.Kind(said)
		if said == "" && group["exit"] != "" {
			kind = "done" // only an ended job has an exit code
		}
		l := ends[kind]
		l.ID, l.Token, l.Node, l.Said = group["id"], group["token"], group["node"], said
		l.Index, _ = strconv.Atoi(group["index"])
		code, _ := strconv.Atoi(group["exit"])
		signal, _ := strconv.Atoi(group["signal"])
		switch script := kind == "failed" || kind == "done"; {
		case kind == "held":
			l.Held = said
		case kind == "" && group["state"] == "" && key == "explained": // why it is as status says
			l.Held, l.Said = said, ""
		case kind == "lost" || kind == "refused":
			l.How += ": " + said
		case script && signal > 0:
			l.How = fmt.Sprintf("was ended by signal %d", signal)
		case script && (code == 126 || code == 127):
			l.Reason, l.How = executions.ReasonStart, "could not start e3 on its node"
		case script && code > 0:
			l.How = fmt.Sprintf("failed: e3 worker exited with code %d", code)
		}
		if kind == "failed" && key == "listed" && s.texts["explain"] != "" {
			l.State = cluster.Failed
		}
		visit(l)
	}
}
