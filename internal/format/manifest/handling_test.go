package manifest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
)

// The handling of tasks is parsed as written.
func TestHandling(t *testing.T) {
	got := map[string]*manifest.Policy{}
	d := parseFile(t, "policy.yaml")
	for i := range d.Tasks {
		got[d.Tasks[i].Name] = d.Tasks[i].Policy
	}
	for name, want := range map[string]*manifest.Policy{
		"c": {
			Retries: manifest.Retries{Max: 2, Backoff: 5 * time.Second, Lost: 5,
				On: []string{"timeout", "oom", "exit", "signal", "output", "start", "lost", "75"}},
			OnOOM: manifest.Growth{Factor: 2, Max: 64 << 30}, Resources: manifest.Resources{Memory: 4 << 30},
			Approve: true, Suspend: 76, OnLost: manifest.Keep, MayFail: true, Limits: manifest.Limited, Queue: "gpu", Labels: []string{"gpu", "big-1"},
		},
		"d": {
			Retries: manifest.Retries{Max: 1, On: []string{"oom", "3"}, Lost: -1}, OnOOM: manifest.Growth{Factor: 1.25},
			Resources: manifest.Resources{Memory: 1 << 30}, Labels: []string{},
		},
		"e": {Retries: manifest.Retries{Lost: 1}, Limits: manifest.Unlimited},
		"f": {Retries: manifest.Retries{Lost: 1, On: []string{"lost"}}},
	} {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("policy of %s differs (-want +got):\n%s", name, diff)
		}
	}
}

// Tasks share a policy only where all of it is the same.
func TestSharedPolicies(t *testing.T) {
	policies := []string{
		"retries: 2", "retries: {max: 2, on: [oom]}", "retries: {max: 2, on: [oom, 3]}", "retries: {max: 2, on: [oom, 4]}", "retries: {max: 2, lost: 1}", "retries: {max: 2, lost: 0}",
		"retries: 2, resources: {memory: 1GiB}", "retries: 2, resources: {memory: 1GiB}, on_oom: {memory: x2}",
		"retries: 2, resources: {memory: 1GiB}, on_oom: {memory: x3}", "retries: 2, resources: {memory: 1GiB}, on_oom: {memory: x2, max: 2GiB}",
		"approve: true", "suspend: 3", "suspend: 4", "queue: a", "queue: b", "labels: [a]", "labels: [b]", "labels: [a, b]", "labels: [b, a]",
	}
	text := "e3: 1\nname: p\ntasks:\n"
	for i, p := range policies {
		text += fmt.Sprintf("  a%d: {out: x, run: [x], %s}\n  b%[1]d: {out: x, run: [x], %s}\n", i, p, p)
	}
	d, err := manifest.Parse("e3.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[*manifest.Policy]string{}
	for i := 0; i < len(d.Tasks); i += 2 {
		a, b := &d.Tasks[i], &d.Tasks[i+1]
		if a.Policy != b.Policy {
			t.Errorf("%q is not shared", policies[i/2])
		}
		if other, again := seen[a.Policy]; again {
			t.Errorf("%q shares the policy of %q", policies[i/2], other)
		}
		seen[a.Policy] = policies[i/2]
	}
}
