package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"e3/objectstore"
)

// archives measures exports, imports and collections.
func (b *bench) archives() error {
	if b.wants("export") || b.wants("import") {
		if err := b.export("compressible", compressible); err != nil {
			return err
		}
		if err := b.export("incompressible", incompressible); err != nil {
			return err
		}
	}
	if !b.wants("gc") {
		return nil
	}
	for _, kept := range []int{0, 50_000} {
		if err := b.collect(100_000, kept); err != nil {
			return err
		}
	}
	return nil
}

// archiveSize is the size of an export, in files of archiveFile bytes.
const (
	archiveSize = 1 << 30
	archiveFile = 16 << 20
)

// compressible fills a block with lines like those of measuring stations.
func compressible(r *rand.Rand, block []byte) {
	for at := 0; at < len(block); {
		line := fmt.Appendf(nil, "2026-%02d-%02dT%02d:%02d:%02dZ,station-%03d,%d.%02d,%d,%s\n",
			1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(400), r.IntN(40), r.IntN(100), 900+r.IntN(150),
			[]string{"ok", "ok", "ok", "suspect", "missing"}[r.IntN(5)])
		at += copy(block[at:], line)
	}
}

func incompressible(r *rand.Rand, block []byte) {
	for i := range block {
		if i%8 == 0 {
			v := r.Uint64()
			for k := 0; k < 8 && i+k < len(block); k++ {
				block[i+k] = byte(v >> (8 * k))
			}
		}
	}
}

// export compares an export of a folder with zip, or with cp and a sync, and its import with unzip.
func (b *bench) export(name string, fill func(*rand.Rand, []byte)) error {
	dir := filepath.Join(b.dir, "archive")
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "project", "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(1, 2))
	block := make([]byte, archiveFile)
	for i := range archiveSize / archiveFile {
		fill(r, block)
		if err := os.WriteFile(filepath.Join(data, fmt.Sprintf("f%03d", i)), block, 0o644); err != nil {
			return err
		}
	}
	project := filepath.Dir(data)
	manifest := "e3: 1\nname: bench\ninputs:\n  data: {dir: data}\ntasks:\n  count: {in: [data], out: n, run: 'ls \"$data\" | wc -l > \"$out\"'}\n"
	if err := os.WriteFile(filepath.Join(project, "e3.yaml"), []byte(manifest), 0o644); err != nil {
		return err
	}
	if _, _, err := timed(project, b.e3, "start", "-f", "e3.yaml"); err != nil {
		return err
	}
	var export, zip, cp, imported, unzip []time.Duration
	var ours, theirs, memory int64
	for range min(b.rounds, 3) {
		out := filepath.Join(dir, "e3.zip")
		t, peak, err := timed(project, b.e3, "workspace", "export", "--force", ".", "bench", out)
		if err != nil {
			return err
		}
		export, ours, memory = append(export, t), fileSize(out), max(memory, peak)
		if have("zip") {
			other := filepath.Join(dir, "zip.zip")
			if t, _, err = timed(project, "zip", "-1", "-q", "-r", other, "data"); err != nil {
				return err
			}
			zip, theirs = append(zip, t), fileSize(other)
			os.Remove(other)
		}
		if t, _, err = timed(project, "cp", "-r", "data", filepath.Join(dir, "copy")); err != nil {
			return err
		}
		u, _, err := timed(dir, "sync", "-f", "copy") // an export is synced before it has its name
		if err != nil {
			return err
		}
		cp = append(cp, t+u)
		os.RemoveAll(filepath.Join(dir, "copy"))

		there := filepath.Join(dir, "there")
		if _, _, err = timed(dir, b.e3, "init", there); err != nil {
			return err
		}
		if t, peak, err = timed(dir, b.e3, "package", "import", there, out); err != nil {
			return err
		}
		imported, memory = append(imported, t), max(memory, peak)
		os.RemoveAll(there)
		if have("unzip") {
			if t, _, err = timed(dir, "unzip", "-q", out, "-d", there); err != nil {
				return err
			}
			unzip = append(unzip, t)
			os.RemoveAll(there)
		}
	}
	note := fmt.Sprintf("peak %d MiB", memory>>10)
	if name == "compressible" && len(zip) > 0 {
		row("export 1 GiB "+name+" (zip -1 -r)", median(export), median(zip), 1.0/3, fmt.Sprintf("size %.3f x; %s", float64(ours)/float64(theirs), note))
	} else {
		row("export 1 GiB "+name+" (cp -r and sync)", median(export), median(cp), 1.2, note)
	}
	if len(unzip) > 0 {
		row("import 1 GiB "+name+" (unzip)", median(imported), median(unzip), 1, "")
	}
	return nil
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// collect compares a collection of objects, some of which an input keeps, with deleting their files.
func (b *bench) collect(objects, kept int) error {
	dir := filepath.Join(b.dir, "garbage")
	defer os.RemoveAll(dir)
	var gc, find []time.Duration
	var memory int64
	for range min(b.rounds, 3) {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		root := filepath.Join(dir, ".e3")
		if err := b.garbage(dir, root, objects, kept); err != nil {
			return err
		}
		twin := filepath.Join(dir, "twin")
		if _, _, err := timed(dir, "cp", "-r", filepath.Join(root, "objects"), twin); err != nil {
			return err
		}
		if _, _, err := timed(dir, "sync"); err != nil {
			return err
		}
		t, _, err := timed(dir, "find", twin, "-type", "f", "-delete")
		if err != nil {
			return err
		}
		find = append(find, t)
		t, peak, err := timed(dir, b.e3, "gc", ".")
		if err != nil {
			return err
		}
		gc, memory = append(gc, t), max(memory, peak)
	}
	row(fmt.Sprintf("gc %dk objects, %dk kept (find)", objects/1000, kept/1000), median(gc), median(find), 2, fmt.Sprintf("peak %d MiB", memory>>10))
	return nil
}

// garbage makes a repository with small objects, the first of which a folder input keeps.
func (b *bench) garbage(dir, root string, objects, kept int) error {
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	for i := range kept {
		if err := os.WriteFile(filepath.Join(data, strconv.Itoa(i)), fmt.Appendf(nil, "object %d\n", i), 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "e3.yaml"), []byte("e3: 1\nname: bench\ninputs:\n  data: {dir: data}\ntasks:\n  t: {in: [data], out: o, run: 'touch \"$out\"'}\n"), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"init"}, {"workspace", "create", ".", "bench"}, {"workspace", "deploy", ".", "bench", "e3.yaml"}} {
		if _, _, err := timed(dir, append([]string{b.e3}, args...)...); err != nil {
			return err
		}
	}
	store, err := objectstore.OpenDir(filepath.Join(root, "objects"), objectstore.Options{})
	if err != nil {
		return err
	}
	for i := kept; i < objects; i++ {
		if _, err := store.PutBytes(context.Background(), fmt.Appendf(nil, "object %d\n", i)); err != nil {
			return err
		}
	}
	return nil
}
