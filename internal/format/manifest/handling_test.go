package manifest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
)

// The handling of tasks is parsed as written.
func TestHandling(t *testing.T) {
	got := map[string]*record.Policy{}
	d := parseFile(t, "policy.yaml")
	for i := range d.Tasks {
		got[d.Tasks[i].Name] = d.Tasks[i].Policy
	}
	for name, want := range map[string]*record.Policy{
		"c": {
			Retries: 2, Backoff: 5 * time.Second, Lost: 5, RetryOn: []string{"timeout", "oom", "exit", "signal", "output", "start", "lost", "75"},
			OOM: record.Escalation{Factor: 2, Max: 64 << 30}, Memory: 4 << 30,
			Approve: true, Suspend: 76, OnLost: record.OnLostKeep, MayFail: true, Limits: true, Queue: "gpu", Labels: []string{"gpu", "big-1"},
		},
		"d": {
			Retries: 1, RetryOn: []string{"oom", "3"}, Lost: -1, OOM: record.Escalation{Factor: 1.25}, Memory: 1 << 30, Labels: []string{},
		},
		"e": {Lost: 1},
		"f": {Lost: 1, RetryOn: []string{"lost"}},
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
	seen := map[*record.Policy]string{}
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

// A task that does not say whether its resources are limits has what the file says, wherever it says it.
func TestLimitsOfAllTasks(t *testing.T) {
	const text = "e3: 1\nname: p\n%stasks:\n  a: {out: x, run: [x]}\n  b: {out: x, run: [x], limits: false}\n  c: {out: x, run: [x], limits: true}\n%s"
	for _, test := range []struct {
		before, after string
		a, b, c       bool
	}{{"", "", false, false, true}, {"limits: true\n", "", true, false, true}, {"", "limits: true\n", true, false, true}} {
		d, err := manifest.Parse("e3.yaml", fmt.Appendf(nil, text, test.before, test.after))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{test.a, test.b, test.c} {
			if got := d.Tasks[i].Policy.Limits; got != want {
				t.Errorf("%q, %q: limits of %s: %v, want %v", test.before, test.after, d.Tasks[i].Name, got, want)
			}
		}
	}
}
