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
	"time"

	"e3/internal/jobs/profile"
)

// Name is the name of the executor.
const Name = "slurm"

// Profile is the text of the profile.
//
//go:embed slurm.yaml
var Profile []byte

// maxArray bounds an array, if Slurm allows as many.
const maxArray = 1000

// New returns the cluster whose commands are on the PATH, which must answer.
func New(ctx context.Context, o profile.Options) (*profile.Scheduler, error) {
	for _, arg := range o.Args {
		if reserved.MatchString(arg) {
			return nil, fmt.Errorf("argument %q of sbatch: e3 sets this itself", arg)
		}
	}
	if o.Env == nil {
		o.Env = os.Environ()
	}
	o.Env, o.Index, o.Unseen = cleanEnv(o.Env), "SLURM_ARRAY_TASK_ID", time.Nanosecond // it lists what it has taken
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
	o.Array = arraySize(config)
	return p.Scheduler(o)
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
