package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"e3/internal/host/room"
)

// A spent is what one run of a program took.
type spent struct{ wall, cpu time.Duration }

// spend runs a command in dir. The processor time is that of the command and of the children that it has waited for.
func spend(dir string, argv ...string) (spent, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	began := time.Now()
	out, err := cmd.CombinedOutput()
	wall := time.Since(began)
	if err != nil {
		return spent{}, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return spent{wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, nil
}

// medians are of the wall time and of the processor time.
func medians(list []spent) spent {
	var wall, cpu []time.Duration
	for _, s := range list {
		wall, cpu = append(wall, s.wall), append(cpu, s.cpu)
	}
	return spent{median(wall), median(cpu)}
}

// versus prints a row with the processor times as its note.
func versus(name string, e3, peer []spent, target float64, note string) {
	a, b := medians(e3), medians(peer)
	row(name, a.wall, b.wall, target, strings.TrimSpace(fmt.Sprintf("CPU %s and %s  %s", show(a.cpu), show(b.cpu), note)))
}

// large measures large files, a large folder, and a start beside a process that writes much.
func (b *bench) large() error {
	size := int64(256 << 20)
	if b.full {
		size = 2 << 30
	}
	var errs []error
	for name, part := range map[string]func() error{
		"large file":   func() error { return b.largeFile("noise", func(path string) error { return random(path, size) }) },
		"large holes":  func() error { return b.largeFile("holes", func(path string) error { return holes(path, 4*size) }) },
		"large input":  func() error { return b.largeInput(size / 2) },
		"large folder": b.largeFolder,
		"large beside": b.besideWriter,
	} {
		if b.wants(name) {
			errs = append(errs, part())
		}
	}
	return errors.Join(errs...)
}

// holes makes a file of size bytes that takes nothing of the disk.
func holes(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// readFile is a package with one task, which reads the file "large".
const readFile = "e3: 1\nname: bench\ninputs: {large: {file: large}}\ntasks:\n  t: {in: [large], out: n, run: 'wc -c < \"$large\" > \"$out\"'}\n"

// largeFile compares taking in a file, and a task that reads it, with openssl's hashing of it.
func (b *bench) largeFile(what string, fill func(path string) error) error {
	if !have("openssl") {
		return nil
	}
	dir := filepath.Join(b.dir, "large-"+what)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "large")
	if err := errors.Join(fill(path), os.WriteFile(filepath.Join(dir, "e3.yaml"), []byte(readFile), 0o644)); err != nil {
		return err
	}
	var e3, peer []spent
	var disk string
	for range b.rounds {
		p, err := spend(dir, "openssl", "dgst", "-sha256", path)
		if err != nil {
			return err
		}
		s, err := spend(dir, b.e3, "start", "-f", "e3.yaml")
		if err != nil {
			return err
		}
		e3, peer = append(e3, s), append(peer, p)
		if out, err := exec.Command("du", "-sm", filepath.Join(dir, ".e3")).Output(); err == nil {
			disk = strings.Fields(string(out))[0]
		}
		if err := os.RemoveAll(filepath.Join(dir, ".e3")); err != nil {
			return err
		}
	}
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	versus(fmt.Sprintf("large file, %d MiB of %s (openssl)", fi.Size()>>20, what), e3, peer, 1.3, "repository "+disk+" MiB")
	return nil
}

// largeInput compares the processor time of a first start with two tasks that read one file with that of their commands.
func (b *bench) largeInput(size int64) error {
	for _, where := range []string{"open", "closed"} {
		if where == "closed" && !room.Possible() {
			continue
		}
		dir := filepath.Join(b.dir, "large-input")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		def := "e3: 1\nname: bench\nroom: " + where + "\ninputs: {large: {file: large}}\n" +
			"tasks:\n  t: {in: [large], out: n, matrix: {i: [1, 2]}, run: 'md5sum < \"$large\" > \"$out\"'}\n"
		if err := errors.Join(random(filepath.Join(dir, "large"), size), os.WriteFile(filepath.Join(dir, "e3.yaml"), []byte(def), 0o644)); err != nil {
			return err
		}
		var e3, peer []time.Duration
		for range b.rounds {
			p, err := spend(dir, "sh", "-c", "md5sum < large; md5sum < large")
			if err != nil {
				return err
			}
			s, err := spend(dir, b.e3, "start", "-f", "e3.yaml")
			if err != nil {
				return err
			}
			e3, peer = append(e3, s.cpu), append(peer, p.cpu)
			if err := os.RemoveAll(filepath.Join(dir, ".e3")); err != nil {
				return err
			}
		}
		row(fmt.Sprintf("large input, %d MiB, two readers, %s, CPU (the commands)", size>>20, where), median(e3), median(peer), 1.2, "where the disk shares blocks")
	}
	return nil
}

// largeFolder compares a start that finds a large folder unchanged with git status, and measures one after a change.
func (b *bench) largeFolder() error {
	files := 10_000
	if b.full {
		files = 100_000
	}
	dir := filepath.Join(b.dir, "large-folder")
	defer os.RemoveAll(dir)
	for i := range files {
		path := filepath.Join(dir, "data", fmt.Sprintf("d%03d", i/100), fmt.Sprint("f", i))
		if i%100 == 0 {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, "file %d\n", i), 0o644); err != nil {
			return err
		}
	}
	def := "e3: 1\nname: bench\ninputs: {data: {dir: data}}\ntasks:\n  t: {in: [data], out: n, run: 'ls \"$data\" | wc -l > \"$out\"'}\n"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "e3.yaml"), []byte(def), 0o644),
		os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(".e3\n"), 0o644)); err != nil {
		return err
	}
	git := have("git")
	before := [][]string{{b.e3, "start", "-f", "e3.yaml"}}
	if git {
		before = append(before, []string{"git", "init", "-q"}, []string{"git", "add", "."})
	}
	for _, argv := range before {
		if _, err := spend(dir, argv...); err != nil {
			return err
		}
	}
	var e3, peer, changed []spent
	for range b.rounds {
		if git {
			p, err := spend(dir, "git", "status", "--short")
			if err != nil {
				return err
			}
			peer = append(peer, p)
		}
		s, err := spend(dir, b.e3, "start", "bench")
		if err != nil {
			return err
		}
		e3 = append(e3, s)
	}
	for i := range min(b.rounds, 3) {
		if err := os.WriteFile(filepath.Join(dir, "data", "d000", "f1"), fmt.Appendf(nil, "changed %d\n", i), 0o644); err != nil {
			return err
		}
		s, err := spend(dir, b.e3, "start", "bench")
		if err != nil {
			return err
		}
		changed = append(changed, s)
	}
	name := fmt.Sprintf("large folder, %d files", files)
	if git {
		versus(name+", unchanged (git status)", e3, peer, 1, "")
	}
	c := medians(changed)
	row(name+", one changed", c.wall, 0, 0, "target: under 1 s; CPU "+show(c.cpu))
	return nil
}

