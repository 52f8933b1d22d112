package executions_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/host/remains"
)

// The folder of a command is kept if the command itself has failed, and for no other reason.
func TestKeptFolders(t *testing.T) {
	tmp := t.TempDir()
	folders := remains.In(tmp)
	l := newLab(t, func(o *executions.Options) { o.Kept, o.Grace = folders, time.Second })
	policy := record.Policy{Timeout: 100 * time.Millisecond, Suspend: 76}
	for _, test := range []struct {
		name, script string
		kept         bool
	}{
		{"success", "touch out", false},
		{"exit code", "echo left > left; exit 3", true},
		{"no output", "echo left > left", true},
		{"signal", "echo left > left; kill -9 $$", true},
		{"timeout", "echo left > left; sleep 60", true},
		{"suspended", "exit 76", false},
		{"cannot start", "", false},
	} {
		task := script(test.script)
		if test.script == "" {
			task.Shell, task.Argv = "", []string{"there-is-no-such-program"}
		}
		req := l.request(task)
		req.Policy, req.Name = &policy, test.name
		res := l.do(t, req)
		f := folders.Find(res.ExecutionID)
		if (f != nil) != test.kept {
			t.Errorf("%s: kept is %v, want %t", test.name, f, test.kept)
			continue
		}
		if f == nil {
			continue
		}
		if text, err := os.ReadFile(filepath.Join(f.Work(), "left")); err != nil || string(text) != "left\n" {
			t.Errorf("%s: the folder holds %q, %v", test.name, text, err)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	req := l.request(script("sleep 60"))
	req.Name, req.Started = "cancelled", func(string, time.Time) { cancel() }
	res, err := l.Do(ctx, req)
	if err == nil && (res.Reason != executions.ReasonCancelled || folders.Find(res.ExecutionID) != nil) {
		t.Errorf("a cancelled command: %+v, %v; its folder is kept", res, err)
	}
	l.ForgetFolders("ws")
	if list := folders.List(""); len(list) > 0 {
		t.Errorf("after the next start there are %+v", list)
	}
}

// A visit has the files and the environment of the command, and leaves nothing.
func TestVisit(t *testing.T) {
	l := newLab(t)
	l.env["HIDDEN"] = "secret"
	task := script(`cp "$data" out`)
	task.Inputs = []record.Input{{Name: "data", Path: "data/in.txt", Kind: record.KindFile}}
	task.Passed = record.Passed{Secrets: []string{"ABSENT", "HIDDEN"}}
	req := l.request(task, l.put(t, "content"))
	v, err := l.Visit(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(v.Dir, "data", "in.txt")); err != nil || string(text) != "content" {
		t.Errorf("the input holds %q, %v", text, err)
	}
	for _, want := range []string{"data=data/in.txt", "out=out", "HIDDEN=secret", "HOME=" + filepath.Join(v.Root, "room", "home"), "TMPDIR=" + filepath.Join(v.Root, "room", "tmp")} {
		if !slices.Contains(v.Env, want) {
			t.Errorf("the environment lacks %s: %q", want, v.Env)
		}
	}
	if !slices.Equal(v.Unset, []string{"ABSENT"}) {
		t.Errorf("unset are %q", v.Unset)
	}
	info, err := os.Stat(v.Root)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others can enter: %v, %v", info, err)
	}
	if err := v.Leave(); err != nil || exists(v.Root) {
		t.Errorf("the folder is there after the visit: %v", err)
	}
	if n := len(l.all(t, keyOf(req))); n > 0 {
		t.Errorf("the visit is on record: %d executions", n)
	}
}
