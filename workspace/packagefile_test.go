package workspace_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"e3/objectstore"
)

// TestPackageFileSaysWhatIsInTheKey checks the tables of doc/package-file.md against changes of a task's hash.
// TestTaskHash checks inputs, whose content enters the key.
func TestPackageFileSaysWhatIsInTheKey(t *testing.T) {
	said := keyColumn(t)
	p := newPlace(t)
	p.project()
	const base = "inputs: {sales: {file: data/sales.csv}}\ntasks:\n  one: {in: [sales], out: o, run: cat}\n"
	one := func(text string) string {
		b := p.build(text)
		for i := range b.Package.Tasks {
			if name := b.Package.Tasks[i].Name; name == "one" || name == "one[1]" {
				return b.Package.Tasks[i].Task
			}
		}
		t.Fatalf("there is no task one in:\n%s", text)
		return ""
	}
	was := one(base)
	tested := map[string]bool{}
	for _, test := range []struct{ key, old, new string }{
		{"version", "run: cat", "run: cat, version: 2"},
		{"executable", "file: data/sales.csv", "file: data/sales.csv, executable: true"},
		{"export", "file: data/sales.csv", "file: data/sales.csv, export: false"},
		{"in", "in: [sales]", "in: {s: sales}"},
		{"out", "out: o", "out: p"},
		{"file", "out: o", "out: {file: p}"},
		{"dir", "out: o", "out: {dir: o}"},
		{"kind", "out: o", "out: {file: o, kind: metrics}"},
		{"x", "out: o", "out: {file: o, kind: plot, x: a}"},
		{"y", "out: o", "out: {file: o, kind: plot, y: [a, b]}"},
		{"title", "out: o", "out: {file: o, kind: plot, title: a}"},
		{"x_label", "out: o", "out: {file: o, kind: plot, x_label: a}"},
		{"y_label", "out: o", "out: {file: o, kind: plot, y_label: a}"},
		{"template", "out: o", "out: {file: o, kind: plot, template: smooth}"},
		{"run", "run: cat", "run: [cat]"},
		{"matrix", "run: cat", "run: cat, matrix: {n: [1]}"},
		{"env", "run: cat", "run: cat, env: {A: b}"},
		{"pass_env", "run: cat", "run: cat, pass_env: [A]"},
		{"secrets", "run: cat", "run: cat, secrets: [A]"},
		{"key_env", "run: cat", "run: cat, key_env: [A]"},
		{"room", "run: cat", "run: cat, room: closed"},
		{"network", "run: cat", "run: cat, room: closed, network: true"},
		{"description", "run: cat", "run: cat, description: d"},
		{"timeout", "run: cat", "run: cat, timeout: 1m"},
		{"retries", "run: cat", "run: cat, retries: 1"},
		{"on_oom", "run: cat", "run: cat, retries: 1, resources: {memory: 1GiB}, on_oom: {memory: x2}"},
		{"may_fail", "run: cat", "run: cat, may_fail: true"},
		{"on_lost", "run: cat", "run: cat, on_lost: kill"},
		{"limits", "run: cat", "run: cat, limits: true"},
		{"resources", "run: cat", "run: cat, resources: {cpu: 2}"},
		{"priority", "run: cat", "run: cat, priority: 1"},
		{"approve", "run: cat", "run: cat, approve: true"},
		{"suspend", "run: cat", "run: cat, suspend: 76"},
		{"queue", "run: cat", "run: cat, queue: q"},
		{"labels", "run: cat", "run: cat, labels: [gpu]"},
	} {
		tested[test.key] = true
		want, there := said[test.key]
		if changed := one(strings.Replace(base, test.old, test.new, 1)) != was; !there || changed != want {
			t.Errorf("%s changes a task's hash: %v; doc/package-file.md says %v (there: %v)", test.key, changed, want, there)
		}
	}
	p.write("p.yaml", "a: 1\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a")) }))
	defer server.Close()
	remote := "inputs: {x: {url: '" + server.URL + "/x'}}\ntasks:\n  one: {in: [x], out: o, run: cat}\n"
	// Keys that mean something only beside others.
	const (
		closed = "run: cat, room: closed"
		params = "inputs: {p: {params: p.yaml}}\ntasks:\n  one: {in: {p: {from: p, only: [a]}}, out: o, run: cat}\n"
		made   = "environments: {py: {from: p.yaml, run: make}}\ntasks:\n  one: {environment: py, out: o, run: cat}\n"
		gather = "tasks:\n  m: {matrix: {n: [1, 2]}, out: o, run: cat}\n  one: {in: {m: {from: 'm[*]'}}, out: o, run: cat}\n"
	)
	for _, test := range []struct{ key, before, after string }{
		{"devices", strings.Replace(base, "run: cat", closed, 1), strings.Replace(base, "run: cat", closed+", devices: [nvidia]", 1)},
		{"at", params, strings.Replace(params, "only: [a]", "only: [a], at: q.yaml", 1)},
		{"sha256", remote, strings.Replace(remote, "/x'", "/x', sha256: "+objectstore.Sum([]byte("a")).String(), 1)},
		{"need", strings.Replace(gather, "'m[*]'", "'m[*]', manifest: true", 1), strings.Replace(gather, "'m[*]'", "'m[*]', need: 1", 1)},
		{"metrics", strings.Replace(base, "out: o", "out: {dir: o}", 1), strings.Replace(base, "out: o", "out: {dir: o, metrics: m.json}", 1)},
		{"plots", strings.Replace(base, "out: o", "out: {dir: o}", 1), strings.Replace(base, "out: o", "out: {dir: o, plots: [{file: a, x: b}]}", 1)},
		{"reports", strings.Replace(base, "out: o", "out: {dir: o}", 1), strings.Replace(base, "out: o", "out: {dir: o, reports: [a]}", 1)},
		{"environment", made, strings.Replace(made, "environment: py, ", "", 1)},
		{"path", made, strings.Replace(made, "run: make", "run: make, path: bin", 1)},
		{"run", made, strings.Replace(made, "run: make", "run: make all", 1)},
		{"env", made, strings.Replace(made, "run: make", "run: make, env: {A: b}", 1)},
		{"description", made, strings.Replace(made, "run: make", "run: make, description: d", 1)},
		{"manifest", gather, strings.Replace(gather, "'m[*]'", "'m[*]', manifest: true", 1)},
	} {
		tested[test.key] = true
		want, there := said[test.key]
		if changed := one(test.before) != one(test.after); !there || changed != want {
			t.Errorf("%s changes a task's hash: %v; doc/package-file.md says %v (there: %v)", test.key, changed, want, there)
		}
	}
	tested["image"] = true // needs an image: the script image of cmd/e3 changes it
	for key := range said {
		if !tested[key] {
			t.Errorf("doc/package-file.md says whether %s is in the cache key, and no case here tests it", key)
		}
	}
}

// keyColumn reads from the tables of tasks and outputs in doc/package-file.md whether each key enters the cache key.
// The inputs' table counts where it says yes or no.
func keyColumn(t *testing.T) map[string]bool {
	t.Helper()
	doc, err := os.ReadFile("../doc/package-file.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "\n## Inputs\n")
	said := map[string]bool{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 {
			continue
		}
		key := strings.Trim(cells[0], "|` ")
		switch cells[1] {
		case "yes":
			said[key] = true
		case "no":
			said[key] = false
		}
	}
	if len(said) < 20 {
		t.Fatalf("doc/package-file.md says of %d keys whether they are in the cache key, want more", len(said))
	}
	return said
}
