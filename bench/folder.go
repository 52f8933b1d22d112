package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// folder measures ten starts in a row: one of many files in a folder has changed each time, and one small task reads the
// folder. The peers of the last three are the first three. Another row compares how long it takes to make 10,000 files on the same
// file system afterwards and before, since deleted files make it slower.
func (b *bench) folder() error {
	sizes := []int{5_000}
	if b.full {
		sizes = append(sizes, 100_000)
	}
	for _, files := range sizes {
		name := fmt.Sprintf("folder of %d files", files)
		if !b.wants(name) {
			continue
		}
		if err := b.oneFolder(name, files); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) oneFolder(name string, files int) error {
	const starts = 10
	target := map[int]time.Duration{5_000: 300 * time.Millisecond, 100_000: time.Second}[files]
	project := filepath.Join(b.dir, "folder")
	data := filepath.Join(project, "data")
	if err := os.MkdirAll(data, 0o777); err != nil {
		return err
	}
	defer os.RemoveAll(project)
	write := func(i int, what string) error {
		return os.WriteFile(filepath.Join(data, fmt.Sprintf("f%d.csv", i)), fmt.Appendf(nil, "row %d, %s\n", i, what), 0o666)
	}
	for i := range files {
		if err := write(i, "new"); err != nil {
			return err
		}
	}
	text := "e3: 1\nname: p\ninputs:\n  data: {dir: data}\ntasks:\n  t: {in: [data], out: o, run: 'cat \"$data/f1.csv\" > \"$out\"'}\n"
	if err := os.WriteFile(filepath.Join(project, "e3.yaml"), []byte(text), 0o666); err != nil {
		return err
	}
	for _, args := range [][]string{{"init", "r"}, {"workspace", "create", "r", "w"}} {
		if _, _, err := timed(project, append([]string{b.e3}, args...)...); err != nil {
			return err
		}
	}
	cold, coldMemory, err := timed(project, b.e3, "start", "-f", "e3.yaml", "r", "w")
	if err != nil {
		return err
	}
	row(name+", first start", cold, 0, 0, mebibytes(coldMemory))
	for when, reached := range map[string]func(repo string, out io.Reader) error{
		"while files were stored": func(repo string, _ io.Reader) error { return stored(repo, files/4) },
		"in its first checkout":   func(_ string, out io.Reader) error { return said(out, " started") },
	} {
		killed, memory, err := b.afterKill(project, reached)
		if err != nil {
			return err
		}
		row(name+", first start after one that was killed "+when+" (undisturbed)", killed, cold, 1.1, mebibytes(memory))
	}

	before, err := b.makeFiles(fmt.Sprint("before-", files))
	if err != nil {
		return err
	}
	var took, unchanged, peer []time.Duration
	var changedMemory, memory, peerMemory int64
	for k := range starts {
		if err := write(1, fmt.Sprint("change ", k)); err != nil {
			return err
		}
		t, m, err := timed(project, b.e3, "start", "r", "w")
		if err != nil {
			return err
		}
		u, n, err := timed(project, b.e3, "start", "r", "w")
		if err != nil {
			return err
		}
		changedMemory, memory = max(changedMemory, m), max(memory, n)
		took, unchanged = append(took, t), append(unchanged, u)
	}
	after, err := b.makeFiles(fmt.Sprint("after-", files))
	if err != nil {
		return err
	}
	if have("git") {
		if _, _, err := timed(project, "git", "init", "-q"); err != nil {
			return err
		}
		if _, _, err := timed(project, "git", "add", "data"); err != nil {
			return err
		}
		for range b.rounds {
			t, m, err := timed(project, "git", "status", "--porcelain", "data")
			if err != nil {
				return err
			}
			peerMemory = max(peerMemory, m)
			peer = append(peer, t)
		}
		row(name+", unchanged (git status)", median(unchanged), median(peer), 1, fmt.Sprintf("%s, git %s", mebibytes(memory), mebibytes(peerMemory)))
	}
	row(name+", one changed", median(took), 0, 0, fmt.Sprintf("target: under %v; %s", target, mebibytes(changedMemory)))
	row(name+", starts 8 to 10 (1 to 3)", median(took[starts-3:]), median(took[:3]), 1.3, "")
	row("10,000 new files after it (before)", after, before, 1.3, "")
	return nil
}

func mebibytes(kib int64) string { return fmt.Sprintf("%d MiB", kib>>10) }

// afterKill kills a first start of another repository when reached returns, and measures the next start.
func (b *bench) afterKill(project string, reached func(repo string, out io.Reader) error) (time.Duration, int64, error) {
	repo := filepath.Join(project, "killed")
	defer os.RemoveAll(repo)
	for _, args := range [][]string{{"init", "killed"}, {"workspace", "create", "killed", "w"}} {
		if _, _, err := timed(project, append([]string{b.e3}, args...)...); err != nil {
			return 0, 0, err
		}
	}
	cmd := exec.Command(b.e3, "start", "-f", "e3.yaml", "killed", "w")
	cmd.Dir = project
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, 0, err
	}
	err = errors.Join(reached(repo, out), cmd.Process.Kill())
	if cmd.Wait() == nil {
		err = errors.Join(err, errors.New("the start ended before it was killed"))
	}
	if err != nil {
		return 0, 0, err
	}
	return timed(project, b.e3, "start", "-f", "e3.yaml", "killed", "w")
}

// stored waits until a repository has n objects.
func stored(repo string, n int) error {
	for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(10 * time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(repo, ".e3", "objects", "??", "*"))
		if err != nil || len(found) >= n {
			return err
		}
	}
	return fmt.Errorf("%s has not got %d objects within 5 minutes", repo, n)
}

// said waits until a program prints a line with a text.
func said(out io.Reader, text string) error {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return nil
		}
	}
	return errors.Join(lines.Err(), fmt.Errorf("the program ended without %q", text))
}

// makeFiles makes 10,000 small files, and leaves them, because deleted files would slow the next ones down.
func (b *bench) makeFiles(name string) (time.Duration, error) {
	dir := filepath.Join(b.dir, "made-"+name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, err
	}
	began := time.Now()
	for i := range 10_000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("x"), 0o666); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}