// besideWriter measures a start of seven small tasks while another process writes 4 GiB to the same disk, beside a quiet
// start, and beside as many syncs of small files as the start makes, one after the other, while 4 GiB are written.
func (b *bench) besideWriter() error {
	dir := filepath.Join(b.dir, "large-beside")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	def := "e3: 1\nname: bench\ninputs: {a: {file: a}}\ntasks:\n  t: {in: [a], out: n, matrix: {k: [1, 2, 3, 4, 5, 6, 7]}, run: 'cat \"$a\" > \"$out\"; echo \"$k\" >> \"$out\"'}\n"
	if err := os.WriteFile(filepath.Join(dir, "e3.yaml"), []byte(def), 0o644); err != nil {
		return err
	}
	round := func(i int) (spent, error) {
		if err := os.WriteFile(filepath.Join(dir, "a"), fmt.Append(nil, i), 0o644); err != nil {
			return spent{}, err
		}
		return spend(dir, b.e3, "start", "-f", "e3.yaml")
	}
	if _, err := round(-1); err != nil {
		return err
	}
	syncs, err := countSyncs(dir, func() error { return os.WriteFile(filepath.Join(dir, "a"), []byte("counted"), 0o644) }, b.e3, "start", "-f", "e3.yaml")
	if err != nil {
		return err
	}
	var quiet, busy, files []spent
	for i := range b.rounds {
		s, err := round(2 * i)
		if err != nil {
			return err
		}
		quiet = append(quiet, s)
		if s, err = beside(dir, func() (spent, error) { return round(2*i + 1) }); err != nil {
			return err
		}
		busy = append(busy, s)
		if s, err = beside(dir, func() (spent, error) { return syncSmall(filepath.Join(dir, "small"), syncs) }); err != nil {
			return err
		}
		files = append(files, s)
	}
	versus("large beside dd of 4 GiB (quiet)", busy, quiet, 2, "")
	versus(fmt.Sprintf("large beside dd of 4 GiB (%d fsyncs)", syncs), busy, files, 1.2, "either target is enough")
	return nil
}

// beside measures f while dd writes 4 GiB to the disk of dir, from when the first GiB is written.
func beside(dir string, f func() (spent, error)) (spent, error) {
	path := filepath.Join(dir, "written")
	dd := exec.Command("dd", "if=/dev/zero", "of="+path, "bs=1M", "count=4096")
	if err := dd.Start(); err != nil {
		return spent{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- dd.Wait() }()
	for size := int64(0); size < 1<<30; {
		select {
		case err := <-ended: // for example of a full disk
			return spent{}, errors.Join(fmt.Errorf("dd has ended, and had written %d bytes when it was looked at", size), err, os.Remove(path))
		case <-time.After(time.Millisecond):
		}
		if fi, err := os.Stat(path); err == nil {
			size = fi.Size()
		}
	}
	s, err := f()
	return s, errors.Join(err, <-ended, exec.Command("sync", "-f", dir).Run(), os.Remove(path))
}

// countSyncs counts the calls by which a command, and its children, make files durable. Without strace it is a guess.
func countSyncs(dir string, prepare func() error, argv ...string) (int, error) {
	if err := prepare(); err != nil || !have("strace") {
		return 50, err
	}
	out := filepath.Join(dir, "calls")
	_, err := spend(dir, append([]string{"strace", "-f", "-o", out, "-e", "trace=fsync,fdatasync,syncfs"}, argv...)...)
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(out)
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "sync") && !strings.Contains(line, "resumed") {
			n++
		}
	}
	return n, errors.Join(err, os.Remove(out))
}

// syncSmall writes and syncs n new files of 4 KiB in a new folder, one after the other, and removes them.
func syncSmall(dir string, n int) (spent, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return spent{}, err
	}
	began := time.Now()
	for i := range n {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		if err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return spent{}, err
		}
	}
	return spent{wall: time.Since(began)}, os.RemoveAll(dir)
}
