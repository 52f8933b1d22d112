package objectstore_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"e3/internal/testing/suite"
	"e3/objectstore"
)

// fill makes the contents of b depend on n.
func fill(b []byte, n int) { binary.LittleEndian.PutUint64(b, uint64(n)+1) }

func BenchmarkPutBytesNew(b *testing.B) {
	d := newDir(b)
	buf := make([]byte, 500)
	n := 0
	for b.Loop() {
		n++
		fill(buf, n)
		put(b, d, buf)
	}
}

func BenchmarkPutBytesPresent(b *testing.B) {
	d := newDir(b)
	buf := make([]byte, 500)
	for b.Loop() {
		put(b, d, buf)
	}
}

func BenchmarkMissing(b *testing.B) {
	d := newDir(b)
	var hs []objectstore.Hash
	for i := range 10_000 {
		buf := make([]byte, 8)
		fill(buf, i)
		hs = append(hs, put(b, d, buf))
	}
	for b.Loop() {
		if missing, err := d.Missing(b.Context(), hs); err != nil || len(missing) != 0 {
			b.Fatal(missing, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(hs)), "µs/object")
}

func BenchmarkAdoptSmall(b *testing.B) {
	base := b.TempDir()
	d := newDirIn(b, base)
	buf := make([]byte, 4096)
	os.Mkdir(filepath.Join(base, "out"), 0o777)
	path := func(n int) string { return filepath.Join(base, "out", fmt.Sprint(n)) }
	// The files are made in batches, outside of the measured time.
	const batch = 1000
	n := 0
	for b.Loop() {
		if n%batch == 0 {
			b.StopTimer()
			for i := range batch {
				fill(buf, n+i)
				os.WriteFile(path(n+i), buf, 0o644)
			}
			b.StartTimer()
		}
		if _, err := d.Adopt(b.Context(), suite.Paths{}, path(n)); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

func BenchmarkMaterializeSmall(b *testing.B) {
	base := b.TempDir()
	d := newDirIn(b, base)
	h := put(b, d, make([]byte, 4096))
	os.Mkdir(filepath.Join(base, "out"), 0o777)
	n := 0
	for b.Loop() {
		n++
		if err := d.Materialize(b.Context(), h, suite.Paths{}, filepath.Join(base, "out", fmt.Sprint(n)), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkFile(b *testing.B, run func(d *objectstore.Dir, f *os.File) (objectstore.Info, error)) {
	const size = 256 << 20
	base := b.TempDir()
	d := newDirIn(b, base)
	path := filepath.Join(base, "in")
	writeFile(b, path, 1, size)
	f := openFile(b, path)
	b.SetBytes(size)
	for b.Loop() {
		info, err := run(d, f)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		d.Delete(b.Context(), info.Hash)
		b.StartTimer()
	}
}

func BenchmarkPutFile256M(b *testing.B) {
	benchmarkFile(b, func(d *objectstore.Dir, f *os.File) (objectstore.Info, error) {
		return d.PutFile(b.Context(), f, objectstore.FileOptions{})
	})
}

// The floor of PutFile: hashing alone, in one goroutine.
func BenchmarkHashFile256M(b *testing.B) {
	buf := make([]byte, 1<<20)
	benchmarkFile(b, func(_ *objectstore.Dir, f *os.File) (info objectstore.Info, err error) {
		h := objectstore.NewHasher()
		f.Seek(0, 0)
		for n, err := f.Read(buf); n > 0 && err == nil; n, err = f.Read(buf) {
			h.Write(buf[:n])
		}
		info.Hash = h.Hash()
		return info, nil
	})
}

// BenchmarkSweep removes garbage by SweepShard on all cores, one object after the other by DeleteBefore, and like find
// -delete, without a check of each object.
func BenchmarkSweep(b *testing.B) {
	const objects = 20_000
	cutoff := time.Now().Add(time.Hour)
	none := func(objectstore.Hash) bool { return false }
	for name, sweep := range map[string]func(d *objectstore.Dir) error{
		"SweepShard": func(d *objectstore.Dir) error {
			var g errgroup.Group
			g.SetLimit(runtime.GOMAXPROCS(0))
			for i := range objectstore.Shards {
				g.Go(func() error {
					return d.SweepShard(b.Context(), byte(i), cutoff, none, func(objectstore.Entry) {})
				})
			}
			return g.Wait()
		},
		"DeleteBefore": func(d *objectstore.Dir) error {
			for e, err := range d.Walk(b.Context()) {
				if err == nil {
					_, err = d.DeleteBefore(b.Context(), e.Hash, cutoff)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
		"find": func(d *objectstore.Dir) error { return exec.Command("find", d.Path(), "-type", "f", "-delete").Run() },
	} {
		b.Run(name, func(b *testing.B) {
			d := newDir(b)
			buf := make([]byte, 500)
			for b.Loop() {
				b.StopTimer()
				for i := range objects {
					fill(buf, i)
					put(b, d, buf)
				}
				b.StartTimer()
				if err := sweep(d); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/objects, "µs/object")
		})
	}
}
