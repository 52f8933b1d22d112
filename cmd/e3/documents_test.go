package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"e3/cmd/e3/internal/render"
	"e3/executions"
	"e3/exportimport"
	"e3/gc"
	"e3/internal/insight/runview"
	"e3/internal/settings"
	"e3/internal/verify"
)

// A console runs command lines in this process.
type console struct {
	t   *testing.T
	env map[string]string
}

// play runs e3, and returns its exit code and output.
func (c *console) play(args ...string) (code int, stdout, stderr string) {
	c.t.Helper()
	var out, errs bytes.Buffer
	a := &app{
		Output: render.Output{Stdout: &out, Stderr: &errs, Now: time.Now, Getenv: func(name string) string { return c.env[name] }},
		stdin:  strings.NewReader(""), warned: map[string]bool{},
	}
	a.Check = a.checkAnswer
	code = run(c.t.Context(), args, a)
	return code, out.String(), errs.String()
}

// document runs e3 with --json, decodes the one document that it prints, and checks its form.
func document[T any](c *console, want int, args ...string) T {
	c.t.Helper()
	code, stdout, stderr := c.play(append(args, "--json")...)
	if code != want {
		c.t.Fatalf("e3 %q: exit code %d, want %d\n%s%s", args, code, want, stdout, stderr)
	}
	var doc T
	if strings.Count(stdout, "\n") != 1 || !strings.HasSuffix(stdout, "\n") {
		c.t.Errorf("e3 %q: the answer is not one line: %q", args, stdout)
	}
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		c.t.Fatalf("e3 %q: %v\n%s", args, err, stdout)
	}
	if dec.More() {
		c.t.Errorf("e3 %q: more than one document: %s", args, stdout)
	}
	var any any
	if err := json.Unmarshal([]byte(stdout), &any); err != nil {
		c.t.Fatal(err)
	}
	c.form(fmt.Sprintf("e3 %q", args), any)
	return doc
}

