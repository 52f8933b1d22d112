package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"e3/internal/host/room"
)

// roomInputs measures what inputs cost a command: a folder of 5,000 files, and a large file in a folder, in a closed room and in the
// open. The time of tasks that read nothing is subtracted.
func (b *bench) roomInputs() error {
	const (
		files = 5_000
		mib   = 256
	)
	for _, c := range []struct {
		name   string
		tasks  int
		target time.Duration
		write  func(dir string) error
	}{
		{"5,000 files for a command in a room", 40, 5 * time.Millisecond, func(dir string) error {
			for i := range files {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.csv", i)), fmt.Appendf(nil, "row %d\n", i), 0o666); err != nil {
					return err
				}
			}
			return nil
		}},
		{"256 MiB for a command in a room", 6, 5 * time.Millisecond, func(dir string) error {
			return random(filepath.Join(dir, "large.bin"), mib<<20)
		}},
	} {
		if !b.wants(c.name) || !room.Possible() {
			continue
		}
		project := filepath.Join(b.dir, "roominputs")
		if err := os.MkdirAll(filepath.Join(project, "data"), 0o777); err != nil {
			return err
		}
		err := c.write(filepath.Join(project, "data"))
		if err == nil {
			err = b.oneRoomInput(c.name, project, c.tasks, c.target)
		}
		os.RemoveAll(project)
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) oneRoomInput(name, project string, tasks int, target time.Duration) error {
	if _, _, err := timed(project, b.e3, "init", "r"); err != nil {
		return err
	}
	items := "1"
	for i := 2; i <= tasks; i++ {
		items += fmt.Sprint(", ", i)
	}
	kinds := map[string]string{"closed": "closed", "open": "open", "closed-none": "closed", "open-none": "open"}
	took := map[string][]spent{}
	for kind, where := range kinds {
		in := "[data]"
		if where != kind {
			in = "[]"
		}
		text := fmt.Sprintf("e3: 1\nname: p\nroom: %s\ninputs:\n  data: {dir: data}\ntasks:\n  t: {in: %s, out: o, matrix: {i: [%s]}, run: 'true > \"$out\"'}\n", where, in, items)
		if err := os.WriteFile(filepath.Join(project, kind+".yaml"), []byte(text), 0o666); err != nil {
			return err
		}
	}
	for range b.rounds {
		for kind := range kinds {
			s, err := spend(project, b.e3, "start", "--force", "--concurrency", "1", "-f", kind+".yaml", "r", kind)
			if err != nil {
				return err
			}
			took[kind] = append(took[kind], s)
		}
	}
	each := func(kind string) spent {
		with, without := medians(took[kind]), medians(took[kind+"-none"])
		return spent{(with.wall - without.wall) / time.Duration(tasks), (with.cpu - without.cpu) / time.Duration(tasks)}
	}
	closed, open := each("closed"), each("open")
	note := fmt.Sprintf("processor: %s, %s", show(closed.cpu), show(open.cpu))
	if target > 0 {
		note += "; target: " + show(target)
	}
	row(name+" (peer: in the open)", closed.wall, open.wall, 0, note)
	return nil
}
