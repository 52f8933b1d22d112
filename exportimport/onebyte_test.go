package exportimport_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"e3/exportimport"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/testing/suite"
	"e3/objectstore"
)

// number reads a number from the environment.
func number(t testing.TB, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// chance returns a source of random numbers seeded by E3_TEST_SEED, or by a random seed that it logs.
func chance(t testing.TB) *rand.Rand {
	t.Helper()
	seed := number(t, "E3_TEST_SEED", rand.Uint64())
	t.Logf("E3_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 12))
}

// otherByte changes one byte of an entry.
func otherByte(rnd *rand.Rand, f *file) {
	at := rnd.IntN(len(f.content))
	f.content = f.content[:at] + string(f.content[at]^byte(1+rnd.IntN(255))) + f.content[at+1:]
}

// refusedBy imports a zip and does a dry run of that; both must refuse it. It returns whether they did.
func (g *target) refusedBy(data []byte, o exportimport.ImportOptions) bool {
	g.t.Helper()
	dry := o
	dry.DryRun = true
	_, foreseen := g.try(data, dry)
	_, err := g.try(data, o)
	if (foreseen == nil) != (err == nil) || err != nil && foreseen.Error() != err.Error() {
		g.t.Errorf("a dry run says %v, the import %v", foreseen, err)
	}
	if err == nil {
		g.renew()
	}
	return err != nil
}

// Any changed byte of an entry is detected, even in unsigned zips, even if the checksums of the zip were made after the
// change, and even if the repository has all the right data already. E3_TEST_BYTES is the number of trials.
func TestAnyByteOfAnEntry(t *testing.T) {
	suite.WithoutRace(t)
	files := sampleFiles(t, exportimport.ExportOptions{AllHistory: true})
	rnd := chance(t)
	count := uint64(400)
	if testing.Short() {
		count = 100
	}
	count = number(t, "E3_TEST_BYTES", count)
	targets := []*target{newTarget(t), newTarget(t)}
	if _, err := targets[1].try(zipped(t, files), exportimport.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	targets[1].before = targets[1].s.state()
	accepted := 0
	for range count {
		changed := slices.Clone(files)
		i := rnd.IntN(len(changed))
		if changed[i].content == "" {
			continue
		}
		otherByte(rnd, &changed[i])
		for _, g := range targets {
			if !g.refusedBy(zipped(t, changed), exportimport.ImportOptions{NewWorkspace: true, Workspace: "w"}) {
				accepted++
				t.Errorf("accepted with another byte in %s", changed[i].name)
			}
		}
	}
	t.Logf("%d of %d were accepted", accepted, 2*count)
}

// The list of sums covers the whole zip: unlisted, missing and repeated entries are refused. Another order of entries
// and additional folders are accepted.
func TestListOfSums(t *testing.T) {
	files := sampleFiles(t, exportimport.ExportOptions{})
	at := slices.IndexFunc(files, func(f file) bool { return f.name == "SHA256SUMS" })
	log := slices.IndexFunc(files, func(f file) bool { return strings.HasSuffix(f.name, "/stdout.txt") })
	if at != len(files)-1 {
		t.Fatalf("the last entry is %s", files[len(files)-1].name)
	}
	first, _, _ := strings.Cut(files[at].content, "\n")
	g := newTarget(t)
	for what, c := range map[string]struct {
		change func([]file) []file
		want   string // "" if it is imported
	}{
		"as it is":          {func(f []file) []file { return f }, ""},
		"another order":     {func(f []file) []file { f[0], f[1], f[at] = f[at], f[0], f[1]; return f }, ""},
		"with folders":      {func(f []file) []file { return append([]file{{"objects/", ""}}, f...) }, ""},
		"a log that is not": {func(f []file) []file { return slices.Delete(f, log, log+1) }, "it lists what is not in the zip"},
		"another log":       {func(f []file) []file { f[log].content = "bye\n"; return f }, "it is damaged"},
		"an object more":    {func(f []file) []file { return append(f, file{"objects/" + objectName("x"), "x"}) }, "SHA256SUMS does not list it"},
		"something more":    {func(f []file) []file { return append(f, file{"future/x", ""}) }, "SHA256SUMS does not list it"},
		"a line twice":      {func(f []file) []file { f[at].content += first + "\n"; return f }, "does not list each entry once"},
		"twice, for another": {func(f []file) []file {
			f[at].content = first + "\n" + f[at].content
			f[at].content = f[at].content[:strings.LastIndexByte(f[at].content[:len(f[at].content)-1], '\n')+1]
			return f
		}, "SHA256SUMS does not list it"},
		"a line less":        {func(f []file) []file { f[at].content = f[at].content[len(first)+1:]; return f }, "SHA256SUMS does not list it"},
		"a line cut off":     {func(f []file) []file { f[at].content = strings.TrimSuffix(f[at].content, "\n"); return f }, "its last line is cut off"},
		"a long line":        {func(f []file) []file { f[at].content += strings.Repeat("x", 5000) + "\n"; return f }, "has more than"},
		"a sum that is none": {func(f []file) []file { f[at].content = "\x1b" + f[at].content[1:]; return f }, `SHA256SUMS says \x1b`},
		"many lines":         {func(f []file) []file { f[at].content = strings.Repeat(first+"\n", 10_000); return f }, "does not list it"},
		"nothing":            {func(f []file) []file { f[at].content = ""; return f }, "does not list it"},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			g.in(t)
			for _, dry := range []bool{true, false} {
				_, err := g.try(zipped(t, c.change(slices.Clone(files))), exportimport.ImportOptions{NewWorkspace: true, DryRun: dry})
				switch {
				case err == nil && c.want != "":
					t.Errorf("accepted, want %q", c.want)
				case err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want) || !errors.Is(err, exportimport.ErrIntegrity)):
					t.Errorf("got %v, want %q", err, c.want)
				case err == nil && !dry:
					g.renew()
				}
			}
		})
	}
}

