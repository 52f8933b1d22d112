package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// pages measures the processor time of e3 ui in a view of 10,000 tasks with 100 failures in 4 workspaces: the first view, which
// reads everything, and the ones after it. The peer of an export of 1,000 tasks is twice that of 500.
func (b *bench) pages() error {
	const name = "pages"
	if !b.wants(name) {
		return nil
	}
	project := filepath.Join(b.dir, "pages")
	if err := os.MkdirAll(project, 0o777); err != nil {
		return err
	}
	defer os.RemoveAll(project)
	for _, ws := range []string{"a", "b", "c", "d"} {
		if err := b.failing(project, ws, 2_500); err != nil {
			return err
		}
	}
	server, err := serve(project, b.e3)
	if err != nil {
		return err
	}
	defer server.stop()
	for _, view := range []struct{ name, path string }{{"workspaces", "/"}, {"a run", "/run?w=a"}, {"families", "/run?w=a&by=family"}, {"graph", "/run?w=a&view=graph"}} {
		first, err := server.view(view.path)
		if err != nil {
			return err
		}
		var next []time.Duration
		for range 4 * b.rounds {
			d, err := server.view(view.path)
			if err != nil {
				return err
			}
			next = append(next, d)
		}
		row(name+", "+view.name+", first", first, 0, 0, "processor time")
		row(name+", "+view.name, median(next), 0, 0, "processor time; target: under 100 ms")
	}
	fmt.Printf("%-34s %9d MB%38s\n", name+", peak memory", server.peak()>>10, "target: under 100 MB")

	var spent []time.Duration
	for _, n := range []int{500, 1_000} {
		ws := fmt.Sprint("x", n)
		if err := b.failing(project, ws, n); err != nil {
			return err
		}
		cmd := exec.Command(b.e3, "ui", ".", ws, "--export", "out-"+ws)
		cmd.Dir = project
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("export: %w\n%s", err, out)
		}
		spent = append(spent, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	}
	row(name+", export of 1,000 (2 x 500)", spent[1], 2*spent[0], 1.5, "processor time")
	return nil
}

// failing runs a workspace in which one of a hundred tasks fails.
func (b *bench) failing(project, ws string, tasks int) error {
	items := make([]string, tasks)
	for i := range items {
		items[i] = strconv.Itoa(i)
	}
	text := fmt.Sprintf("e3: 1\nname: %s\ntasks:\n  item: {matrix: {n: [%s]}, out: o, run: 'test $((n %% 100)) != 7 && echo %s $n > \"$out\"'}\n", ws, strings.Join(items, ", "), ws)
	if err := os.WriteFile(filepath.Join(project, ws+".yaml"), []byte(text), 0o666); err != nil {
		return err
	}
	if _, _, err := timed(project, b.e3, "start", "-f", ws+".yaml", "--progress", "none"); err == nil {
		return fmt.Errorf("%s: no task has failed", ws)
	}
	return nil
}

// A uiServer is an e3 ui at work.
type uiServer struct {
	cmd    *exec.Cmd
	base   string
	client http.Client
}

var printed = regexp.MustCompile(`(http://[^/\s]+)(/\S+)`)

// serve starts e3 ui, and is let in.
func serve(dir, e3 string) (*uiServer, error) {
	s := &uiServer{cmd: exec.Command(e3, "ui", ".", "--no-open", "--port", "0")}
	s.cmd.Dir = dir
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stderr = s.cmd.Stdout
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := printed.FindStringSubmatch(lines.Text()); m != nil {
			s.base = m[1]
			if s.client.Jar, err = cookiejar.New(nil); err != nil {
				return nil, err
			}
			go func() { _, _ = io.Copy(io.Discard, out) }()
			_, err = s.view(m[2])
			return s, err
		}
	}
	s.stop()
	return nil, fmt.Errorf("e3 ui has printed no address: %w", lines.Err())
}

func (s *uiServer) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// view requests a page, and returns the processor time that the server has spent on it.
func (s *uiServer) view(path string) (time.Duration, error) {
	before, err := spentBy(s.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	answer, err := s.client.Get(s.base + path)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return 0, err
	}
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", path, answer.Status)
	}
	after, err := spentBy(s.cmd.Process.Pid)
	return after - before, err
}

// peak is the greatest resident size so far, in KiB; 0 if that is not known here.
func (s *uiServer) peak() int64 {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// spentBy is the processor time of a process that runs, from Linux's scheduler in nanoseconds.
func spentBy(pid int) (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("the processor time of process %d is not known: this measurement needs Linux", pid)
	}
	var sum time.Duration
	for _, name := range tasks {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		n, _ := strconv.ParseInt(strings.Fields(string(data) + " 0")[0], 10, 64)
		sum += time.Duration(n)
	}
	return sum, nil
}
