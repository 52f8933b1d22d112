package exportimport_test

import (
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"e3/exportimport"
	"e3/internal/format/signature"
	"e3/internal/settings"
)

// A swapped zip has other content during some of its reads, and then the original content again.
type swapped struct {
	data, other []byte
	from, to    int64
	reads       atomic.Int64
}

func (z *swapped) ReadAt(p []byte, off int64) (int, error) {
	data := z.data
	if n := z.reads.Add(1); n > z.from && n <= z.to {
		data = z.other
	}
	n := copy(p, data[min(off, int64(len(data))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// If signatures are required, only signed content is imported, even if the file has other content outside of the
// signature check.
func TestNothingUnsignedSlipsIn(t *testing.T) {
	key, err := signature.Generate("Ann")
	if err != nil {
		t.Fatal(err)
	}
	files := sampleFiles(t, exportimport.ExportOptions{Key: key})
	data := storedZip(files)
	forged := slices.Clone(files)
	for i, f := range forged {
		switch {
		case strings.HasSuffix(f.name, "/stdout.txt"):
			forged[i].content = strings.ToUpper(f.content)
		case strings.HasPrefix(f.name, "events/"):
			forged[i].content = strings.ReplaceAll(f.content, "ann", "eve")
		case f.name == "provenance.beast2":
			forged[i].content = strings.ReplaceAll(f.content, "ann@alpha", "eve@alpha")
		}
	}
	other := storedZip(forged)
	if len(other) != len(data) {
		t.Fatalf("the forged zip has %d bytes, the signed one %d", len(other), len(data))
	}
	g := cleanTarget(t)
	o := exportimport.ImportOptions{NewWorkspace: true, RequireSigned: true, File: "x.zip", Workers: 1}
	trust := func() {
		t.Helper()
		_, err := settings.Update(g.s.ctx, g.s.repo.Records, func(all *settings.Settings) error {
			return all.Trust(settings.TrustedKey{Name: "ann", Key: key.Public()})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	trust()
	whole := &swapped{data: data, other: other}
	if _, err := g.read(whole, int64(len(data)), o); err != nil {
		t.Fatal(err)
	}
	want, all := g.s.imported(), whole.reads.Load()
	refusals := 0
	const steps = 24
	for i := range int64(steps) {
		for _, width := range []int64{1, 2, all / 20, all / 4} {
			g.renew()
			trust()
			from := i * all / steps
			_, err := g.read(&swapped{data: data, other: other, from: from, to: from + width}, int64(len(data)), o)
			if err != nil {
				refusals++
				continue
			}
			if got := g.s.imported(); !maps.Equal(got, want) {
				t.Errorf("another for reads %d to %d of %d: accepted, and not what was signed: %s", from, from+width, all, changes(want, got))
			}
		}
	}
	if refusals == 0 {
		t.Error("nothing was refused: the forged zip was never seen")
	}
}