var (
	camelCase = regexp.MustCompile(`^[a-z][a-z0-9]*([A-Z0-9][a-z0-9]*)*$`)
	looksDate = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}`)
	isNumber  = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
)

// form checks the conventions of a document: names in camelCase, numbers as numbers, times in UTC.
func (c *console) form(where string, v any) {
	c.t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if !camelCase.MatchString(name) {
				c.t.Errorf("%s: %q is not camelCase", where, name)
			}
			if (strings.HasSuffix(name, "At") || name == "oldestSession") && value != nil && !looksDate.MatchString(fmt.Sprint(value)) {
				c.t.Errorf("%s: %s is %v, and no time", where, name, value)
			}
			c.form(where+"."+name, value)
		}
	case []any:
		for i, item := range v {
			c.form(fmt.Sprintf("%s[%d]", where, i), item)
		}
	case string:
		if isNumber.MatchString(v) && !strings.HasSuffix(where, "version") && !strings.HasSuffix(where, "Version") {
			c.t.Errorf("%s: %q is a number as text", where, v)
		}
		if looksDate.MatchString(v) {
			if _, err := time.Parse("2006-01-02T15:04:05.000Z", v); err != nil {
				c.t.Errorf("%s: %v", where, err)
			}
		}
	}
}

// documentsProject has a repository with a run, and a console in it.
func documentsProject(t *testing.T) *console {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"e3.yaml": "e3: 1\nname: demo\nversion: 1.0.0\ninputs:\n  word: {file: word.txt}\ntasks:\n" +
			"  greet: {in: [word], out: greeting, run: 'cat \"$word\" > \"$out\"; date +%N%s >> \"$out\"'}\n" +
			"  twice: {in: {g: greet}, out: both, run: 'cat \"$g\" \"$g\" > \"$out\"'}\n",
		"word.txt": "hello\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := &console{t: t, env: map[string]string{"E3_KEY": filepath.Join(dir, "key")}}
	c.must("start", "-f", "e3.yaml")
	return c
}

// must runs e3 and expects success.
func (c *console) must(args ...string) {
	c.t.Helper()
	if code, stdout, stderr := c.play(args...); code != 0 {
		c.t.Fatalf("e3 %q: exit code %d\n%s%s", args, code, stdout, stderr)
	}
}

// A program can decode every JSON document of the commands for export, import and maintenance.
func TestDocuments(t *testing.T) {
	c := documentsProject(t)
	check := func(ok bool, doc any) {
		t.Helper()
		if !ok {
			t.Errorf("got %+v", doc)
		}
	}

	key := document[ownKey](c, 0, "key", "generate", "--name", "Ann")
	check(key.Name == "Ann" && strings.HasPrefix(key.Key, "e3pub1") && len(key.Fingerprint) == 39, key)
	check(document[ownKey](c, 0, "key", "show") == key, key)

	e := document[exportimport.Exported](c, 0, "workspace", "export", "demo", "out.zip")
	check(e.File == "out.zip" && e.Workspace == "demo" && e.Package.Version == "1.0.0" && len(e.RunID) == 36 && e.Executions == 2 &&
		e.Objects > 5 && e.Size > 1000 && e.Content > 0 && *e.Signer == runview.Signer{Key: key.Key, Name: "Ann", Verified: true} && e.Notes != nil, e)

	c.must("init", "there")
	outcomes := func(added, skipped int) map[executions.Outcome]int {
		return map[executions.Outcome]int{
			executions.Added: added, executions.Overwritten: 0, executions.SkippedSuccess: skipped, executions.SkippedFailure: 0,
			executions.SkippedRunning: 0, executions.SkippedUnfinished: 0,
		}
	}
	i := document[exportimport.Imported](c, 0, "package", "import", "there", "out.zip", "--dry-run")
	check(i.DryRun && i.PackageAdded && maps.Equal(i.Outcomes, outcomes(2, 0)), i)
	i = document[exportimport.Imported](c, 0, "package", "import", "there", "out.zip")
	check(!i.DryRun && i.Package == e.Package && i.PackageAdded && i.RunID == e.RunID && i.RunWorkspace == "demo" && i.RunAdded && i.Executions == 2 &&
		maps.Equal(i.Outcomes, outcomes(2, 0)) && i.Objects == e.Objects && i.ObjectsAdded == e.Objects && i.Content == e.Content &&
		!i.Exported.IsZero() && i.Trust == "unknown" && i.TrustedAs == "" && *i.Signer == runview.Signer{Key: key.Key, Name: "Ann", Verified: true}, i)
	trusted := document[settings.KeyRow](c, 0, "key", "trust", "there", key.Key)
	check(strings.HasPrefix(trusted.Name, "key-") && trusted.Key == key.Key && trusted.Fingerprint == key.Fingerprint && !trusted.AddedAt.IsZero(), trusted)
	i = document[exportimport.Imported](c, 0, "workspace", "import", "there", "out.zip", "again")
	check(i.Workspace == "again" && i.RunWorkspace == "again" && !i.PackageAdded && i.ObjectsAdded == 0 &&
		maps.Equal(i.Outcomes, outcomes(0, 2)) && i.Trust == "trusted" && i.TrustedAs == trusted.Name, i)
	list := document[settings.KeyRows](c, 0, "key", "list", "there")
	check(len(list.TrustedKeys) == 1 && list.TrustedKeys[0].AddedAt == trusted.AddedAt, list)
	gone := document[settings.KeyRow](c, 0, "key", "distrust", "there", trusted.Name)
	check(gone.Key == key.Key, gone)

	one := document[settingRow](c, 0, "settings", "there", "require-signed", "true")
	check(one == settingRow{"require-signed", true}, one)
	all := document[settingList](c, 0, "settings", "there")
	check(len(all.Settings) == 6 && all.Settings[0] == one && all.Settings[1] == settingRow{"require-signed-executions", false} &&
		all.Settings[2] == settingRow{"events-retention", "90d"} && all.Settings[3] == settingRow{"room", "open"} &&
		all.Settings[4] == settingRow{"executor", "local"} && all.Settings[5] == settingRow{"queue", "default"}, all)
	refused := document[errorLine](c, 12, "package", "import", "there", "out.zip")
	check(refused.Type == "error" && refused.ExitCode == 12 && strings.Contains(refused.Message, "not trusted here"), refused)

	r := document[runview.Run](c, 0, "run", "there", "demo")
	check(r.Run == e.RunID && len(r.ImportedFrom) == 1 && !r.ImportedFrom[0].At.IsZero() && !r.ImportedFrom[0].ImportedAt.IsZero() &&
		r.ImportedFrom[0].Signer.Key == key.Key && len(r.Tasks) == 2 && !r.Tasks[0].StartedAt.IsZero(), r)
	r = document[runview.Run](c, 0, "run", "demo")
	check(r.Run == e.RunID && r.ImportedFrom == nil, r)

	greet := r.Tasks[0].ExecutionID
	pin := document[pinChange](c, 0, "pin", "add", ".", "demo.greet", "--note", "why")
	check(pin == pinChange{greet, true, true}, pin)
	pins := document[gc.Pins](c, 0, "pin", "list")
	check(len(pins.Pins) == 1 && pins.Pins[0].Execution == greet && pins.Pins[0].State == "success" && !pins.Pins[0].At.IsZero() && pins.Pins[0].Note == "why", pins)

	rej := document[rejection](c, 0, "reject", ".", greet, "--reason", "no")
	check(rej.Execution == greet && rej.Rejected && rej.Changed && rej.Answer == "" && rej.Task == "demo.greet", rej)
	rej = document[rejection](c, 0, "reject", ".", greet, "--undo")
	check(!rej.Rejected && rej.Changed && rej.Answer == greet, rej)
	rej = document[rejection](c, 0, "reject", ".", greet)
	check(rej.Rejected, rej)

	c.must("start", ".", "demo")
	unpin := document[pinChange](c, 0, "pin", "remove", ".", greet)
	check(unpin == pinChange{greet, false, true}, unpin)
	p := document[gc.Pruned](c, 0, "prune", "--keep-last", "1", "--dry-run")
	check(p.DryRun && p.Total == 4 && p.Executions == 2 && p.Protected.Run == 2 && p.Freed == nil && p.Unreadable != nil, p)
	p = document[gc.Pruned](c, 0, "prune", "--keep-last", "1", "--no-gc")
	check(!p.DryRun && len(p.Tasks) > 0 && p.Objects > 0 && p.Bytes > 0 && p.Freed == nil, p)
	g := document[gc.Report](c, 0, "gc", "--dry-run")
	check(g.DryRun && g.Collected.Objects > 0 && g.Live.Objects > 5 && g.Warnings != nil, g)
	g = document[gc.Report](c, 0, "gc")
	check(!g.DryRun && g.Collected.Bytes > 0, g)

	v := document[verify.Report](c, 0, "verify")
	check(v.Objects == g.Live.Objects && v.Workspaces == 1 && v.Runs > 0 && v.Remaining == 0 && len(v.Faults) == 0 && v.Faults != nil && v.Rerun != nil, v)
	v = document[verify.Report](c, 0, "verify", "--sample", "1/7")
	check(v.Sample.Part == 1 && v.Sample.Of == 7 && v.Objects < g.Live.Objects, v)
	again := document[verify.Again](c, 1, "verify", "--rerun", "demo.greet")
	check(again.Result == "different" && again.Execution != again.Before && again.Output != again.WasOutput && len(again.Changes) > 0, again)
	c.must("start", ".", "demo")
	output := again.WasOutput
	if err := os.Remove(filepath.Join(".e3", "objects", output[:2], output[2:])); err != nil {
		t.Fatal(err)
	}
	v = document[verify.Report](c, 12, "verify")
	check(len(v.Faults) == 1 && v.Remaining == 1 && v.Faults[0].Kind == verify.MissingObject && !v.Faults[0].Repaired && len(v.Faults[0].For) > 0, v)
	v = document[verify.Report](c, 0, "verify", "--repair")
	check(v.Remaining == 0 && len(v.Faults) == 1 && v.Faults[0].Repaired && v.Faults[0].Remedy != "" && len(v.Rerun) > 0, v)
}
