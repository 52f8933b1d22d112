package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"e3/internal/repo"
	"e3/internal/testing/recorded"
	"e3/internal/testing/testserver"
)

// farAway is how long a request takes beside what the server takes.
const farAway = 20 * time.Millisecond

// A changing is a shared repository behind a network of 20 ms, with a package of many tasks, all of which are on record.
type changing struct {
	e3       string
	dir      string
	tasks    int
	location string
	env      []string
	machines int
	busy     time.Duration // CPU time of the programs that were run

	mu       sync.Mutex
	requests int
}

// change measures what a change costs in a shared repository: starts on a machine that knows nothing, and a start after an edit. There
// is no peer; the note has the requests.
func (b *bench) change() (err error) {
	dir := filepath.Join(b.dir, "change")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tb := &servers{dir: dir}
	defer tb.stop()
	name, dynamo, n, stop, err := serveDynamoDB(dir)
	if err != nil {
		return err
	}
	defer stop()
	_, s3, stopS3, err := serveS3(dir)
	if err != nil {
		return err
	}
	defer stopS3()
	c := &changing{e3: b.e3, dir: filepath.Join(dir, "project"), tasks: n}
	if b.other != "" {
		c.e3 = b.other
	}
	var urls []string
	var proxies []*testserver.Proxy
	for _, target := range []string{dynamo, s3} {
		p := testserver.NewProxy(tb, target)
		p.Watch(func(testserver.Call) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.requests++
		})
		proxies, urls = append(proxies, p), append(urls, p.URL())
	}
	table := testserver.Name()
	c.location = "dynamodb://" + table + "/team?endpoint=" + url.QueryEscape(urls[0])
	if err := c.prepare("&bucket=" + table + "&s3-endpoint=" + url.QueryEscape(urls[1])); err != nil {
		return err
	}
	for _, p := range proxies {
		p.Faults(1, testserver.Rule{Fault: testserver.DelayBefore, Delay: farAway})
	}
	here, env := c.dir, slices.Clone(c.env)
	for _, step := range []struct {
		what string
		do   func() error
		args []string
	}{
		{"new machine, nothing proven", c.clone, []string{"-f", "e3.yaml", c.location, "branch"}},
		{"new machine, proven elsewhere", c.clone, []string{"-f", "e3.yaml", c.location, "again"}},
		{"where it was deployed", func() error { c.dir, c.env = here, env; return nil }, []string{c.location, "main"}},
		{"one task edited", func() error { return c.write(1) }, []string{c.location, "main"}},
		{"one source changed", func() error { return os.WriteFile(filepath.Join(c.dir, "src1.txt"), []byte("changed\n"), 0o666) }, []string{c.location, "main"}},
	} {
		if err := step.do(); err != nil {
			return err
		}
		c.mu.Lock()
		c.requests, c.busy = 0, 0
		c.mu.Unlock()
		began := time.Now()
		if err := c.run(append([]string{"start"}, step.args...)...); err != nil {
			return err
		}
		row(fmt.Sprintf("%s, %d at 20 ms", step.what, n), time.Since(began), 0, 0,
			fmt.Sprintf("%s; %d requests, %s of CPU time", name, c.requests, show(c.busy)))
	}
	return nil
}

// prepare makes the repository, deploys the package, and puts an execution of each task on record.
func (c *changing) prepare(place string) error {
	if err := os.MkdirAll(c.dir, 0o777); err != nil {
		return err
	}
	for i := range c.tasks / 5 {
		if err := os.WriteFile(filepath.Join(c.dir, fmt.Sprintf("src%d.txt", i)), fmt.Appendf(nil, "source %d\n", i), 0o666); err != nil {
			return err
		}
	}
	c.machine()
	err := c.write(0)
	for _, args := range [][]string{{"init", c.location + place}, {"workspace", "create", c.location, "main"}, {"workspace", "deploy", c.location, "main", "e3.yaml"}} {
		if err == nil {
			err = c.run(args...)
		}
	}
	if err != nil {
		return err
	}
	return c.record()
}

// write writes the package file; edited is in the command of one task.
func (c *changing) write(edited int) error {
	var b strings.Builder
	b.WriteString("e3: 1\nname: p\ninputs:\n")
	for i := range c.tasks / 5 {
		fmt.Fprintf(&b, "  s%d: {file: src%[1]d.txt}\n", i)
	}
	b.WriteString("tasks:\n")
	for i := range c.tasks {
		said := strconv.Itoa(i)
		if i == c.tasks/2 {
			said += fmt.Sprint(" ", edited)
		}
		fmt.Fprintf(&b, "  t%d: {in: [s%d], out: o, run: [sh, -c, \"echo %s > {out}\"]}\n", i, i%(c.tasks/5), said)
	}
	return os.WriteFile(filepath.Join(c.dir, "e3.yaml"), []byte(b.String()), 0o666)
}

// machine makes what follows happen on a machine that knows nothing of the repository.
func (c *changing) machine() {
	c.machines++
	local := filepath.Join(filepath.Dir(c.dir), fmt.Sprint("machine", c.machines))
	c.env = append(os.Environ(), testserver.Env()...)
	c.env = append(c.env, repo.CacheDirVariable+"="+local+"/cache", repo.StateDirVariable+"="+local+"/state")
}

// clone makes what follows happen in another clone, on a machine that knows nothing of the repository.
func (c *changing) clone() error {
	to := filepath.Join(filepath.Dir(c.dir), fmt.Sprint("clone", c.machines))
	err := os.CopyFS(to, os.DirFS(c.dir))
	c.dir = to
	c.machine()
	return err
}

func (c *changing) run(args ...string) error {
	cmd := exec.Command(c.e3, args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("e3 %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	c.busy += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return nil
}

// record puts a success of each task on record.
func (c *changing) record() (err error) {
	for _, v := range c.env {
		if name, value, ok := strings.Cut(v, "="); ok && strings.HasPrefix(name, "AWS_") {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	ctx := context.Background()
	r, err := repo.Open(ctx, c.location, repo.Options{Getenv: func(name string) string {
		switch name {
		case repo.CacheDirVariable, repo.StateDirVariable:
			return filepath.Join(filepath.Dir(c.dir), "recorder")
		}
		return ""
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return recorded.Workspace(ctx, r, "main")
}
