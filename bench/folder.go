package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	killed, killedMemory, err := b.afterKill(project, files)
	if err != nil {
		return err
	}
	row(name+", first start after one that was killed (undisturbed)", killed, cold, 1.1, mebibytes(killedMemory))

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

// afterKill kills a first start of another repository when a quarter of the files is stored, and measures the next start.
func (b *bench) afterKill(project string, files int) (time.Duration, int64, error) {
	for _, args := range [][]string{{"init", "killed"}, {"workspace", "create", "killed", "w"}} {
		if _, _, err := timed(project, append([]string{b.e3}, args...)...); err != nil {
			return 0, 0, err
		}
	}
	cmd := exec.Command(b.e3, "start", "-f", "e3.yaml", "killed", "w")
	cmd.Dir = project
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(10 * time.Millisecond) {
		found, err := filepath.Glob(filepath.Join(project, "killed", ".e3", "objects", "??", "*"))
		if err != nil {
			return 0, 0, err
		}
		if len(found) >= files/4 {
			break
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		return 0, 0, err
	}
	if err := cmd.Wait(); err == nil {
		return 0, 0, errors.New("the start ended before it was killed")
	}
	return timed(project, b.e3, "start", "-f", "e3.yaml", "killed", "w")
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
