package verify_test

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/internal/verify"
	"e3/workspace"
)

// Record files are damaged one after the other: a repair mends each, or gives advice. Afterwards a start works, and
// there are no faults. E3_TEST_DAMAGES is the number of cases, E3_TEST_SEED their seed.
func TestRandomDamage(t *testing.T) {
	suite.WithoutRace(t)
	n, seed := 30, rand.Uint64()
	for name, set := range map[string]func(uint64){"E3_TEST_DAMAGES": func(v uint64) { n = int(v) }, "E3_TEST_SEED": func(v uint64) { seed = v }} {
		if text := os.Getenv(name); text != "" {
			v, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			set(v)
		}
	}
	t.Logf("E3_TEST_SEED=%d E3_TEST_DAMAGES=%d", seed, n)
	rng := rand.New(rand.NewPCG(seed, 2))
	s := furnished(t)
	s.lasting = workspace.Batch // otherwise records that a run replaces have no sum
	s.start("w")
	told := 0
	for i := range n {
		file, what := damageRecord(s, rng)
		where := strings.TrimPrefix(file, s.root)
		r, err := verify.Verify(s.Context(), s.stores(), verify.Options{})
		if err != nil {
			t.Fatalf("damage %d, %s %s: verify ends with: %v", i, where, what, err)
		}
		if len(r.Faults) > 0 {
			told++
		}
		before := list(r)
		if r, err = verify.Verify(s.Context(), s.stores(), verify.Options{Repair: true}); err != nil {
			t.Fatalf("damage %d, %s %s: the repair ends with: %v", i, where, what, err)
		}
		if strings.HasPrefix(where, "/settings/") {
			if r.Remaining > 0 { // to be mended by hand
				s.must(os.Remove(file))
				s.verify(verify.Options{Repair: true}) // it reports the lost ones
			}
		} else if r.Remaining > 0 {
			t.Fatalf("damage %d, %s %s: after the repair got\n%swant no faults", i, where, what, list(r))
		}
		s.start("w")
		if r := s.verify(verify.Options{}); len(r.Faults) > 0 {
			t.Fatalf("damage %d, %s %s: found\n%safter the repair and a start got\n%swant no faults", i, where, what, before, list(r))
		}
		if i%10 == 9 { // restores lost links and packages
			s.redeploy("w")
			s.start("w")
		}
	}
	t.Logf("%d of %d damages were faults, and mended", told, n)
}

// damageRecord spoils a file of some record.
func damageRecord(s *site, rng *rand.Rand) (file, what string) {
	s.Helper()
	tops := []string{"packages", "workspaces", "dataflows", "tombstones", "pins", "settings", "index", "executions", "executions"}
	var files []string
	for len(files) == 0 {
		top := tops[rng.IntN(len(tops))]
		_ = filepath.WalkDir(s.path(top), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && !strings.HasSuffix(path, ".txt") {
				files = append(files, path)
			}
			return nil
		})
	}
	slices.Sort(files)
	file = files[rng.IntN(len(files))]
	data, err := os.ReadFile(file)
	s.must(err)
	s.must(os.Chmod(file, 0o644))
	switch kind := rng.IntN(8); {
	case kind == 0:
		s.must(os.Remove(file))
		return file, "removed"
	case kind == 1 || len(data) == 0:
		at := rng.IntN(len(data) + 1)
		s.must(os.WriteFile(file, data[:at], 0o644))
		return file, "cut to " + strconv.Itoa(at) + " bytes"
	}
	at := rng.IntN(len(data))
	data[at] ^= byte(1 + rng.IntN(255))
	s.must(os.WriteFile(file, data, 0o644))
	return file, "with another byte at " + strconv.Itoa(at)
}