// objectName is the name of an object in a folder of objects.
func objectName(content string) string {
	h := objectstore.Sum([]byte(content)).String()
	return h[:2] + "/" + h[2:]
}

// resummed makes the list of sums again, so that only contradictions can be detected.
func resummed(files []file) []file {
	files = unlisted(files)
	var sums []byte
	for _, f := range files {
		sums = signature.AppendLine(sums, f.name, objectstore.Sum([]byte(f.content)))
	}
	return append(files, file{"SHA256SUMS", string(sums)})
}

// runsOf makes exports of runs of several kinds.
func runsOf(t *testing.T) map[string][]file {
	t.Helper()
	all := map[string][]file{}
	export := func(name, text string, do func(s *site)) {
		s := newSite(t, "ann@alpha")
		s.write("text.txt", "some text")
		s.deploy("w", text)
		do(s)
		path, _ := s.export("w", exportimport.ExportOptions{})
		all[name] = unpack(t, path)
	}
	export("completed", chain, func(s *site) { s.start("w") })
	export("cached", chain, func(s *site) { s.start("w"); s.start("w") })
	export("filtered", chain, func(s *site) { s.start("w", filtered("first")) })
	export("failed", strings.Replace(chain, "cat $out. $f.", "fail", 1), func(s *site) { s.start("w") })
	return all
}

// A changed byte of a run's record is detected even if the list of sums was made after the change, because the record
// then contradicts the run's events, its executions, or itself. E3_TEST_RUNS is the number of trials for each run.
func TestAnyByteOfARun(t *testing.T) {
	rnd := chance(t)
	count := number(t, "E3_TEST_RUNS", 60)
	g := newTarget(t)
	accepted, tried := 0, 0
	for name, files := range runsOf(t) {
		at := slices.IndexFunc(files, func(f file) bool { return strings.HasPrefix(f.name, "dataflows/") })
		was, err := record.DecodeRun([]byte(files[at].content))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.try(zipped(t, resummed(files)), exportimport.ImportOptions{NewWorkspace: true, DryRun: true}); err != nil {
			t.Fatalf("%s, as it is: %v", name, err)
		}
		for range count {
			changed := slices.Clone(files)
			otherByte(rnd, &changed[at])
			is, err := record.DecodeRun([]byte(changed[at].content))
			if err != nil && rnd.IntN(10) > 0 {
				continue // malformed records are refused anyway; try only some of them
			}
			if tried++; g.refusedBy(zipped(t, resummed(changed)), exportimport.ImportOptions{NewWorkspace: true}) {
				continue
			}
			if accepted++; math.Abs(float64(is.CompletedAt.Sub(is.StartedAt)-was.CompletedAt.Sub(was.StartedAt))) > 1e6 || is.State == record.RunRunning {
				t.Errorf("%s: accepted as %+v, was %+v", name, is, was)
				continue
			}
			is.StartedAt, is.CompletedAt = was.StartedAt, was.CompletedAt
			if string(is.Encode()) != string(was.Encode()) {
				t.Errorf("%s: accepted as %+v, was %+v", name, is, was)
			}
		}
	}
	t.Logf("%d of %d were accepted, whose times are others by a millisecond", accepted, tried)
}
