// Package slurm is Slurm as a [cluster.Scheduler]: a profile, whose jobs share an array if their demands are equal.
package slurm

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"e3/internal/jobs/cluster"
	"e3/internal/jobs/profile"
	"e3/internal/jobs/queue"
)

// Name is the name of the executor.
const Name = "slurm"

// Profile is the text of the profile.
//
//go:embed slurm.yaml
var Profile []byte

// maxArray bounds an array, if Slurm allows as many.
const maxArray = 1000

// Scheduler is the Slurm cluster whose commands are on the PATH.
type Scheduler struct {
	*profile.Scheduler
	resources map[string]string
	array     int
}

var _ cluster.Scheduler = (*Scheduler)(nil)

// New returns the cluster, which must answer. The arguments of o come after e3's; a resource of tasks is asked for as a gres.
func New(ctx context.Context, o profile.Options) (*Scheduler, error) {
	for _, arg := range o.Args {
		if reserved.MatchString(arg) {
			return nil, fmt.Errorf("argument %q of sbatch: e3 sets this itself", arg)
		}
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	o.Env = cleanEnv(o.Env)
	p, err := profile.Decode("Slurm", Name+".yaml", Profile)
	if err != nil {
		return nil, err
	}
	s, err := p.Scheduler(o)
	if err != nil {
		return nil, err
	}
	config, err := s.Run(ctx, "", []string{"scontrol", "show", "config"})
	if err != nil {
		return nil, fmt.Errorf("submit to Slurm: it does not answer: %w", err)
	}
	return &Scheduler{s, o.Resources, arraySize(config)}, nil
}

// reserved are options of sbatch that e3 sets itself.
var reserved = regexp.MustCompile(`^(--(array|comment|parsable|wrap|wait|test-only|output|error|help|usage|version|clusters)(=.*)?|--|-[aWoehVM].*)$`)

// described are variables that describe the allocation that this process may be in, or change the commands' output. Those
// that say how to reach the cluster are kept.
var (
	described = regexp.MustCompile(`^((SLURMD?|SQUEUE|SCANCEL|SCONTROL)_|SBATCH_(ARRAY_INX|WAIT|WRAP|TEST_ONLY)=)`)
	kept      = regexp.MustCompile(`^SLURM_(CONF|CONF_SERVER|CLUSTERS|JWT)=`)
)

// cleanEnv is the environment of Slurm's commands.
func cleanEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool { return described.MatchString(v) && !kept.MatchString(v) })
}

// arraySize reads the largest size of an array.
func arraySize(config string) int {
	if m := regexp.MustCompile(`(?m)^MaxArraySize *= *(\d+)`).FindStringSubmatch(config); m != nil {
		n, _ := strconv.Atoi(m[1])
		return max(1, min(n, maxArray))
	}
	return 1
}

// Traits implements [cluster.Scheduler].
func (s *Scheduler) Traits() cluster.Traits {
	return cluster.Traits{Name: s.Name, Array: s.array, Index: "SLURM_ARRAY_TASK_ID", AtOnce: 1}
}

// Names from package files that are safe in Slurm's expressions.
var (
	features = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:=-]*$`)
	gres     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:/-]*$`)
)

// Demands implements [cluster.Scheduler]: they are arguments of sbatch.
func (s *Scheduler) Demands(j *queue.Job) ([]string, error) {
	args := []string{fmt.Sprintf("--cpus-per-task=%d", max(1, cluster.Ceil(j.Policy.CPU)))}
	if memory := cluster.Memory(j); memory > 0 {
		args = append(args, fmt.Sprintf("--mem=%dM", cluster.Ceil(memory/(1<<20))))
	}
	if limit := cluster.Time(j); limit > 0 {
		args = append(args, fmt.Sprintf("--time=%d", cluster.Ceil(limit.Minutes())))
	}
	var asked []string
	for _, r := range cluster.Resources(j, s.resources) {
		if !gres.MatchString(r.Name) {
			return nil, fmt.Errorf("resource %q cannot be asked of Slurm by this name: say which gres it is with --executor-resource", r.Name)
		}
		asked = append(asked, fmt.Sprintf("%s:%d", r.Name, cluster.Ceil(r.Value)))
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
