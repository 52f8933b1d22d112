package exportimport_test

import (
	"flag"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/exportimport"
	"e3/internal/testing/suite"
	"e3/objectstore"
)

// sampleZip is a small export of a workspace that was run. The findings of fuzzers refer to its bytes.
const sampleZip = "testdata/hostile/sample.zip"

// Bounds of the resources of an import of a fuzzer's input.
const (
	maxFuzzTime  = 20 * time.Second
	maxFuzzAlloc = 1 << 30 // bytes in all, whether they were given back or not
)

// fuzzTarget makes a repository for a fuzzer, which is reused for the next input as long as no import succeeds.
func fuzzTarget(f *testing.F) func(t *testing.T, data []byte) {
	g := newTarget(f)
	return func(t *testing.T, data []byte) {
		g.in(t)
		allocated := allocatedBytes()
		suite.Cheap(t, maxFuzzTime, func() {
			for _, o := range []exportimport.ImportOptions{{}, {NewWorkspace: true, Workspace: "w"}, {DryRun: true}} {
				if _, err := g.try(data, o); err == nil && !o.DryRun {
					g.renew()
				}
			}
		})
		if n := allocatedBytes() - allocated; n > 3*maxFuzzAlloc {
			t.Errorf("it took %d MB of memory", n>>20)
		}
	}
}

func allocatedBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func sampleOnDisk(t testing.TB) []file {
	t.Helper()
	return unpack(t, sampleZip)
}

// FuzzImport imports any bytes: they are refused completely, or the repository has no faults afterwards.
func FuzzImport(f *testing.F) {
	whole, err := os.ReadFile(sampleZip)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole) // small ones are in the corpus
	f.Fuzz(fuzzTarget(f))
}

// FuzzEntries imports the sample with one thing changed in it: bytes of an entry, or of its name. Sizes and checksums
// are right, and, if links is set, references to a changed object are updated.
func FuzzEntries(f *testing.F) {
	suite.WithoutRace(f)
	files := sampleOnDisk(f)
	for i, e := range files {
		f.Add(uint16(i), uint32(len(e.content)/2), uint16(1), []byte("x"), true, false)
		f.Add(uint16(i), uint32(len(e.content)), uint16(0), []byte("\x00"), true, false)
	}
	f.Add(uint16(0), uint32(0), uint16(7), []byte("../"), false, true)
	try := fuzzTarget(f)
	f.Fuzz(func(t *testing.T, entry uint16, offset uint32, remove uint16, insert []byte, links, name bool) {
		changed := slices.Clone(files)
		i := int(entry) % len(changed)
		at := &changed[i].content
		if name {
			at = &changed[i].name
		}
		before := changed[i]
		off := int(offset) % (len(*at) + 1)
		end := min(off+int(remove), len(*at))
		*at = (*at)[:off] + string(insert) + (*at)[end:]
		if rest, ok := strings.CutPrefix(before.name, "objects/"); ok && links && !name {
			changed = renameObjects(changed, map[string]string{
				strings.ReplaceAll(rest, "/", ""): objectstore.Sum([]byte(changed[i].content)).String(),
			})
		}
		try(t, storedZip(changed))
	})
}

var update = flag.Bool("update", false, "make the sample of the fuzzers anew, after a change of the format")

// The corpora must exist, since a fuzzer without one tests nothing.
func TestFuzzCorpora(t *testing.T) {
	if *update {
		if err := os.WriteFile(sampleZip, storedZip(sampleFiles(t, exportimport.ExportOptions{})), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"FuzzImport", "FuzzEntries"} {
		list, err := filepath.Glob(filepath.Join("testdata/fuzz", name, "*"))
		if err != nil || len(list) == 0 {
			t.Errorf("%s has no corpus: %v", name, err)
		}
	}
	g := newTarget(t)
	data, err := os.ReadFile(sampleZip)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.try(data, exportimport.ImportOptions{NewWorkspace: true}); err != nil {
		t.Errorf("the sample itself: %v", err)
	}
}
