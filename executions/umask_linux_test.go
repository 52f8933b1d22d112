package executions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
)

func init() { helpers["umask"] = underUmask }

// askedFile holds the inputs, and the umask, for the helper.
const askedFile = "asked.json"

type asked struct {
	Inputs []string
	Umask  int
}

// underUmask executes the task in dir under another umask, and prints its log.
func underUmask(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, askedFile))
	if err != nil {
		return err
	}
	var ask asked
	if err := json.Unmarshal(data, &ask); err != nil {
		return err
	}
	syscall.Umask(ask.Umask)
	l, err := openLab(dir, nil)
	if err != nil {
		return err
	}
	data, err = os.ReadFile(filepath.Join(dir, taskFile))
	if err != nil {
		return err
	}
	task, err := record.DecodeTask(data)
	if err != nil {
		return err
	}
	var inputs []objectstore.Hash
	for _, text := range ask.Inputs {
		h, err := objectstore.ParseHash(text)
		if err != nil {
			return err
		}
		inputs = append(inputs, h)
	}
	for range 2 { // the second time in a sandbox that was used before
		req := l.request(task, inputs...)
		req.Force = true
		res, err := l.Do(context.Background(), req)
		if err != nil {
			return err
		}
		log, err := l.OpenLog(context.Background(), keyOf(req), res.ExecutionID, executions.Stdout, 0)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, log)
		log.Close()
		if err != nil || res.State != record.Success {
			return fmt.Errorf("%v %s %w", res.State, res.Message, err)
		}
	}
	return errors.Join(l.sup.Close(), l.records.Close())
}

// The umask is not part of the key, so a command's sandbox and outputs are the same under any umask of e3.
func TestUmaskIsFixed(t *testing.T) {
	l := newLab(t)
	task := script(`umask; for d in . "$HOME" "$TMPDIR"; do stat -c %a "$d"; done; find . -mindepth 1 -printf '%P %y %m\n' | sort
mkdir results/deep/made; touch results/deep/made/x; stat -c '%a' results/deep/made results/deep/made/x; echo x > results/deep/out`)
	task.Inputs = []record.Input{
		{Name: "sales", Path: "data/sales.csv", Kind: record.KindFile},
		{Name: "tool", Path: "bin/tool", Kind: record.KindExecutable},
		{Name: "src", Path: "src/all", Kind: record.KindDir},
		{Name: "lib", Path: "src/all/lib", Kind: record.KindDir},
		{Name: "grid", Path: ".e3-values/grid.json", Kind: record.KindValue},
	}
	task.Output.Entries[0].Path = "results/deep/out"
	l.leave(t, task)
	ask := asked{Inputs: []string{
		l.put(t, "a,b\n").String(), l.put(t, "#!/bin/sh\n").String(),
		putTree(t, l, map[string]string{"a.py": "a", "run.sh": "#!/bin/sh", "lib/b.py": "b", "link": "→lib/b.py"}).String(),
		putTree(t, l, map[string]string{"b.py": "b", "c.py": "c"}).String(),
		putValue(t, l, []any{int64(1)}).String(),
	}}
	const once = `0022
700
700
700
.e3-values d 755
.e3-values/grid.json f 644
bin d 755
bin/tool f 755
data d 755
data/sales.csv f 644
results d 755
results/deep d 755
src d 755
src/all d 755
src/all/a.py f 644
src/all/lib d 755
src/all/lib/b.py f 644
src/all/lib/c.py f 644
src/all/link l 777
src/all/run.sh f 755
755
644
`
	for _, mask := range []int{0o022, 0, 0o002, 0o027, 0o077, 0o277} {
		t.Run(strconv.FormatInt(int64(mask), 8), func(t *testing.T) {
			ask.Umask = mask
			data, err := json.Marshal(ask)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(l.dir, askedFile), data, 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := l.helper(t, "umask").Output()
			if err != nil {
				t.Fatal(err)
			}
			if want := once + once; string(out) != want {
				t.Errorf("under umask %#o a command found\n%swant\n%s", mask, out, want)
			}
		})
	}
}
