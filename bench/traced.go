package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"e3/internal/host/trace"
)

// traced measures what tracing costs whole starts: a compile of 200 C files in one command, and ten Python programs that load
// much of the library and compute for a moment. The peer is the same start without tracing; rounds alternate. --propose traces
// tests of existence as well.
func (b *bench) traced() error {
	for _, c := range []struct {
		name, program string
		task          string
		write         func(dir string) error
	}{
		{"traced: 200 C files", "cc", `{in: [src], out: o, run: 'for f in "$src"/*; do cc -O1 -c "$f" -o "$TMPDIR/$(basename "$f").o"; done; ls "$TMPDIR" | wc -l > "$out"'}`,
			func(dir string) error {
				for i := range 200 {
					text := fmt.Sprintf("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"+
						"int f%d(int x) { char b[64]; snprintf(b, 64, \"%%d\", x); return strlen(b) + %d; }\n", i, i)
					if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%d.c", i)), []byte(text), 0o666); err != nil {
						return err
					}
				}
				return nil
			}},
		{"traced: Python pipeline", "python3", `{matrix: {n: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}, in: [src], out: o, run: 'python3 "$src/step.py" "$n" > "$out"'}`,
			func(dir string) error {
				return os.WriteFile(filepath.Join(dir, "step.py"), []byte(`import asyncio, csv, decimal, email, http.client, json, sqlite3, sys, unittest, xml.etree.ElementTree
n, t = int(sys.argv[1]), 0
for i in range(60000):
    t = (t * 31 + i * n) % 1000003
print(json.dumps({"n": n, "t": t}))
`), 0o666)
			}},
	} {
		if _, err := exec.LookPath(c.program); err != nil || !b.wants(c.name) || !trace.Possible() {
			continue
		}
		project := filepath.Join(b.dir, "traced")
		err := os.MkdirAll(filepath.Join(project, "src"), 0o777)
		if err == nil {
			err = c.write(filepath.Join(project, "src"))
		}
		if err == nil {
			text := "e3: 1\nname: p\ninputs:\n  src: {dir: src}\ntasks:\n  t: " + c.task + "\n"
			err = os.WriteFile(filepath.Join(project, "e3.yaml"), []byte(text), 0o666)
		}
		if err == nil {
			err = b.oneTraced(c.name, project)
		}
		os.RemoveAll(project)
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) oneTraced(name, project string) error {
	if _, err := spend(project, b.e3, "init", "r"); err != nil {
		return err
	}
	start := []string{b.e3, "start", "--force", "--concurrency", "1", "-f", "e3.yaml", "r", "p"}
	if _, err := spend(project, start...); err != nil { // warms caches
		return err
	}
	var with, looking, without []spent
	for range b.rounds {
		plain, err := spend(project, start...)
		if err != nil {
			return err
		}
		traced, err := spend(project, append(start[:len(start):len(start)], "--trace-files")...)
		if err != nil {
			return err
		}
		proposed, err := spend(project, append(start[:len(start):len(start)], "--propose")...)
		if err != nil {
			return err
		}
		with, looking, without = append(with, traced), append(looking, proposed), append(without, plain)
	}
	versusProcessor(name+" (peer: not traced)", with, without, 1.09)
	versusProcessor(name+", and what they look for", looking, without, 1.12)
	return nil
}

// versusProcessor prints a row of processor times.
func versusProcessor(name string, e3, peer []spent, target float64) {
	a, b := medians(e3), medians(peer)
	row(name, a.cpu, b.cpu, target, fmt.Sprintf("processor; wall: %s, %s", show(a.wall), show(b.wall)))
}
