package exportimport_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"e3/exportimport"
	"e3/internal/format/eastref"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/settings"
	"e3/internal/testing/suite"
	"e3/objectstore"
)

// A zip that was truncated anywhere is refused.
func TestCutOff(t *testing.T) {
	suite.WithoutRace(t)
	data := rawZipOf(sampleFiles(t, exportimport.ExportOptions{})).bytes()
	cuts := map[int]bool{0: true, 1: true}
	for i := 0; i+4 <= len(data); i++ {
		switch string(data[i : i+4]) {
		case "PK\x01\x02", "PK\x03\x04", "PK\x05\x06":
			for _, n := range []int{-1, 0, 1, 4, 21, 22, 30, 46} {
				cuts[i+n] = true
			}
		}
	}
	rnd := rand.New(rand.NewPCG(3, 3))
	for range 100 {
		cuts[rnd.IntN(len(data))] = true
	}
	g := newTarget(t)
	for _, n := range slices.Sorted(maps.Keys(cuts)) {
		if n < 0 || n >= len(data) {
			continue
		}
		if _, err := g.try(data[:n], exportimport.ImportOptions{NewWorkspace: true}); !errors.Is(err, exportimport.ErrIntegrity) {
			t.Errorf("cut off after %d of %d bytes: got %v", n, len(data), err)
		}
		// The same with the end appended again, so that only a part in the middle is missing.
		end := bytes.LastIndex(data, []byte("PK\x05\x06"))
		if n > 0 && n < end-1 {
			hole := append(bytes.Clone(data[:n]), data[n+1:]...)
			if _, err := g.try(hole, exportimport.ImportOptions{NewWorkspace: true}); !errors.Is(err, exportimport.ErrIntegrity) {
				t.Errorf("without byte %d of %d: got %v", n, len(data), err)
			}
		}
	}
}

// imported returns the files of a repository's state that an import writes.
func (s *site) imported() map[string]string {
	s.t.Helper()
	all := map[string]string{}
	for name, text := range s.state() {
		switch top, _, _ := strings.Cut(filepath.ToSlash(name), "/"); top {
		case "executions", "dataflows", "events", "packages", "workspaces":
			all[name] = text
		}
	}
	return all
}

// importedFrom returns these files after the import of a valid zip.
func importedFrom(t testing.TB, data []byte, o exportimport.ImportOptions) map[string]string {
	t.Helper()
	g := cleanTarget(t)
	if _, err := g.try(data, o); err != nil {
		t.Fatal(err)
	}
	return g.s.imported()
}

// An export with a flipped bit is refused, or has the same effect as the original.
func TestFlippedBits(t *testing.T) {
	data := rawZipOf(sampleFiles(t, exportimport.ExportOptions{})).bytes()
	o := exportimport.ImportOptions{NewWorkspace: true, File: "x.zip"}
	want := importedFrom(t, data, o)
	flips := 600
	if testing.Short() {
		flips = 60
	}
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	accepted := 0
	g := cleanTarget(t)
	for range flips {
		bit := rnd.IntN(8 * len(data))
		flipped := bytes.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		if _, err := g.try(flipped, o); err != nil {
			if !errors.Is(err, exportimport.ErrIntegrity) {
				t.Errorf("bit %d (seed %d): got %v", bit, seed, err)
			}
			continue
		}
		accepted++
		if got := g.s.imported(); !maps.Equal(got, want) {
			t.Errorf("bit %d (seed %d): accepted, and not the same: %s", bit, seed, changes(want, got))
		}
		g.renew()
	}
	t.Logf("%d of %d were accepted", accepted, flips)
}

// A shifty zip changes from one content to another after some reads.
type shifty struct {
	first, second []byte
	after         int64
	reads         atomic.Int64
}

func (z *shifty) ReadAt(p []byte, off int64) (int, error) {
	data := z.first
	if z.reads.Add(1) > z.after {
		data = z.second
	}
	if off >= int64(len(data)) {
		return 0, io.EOF
	}
	n := copy(p, data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// storedZip is a zip without compression, so that a change in an entry moves no other bytes.
func storedZip(files []file) []byte {
	z := &rawZip{}
	for _, f := range files {
		z.parts = append(z.parts, storedPart(f.name, 0, []byte(f.content), []byte(f.content)))
	}
	return z.bytes()
}

// A zip that changes during the import is never mixed with the earlier one: it is refused, or imported as one of the
// two. After a late refusal the repository has no faults.
func TestZipThatChanges(t *testing.T) {
	files := unlisted(sampleFiles(t, exportimport.ExportOptions{}))
	data := storedZip(files)
	change := func(prefix, suffix string, with func(string) string) []byte {
		other := slices.Clone(files)
		for i, f := range other {
			if strings.HasPrefix(f.name, prefix) && strings.HasSuffix(f.name, suffix) {
				other[i].content = with(f.content)
			}
		}
		return storedZip(other)
	}
	status := func(change func(*record.Status)) func(string) string {
		return func(text string) string {
			s, err := record.DecodeStatus([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			change(s)
			return string(s.Encode())
		}
	}
	first := unbundle(t, files).byName("first").status.OutputHash
	renamed := slices.Clone(files)
	for i := range renamed {
		renamed[i].name = strings.Replace(strings.Replace(renamed[i].name, "executions/", "../../evil/", 1), "dataflows/", "../../evi/", 1)
	}
	others := map[string][]byte{
		"cut off":       data[:len(data)/3],
		"empty":         nil,
		"zeros":         make([]byte, len(data)),
		"names":         storedZip(renamed),
		"other logs":    change("executions/", "stdout.txt", strings.ToUpper),
		"other outputs": change("executions/", "status.beast2", status(func(s *record.Status) { s.OutputHash = strings.Repeat("1", 64) })),
		"other outputs and their files": change("executions/", "", func(s string) string {
			return strings.ReplaceAll(s, first, strings.Repeat("1", 64))
		}),
		"other inputs":    change("executions/", "status.beast2", status(func(s *record.Status) { s.InputHashes[0] = strings.Repeat("1", 64) })),
		"other details":   change("executions/", "detail.beast2", strings.ToUpper),
		"other events":    change("events/", "", func(s string) string { return strings.Repeat("x", len(s)-1) + "\n" }),
		"other run":       change("events/", "", func(s string) string { return strings.ReplaceAll(s, "prod", "evil") }),
		"other objects":   change("objects/", "", func(s string) string { return strings.Repeat("x", len(s)) }),
		"other package":   change("packages/", "", func(s string) string { return strings.Repeat("1", 64) + "\n" }),
		"other workspace": change("workspaces/", "", func(s string) string { return strings.Repeat("\x00", len(s)) }),
	}
	o := exportimport.ImportOptions{NewWorkspace: true, File: "x.zip", Workers: 1}
	rnd := rand.New(rand.NewPCG(5, 5))
	want := importedFrom(t, data, o)
	for what, other := range others {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			g := cleanTarget(t)
			whole := &shifty{first: data, after: 1 << 62}
			if _, err := g.read(whole, int64(len(data)), o); err != nil {
				t.Fatal(err)
			}
			all := whole.reads.Load()
			steps := int64(16)
			if testing.Short() {
				steps = 6
			}
			var allowed []map[string]string // the state after an import of the other zip, if that is valid
			g.renew()
			if _, err := g.try(other, o); err == nil {
				allowed = append(allowed, g.s.imported())
			}
			for i := range steps {
				g.renew()
				after := (all*i + rnd.Int64N(all)) / steps
				_, err := g.read(&shifty{first: data, second: other, after: after}, int64(len(data)), o)
				got := g.s.imported()
				if err == nil {
					if !maps.Equal(got, want) && !slices.ContainsFunc(allowed, func(other map[string]string) bool { return maps.Equal(got, other) }) {
						t.Errorf("another after %d of %d reads: accepted, and it is neither: %s", after, all, changes(want, got))
					}
					continue
				}
				g.whole()
				for name, text := range got {
					known := want[name] == text || slices.ContainsFunc(allowed, func(other map[string]string) bool { return other[name] == text })
					if !known && !(strings.HasPrefix(name, "events") && text == "") {
						t.Errorf("another after %d of %d reads: refused (%v), and %s has got in, but not as it was", after, all, err, name)
					}
				}
				// The import can be repeated.
				if _, err := g.read(bytes.NewReader(data), int64(len(data)), o); err != nil {
					t.Errorf("another after %d of %d reads, and repeated: %v", after, all, err)
				} else if got := g.s.imported(); !maps.Equal(got, want) {
					t.Errorf("another after %d of %d reads, and repeated: %s", after, all, changes(want, got))
				}
			}
		})
	}
}

// A signature is valid for one zip only, and cannot be made without the key.
func TestHostileSignatures(t *testing.T) {
	key, err := signature.Generate("Ann")
	if err != nil {
		t.Fatal(err)
	}
	other, err := signature.Generate("Eve")
	if err != nil {
		t.Fatal(err)
	}
	good := sampleFiles(t, exportimport.ExportOptions{Key: key})
	another := sampleFiles(t, exportimport.ExportOptions{Key: key})
	at := len(good) - 1
	if good[at].name != signature.EntryName {
		t.Fatalf("the last entry is %s", good[at].name)
	}
	sign := func(change func(*signature.Signature)) func([]file) []file {
		return func(files []file) []file {
			s, err := signature.Decode([]byte(files[at].content))
			if err != nil {
				t.Fatal(err)
			}
			change(s)
			files[at].content = string(s.Encode())
			return files
		}
	}
	text := func(old, with string) func([]file) []file {
		return func(files []file) []file {
			files[at].content = strings.Replace(files[at].content, old, with, 1)
			return files
		}
	}
	content := func(prefix, suffix string, change func(*file)) func([]file) []file {
		return func(files []file) []file {
			for i := range files {
				if strings.HasPrefix(files[i].name, prefix) && strings.HasSuffix(files[i].name, suffix) {
					change(&files[i])
					break
				}
			}
			return files
		}
	}
	trusting := newTarget(t)
	_, err = settings.Update(trusting.s.ctx, trusting.s.repo.Records, func(all *settings.Settings) error {
		return all.Trust(settings.TrustedKey{Name: "ann", Key: key.Public()})
	})
	if err != nil {
		t.Fatal(err)
	}
	trusting.before = trusting.s.state()
	const changed = "the content is not what was signed"
	for what, c := range map[string]struct {
		change func([]file) []file
		want   string
	}{
		"of another zip":     {func(f []file) []file { f[at].content = another[len(another)-1].content; return f }, changed},
		"changed log":        {content("executions/", "stdout.txt", func(f *file) { f.content = strings.ToUpper(f.content) }), changed},
		"log that is gone":   {content("executions/", "stdout.txt", func(f *file) { f.name = "future/x" }), changed},
		"changed provenance": {content("provenance.beast2", "", func(f *file) { f.content = strings.Replace(f.content, "ann@alpha", "eve@alpha", 1) }), changed},
		"more entries":       {func(f []file) []file { return append(f, file{"future/x", "x"}) }, changed},
		"a folder more":      {func(f []file) []file { return append(f, file{"future/", ""}) }, changed},
		"an object more": {func(f []file) []file {
			h := objectstore.Sum([]byte("x")).String()
			return append(f, file{"objects/" + h[:2] + "/" + h[2:], "x"})
		}, changed},
		"an object under a name that the reference would write": {content("objects/", "", func(f *file) { f.name += ".beast2" }), changed},
		"another order":             {func(f []file) []file { f[0], f[1] = f[1], f[0]; return f }, changed},
		"object with other content": {content("objects/", "", func(f *file) { f.content += "x" }), "is corrupt"},
		"twice":                     {func(f []file) []file { return append(f, f[at]) }, "more than one entry"},
		"other bytes":               {sign(func(s *signature.Signature) { s.Bytes[0] ^= 1 }), "it was not made with the key"},
		"other name":                {sign(func(s *signature.Signature) { s.Name = "Bob" }), "it was not made with the key"},
		"key of another":            {sign(func(s *signature.Signature) { s.Key = other.Public() }), "it was not made with the key"},
		"signed by another":         {sign(func(s *signature.Signature) { *s = *other.Sign(s.Manifest) }), "trust"},
		"none":                      {func(f []file) []file { return f[:at] }, "sign"},
		"none, in capitals":         {func(f []file) []file { f[at].name = "SIGNATURE.JSON"; return f }, "sign"},
		"name with an escape":       {text(`"name":"Ann"`, `"name":"\u001b[31mAnn"`), "bad signature"},
		"name with a line break":    {text(`"name":"Ann"`, `"name":"Ann\n"`), "bad signature"},
		"long name":                 {text(`"name":"Ann"`, `"name":"`+strings.Repeat("A", 1000)+`"`), "bad signature"},
		"members twice":             {text(`"name":"Ann"`, `"name":"Ann","name":"Ann"`), "bad signature"},
		"newer form":                {text(`"version":1`, `"version":2`), "use a newer e3"},
		"no JSON":                   {func(f []file) []file { f[at].content = "x"; return f }, "bad signature"},
		"deep JSON":                 {func(f []file) []file { f[at].content = strings.Repeat("[", 4000); return f }, "bad signature"},
		"large":                     {func(f []file) []file { f[at].content += strings.Repeat(" ", 5000); return f }, "such an entry has at most 4096"},
	} {
		t.Run(what, func(t *testing.T) {
			trusting.in(t)
			_, err := trusting.try(zipped(t, c.change(slices.Clone(good))), exportimport.ImportOptions{NewWorkspace: true, RequireSigned: true})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := trusting.try(zipped(t, good), exportimport.ImportOptions{NewWorkspace: true, RequireSigned: true}); err != nil {
		t.Errorf("as it was signed: %v", err)
	}
}

// Objects with a header of the reference and other content.
func TestHostileReferenceObjects(t *testing.T) {
	zips := []string{"golden-1.0.0.package-export.zip", "run1-all-executed.zip", "run2-failed-forced.zip"}
	if testing.Short() {
		zips = zips[:1]
	}
	for _, zip := range zips {
		files := unpack(t, filepath.Join("testdata/reference", zip))
		g := newTarget(t)
		for i, f := range files {
			isObject := strings.HasPrefix(f.name, "objects/")
			what := "bytes"
			switch data := []byte(f.content); {
			case isObject && eastref.IsTask(data):
				what = "a task"
			case isObject && eastref.IsPackage(data):
				what = "a package"
			}
			for name, content := range map[string]string{
				"cut off": f.content[:len(f.content)/2], "longer": f.content + "\x00", "many": f.content[:min(len(f.content), 200)] + manyEntries,
				"deep": f.content[:min(len(f.content), 40)] + strings.Repeat("\x00\x01", 100_000), "back": f.content[:min(len(f.content), 200)] + strings.Repeat("\x01", 1000),
			} {
				// All references to the object are changed to the new one.
				swapped := slices.Clone(files)
				swapped[i].content = content
				if isObject {
					was, is := strings.TrimSuffix(strings.ReplaceAll(f.name[len("objects/"):], "/", ""), ".beast2"), objectstore.Sum([]byte(content)).String()
					swapped = renameObjects(swapped, map[string]string{was: is})
				}
				_, err := g.try(zipped(t, swapped), exportimport.ImportOptions{NewWorkspace: true, Workspace: "golden"})
				if err == nil {
					g.renew()
					if what != "bytes" {
						t.Errorf("%s: %s that is %s (%s) was accepted", zip, what, name, f.name)
					}
				}
			}
		}
	}
}

// renameObjects replaces hashes in the names and the content of files. Objects whose content changes thereby are
// renamed in turn.
func renameObjects(files []file, renamed map[string]string) []file {
	for len(renamed) > 0 {
		next := map[string]string{}
		for i := range files {
			f := &files[i]
			for was, is := range renamed {
				f.name = strings.Replace(strings.Replace(f.name, was, is, 1), "objects/"+was[:2]+"/"+was[2:], "objects/"+is[:2]+"/"+is[2:], 1)
				if !strings.Contains(f.content, was) {
					continue
				}
				f.content = strings.ReplaceAll(f.content, was, is)
				if name, ok := strings.CutPrefix(f.name, "objects/"); ok {
					old := strings.TrimSuffix(strings.ReplaceAll(name, "/", ""), ".beast2")
					next[old] = objectstore.Sum([]byte(f.content)).String()
				}
			}
		}
		renamed = next
	}
	return files
}

// Provenance can hold any text, which is kept without other effects.
func TestHostileProvenance(t *testing.T) {
	b := unbundle(t, sampleFiles(t, exportimport.ExportOptions{}))
	b.export.By, b.export.Repository = "\x1b]0;evil\a", "../../../\x00\n"
	b.export.Earlier = []record.ExportGroup{{
		Steps:      []record.Step{{By: "\x1b[2J", Repository: "..", ImportedBy: "\r"}},
		Executions: []string{b.execs[0].status.ExecutionID}, Runs: []string{b.run.RunID},
	}}
	g := newTarget(t)
	res, err := g.try(b.packed(), exportimport.ImportOptions{NewWorkspace: true})
	if err != nil {
		t.Fatal(err)
	}
	if res.From != b.export.By {
		t.Errorf("it comes from %q, want %q", res.From, b.export.By)
	}
	// The next export has it unchanged.
	path, _ := g.s.export("prod", exportimport.ExportOptions{})
	newSite(t, "cid@gamma").importZip(path, exportimport.ImportOptions{NewWorkspace: true})
}

// Many entries of one kind cause few notes.
func TestManyNotes(t *testing.T) {
	b := unbundle(t, sampleFiles(t, exportimport.ExportOptions{}))
	for i := range 200 {
		e := *b.execs[0]
		e.status.State, e.status.ExecutionID = record.Running, fmt.Sprintf("%s%03x", otherID[:33], i)
		b.execs = append(b.execs, &e)
		b.extra = append(b.extra, file{fmt.Sprintf("future/%d", i), ""})
		leaf := record.Leaf{Kind: record.LeafFile, Hash: fmt.Sprintf("%064x", i+1)}
		b.pkg.Inputs = append(b.pkg.Inputs, record.PackageInput{Name: fmt.Sprintf("more%d", i), NoExport: true, Default: leaf})
		b.inputs = b.inputs.Set(fmt.Sprintf("more%d", i), leaf)
	}
	g := newTarget(t)
	res, err := g.try(b.packed(), exportimport.ImportOptions{NewWorkspace: true})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(res.Notes); n > 50 {
		t.Errorf("there are %d notes", n)
	}
}
