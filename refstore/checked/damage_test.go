package checked_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/refstore"
	"e3/refstore/checked"
	"e3/refstore/mem"
)

// damages returns the number of damages of a test and their source of random numbers: E3_TEST_DAMAGES, E3_TEST_SEED.
func damages(t *testing.T) (int, *rand.Rand) {
	t.Helper()
	n, seed := 3000, rand.Uint64()
	if testing.Short() {
		n = 600
	}
	for name, set := range map[string]func(uint64){
		"E3_TEST_DAMAGES": func(v uint64) { n = int(v) }, "E3_TEST_SEED": func(v uint64) { seed = v },
	} {
		if text := os.Getenv(name); text != "" {
			v, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			set(v)
		}
	}
	t.Logf("E3_TEST_SEED=%d E3_TEST_DAMAGES=%d", seed, n)
	return n, rand.New(rand.NewPCG(seed, 1))
}

var hash = strings.Repeat("0123456789abcdef", 4)

// samples are records of each kind, some with fields that an update adds.
func samples() []refstore.Record {
	execution := "EXECUTION/" + hash + "/" + hash
	rec := func(partition, sort, value string, fields ...string) refstore.Record {
		r := refstore.Record{Key: refstore.Key{Partition: partition, Sort: sort}, Value: []byte(value)}
		for i := 0; i < len(fields); i += 2 {
			r.Fields = append(r.Fields, refstore.Field{Name: fields[i], Value: []byte(fields[i+1])})
		}
		return r
	}
	return []refstore.Record{
		rec(execution, "a", "\x89East status", "detail.beast2", "\x89East detail", "output", hash+"\n", "job", "q/1"),
		rec(execution, "b", "\x89East status", "detail.beast2", "\x89East\ne3sum detail", "rejected.beast2", "mark"),
		rec(execution, "c", "of the reference, without detail"),
		rec("WORKSPACE", "prod", "state", "deployment.beast2", "id"),
		rec("WORKSPACE", "empty", ""),
		rec("DATAFLOW/prod", "r1", "a run"),
		rec("DATAFLOW/prod", "r2", "an imported run", "provenance.beast2", "from"),
		rec("PACKAGE", "p/1.0.0", hash+"\n"),
		rec("SETTINGS", "repository", "{\n  \"requireSigned\": true\n}\n"),
		rec("PIN", "x", "pin"), rec("PIN", "y", "\ne3sum 00000000\n"), rec("TOMBSTONE", hash, "tombstones"),
		rec("QUEUE/q/jobs", "1", `{"id":"1"}`), rec("APPROVAL/prod", "t/s", `{"id":"3"}`),
		rec("QUEUE/names", "q", "{}"), rec("INDEX/links", "prod", "link"), rec("INDEX/deployments/prod", "1", "/a/e3.yaml"),
		rec("INDEX/proofs", "prod", "proof"), rec("INDEX/state", "generation", "uuid\n"),
	}
}

var allFields = []string{"output", "detail.beast2", "rejected.beast2", "job", "deployment.beast2", "provenance.beast2"}

// fill creates the samples, and updates some of them.
func fill(t *testing.T, s *checked.Records) map[refstore.Key]refstore.Record {
	t.Helper()
	for _, r := range samples() {
		v, err := s.PutSync(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Key.Sort == "a" || r.Key.Partition == "WORKSPACE" || r.Key.Sort == "r1" {
			r.Value, r.Fields, r.Version = append([]byte("again "), r.Value...), nil, v
			if r.Key.Sort == "a" {
				r.Fields = []refstore.Field{{Name: "rejected.beast2", Value: []byte("mark")}}
			}
			if _, err := s.PutSync(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole := map[refstore.Key]refstore.Record{}
	for _, r := range samples() {
		got, err := s.Get(t.Context(), r.Key, allFields...)
		if err != nil {
			t.Fatal(err)
		}
		whole[r.Key] = got
	}
	return whole
}

func same(a, b refstore.Record) bool {
	return a.Key == b.Key && bytes.Equal(a.Value, b.Value) && slices.EqualFunc(a.Fields, b.Fields, func(f, g refstore.Field) bool {
		return f.Name == g.Name && bytes.Equal(f.Value, g.Value)
	})
}

// check reads every record in every way, and returns the number of damaged ones. All others must be unchanged.
func check(ctx context.Context, s refstore.Store, whole map[refstore.Key]refstore.Record, mayLack func(refstore.Key) bool) (int, error) {
	bad := map[refstore.Key]bool{}
	seen := map[refstore.Key]bool{}
	judge := func(how string, key refstore.Key, got refstore.Record, err error) error {
		seen[key] = true
		switch {
		case errors.Is(err, refstore.ErrDamaged) && got.Key == key:
			bad[key] = true
			return nil
		case errors.Is(err, refstore.ErrNotFound) && mayLack(key):
			return nil
		case err != nil:
			return fmt.Errorf("%s %s: got error %w, want the record, or ErrDamaged with its key", how, key, err)
		case !same(got, whole[key]):
			return fmt.Errorf("%s %s: got %q, want %q, or ErrDamaged", how, key, got, whole[key])
		}
		return nil
	}
	partitions := map[string]bool{}
	for key := range whole {
		partitions[key.Partition] = true
		got, err := s.Get(ctx, key, allFields...)
		if err := judge("get", key, got, err); err != nil {
			return 0, err
		}
	}
	clear(seen)
	for p := range partitions {
		for got, err := range s.List(ctx, refstore.Query{Partition: p, Fields: allFields}) {
			if err := judge("list", got.Key, got, err); err != nil {
				return 0, err
			}
		}
	}
	for key := range whole {
		if !seen[key] && !mayLack(key) {
			return 0, fmt.Errorf("list lacks %s", key)
		}
	}
	return len(bad), nil
}

func none(refstore.Key) bool { return false }

// TestDamagedFiles changes one byte of a file, cuts it, adds to it or removes it.
func TestDamagedFiles(t *testing.T) {
	suite.WithoutRace(t)
	n, rng := damages(t)
	dir := t.TempDir()
	s := checked.New(openFiles(t, dir), false)
	whole := fill(t, s)
	files := filesOf(t, dir)
	told := 0
	for i := range n {
		file := files[rng.IntN(len(files))]
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		what, lack := "removed", none
		if kind := rng.IntN(20); kind == 0 {
			lack = derived // there is no sum or witness to detect it
			err = os.Remove(file)
		} else {
			var worse []byte
			what, worse = damage(rng, kind, data)
			err = os.WriteFile(file, worse, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		bad, err := check(t.Context(), s, whole, lack)
		if err != nil {
			t.Fatalf("damage %d, %s %s: %v", i, strings.TrimPrefix(file, dir), what, err)
		}
		if bad > 1 {
			t.Fatalf("damage %d, %s %s: %d records are damaged, want at most one", i, strings.TrimPrefix(file, dir), what, bad)
		}
		told += bad
		if err := os.WriteFile(file, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if bad, err := check(t.Context(), s, whole, none); err != nil || bad > 0 {
		t.Fatalf("with all files as they were, %d records are damaged, and %v; want none", bad, err)
	}
	t.Logf("%d damages, %d told, no other value", n, told)
}

// derived reports whether a missing record is made again, by its reader or by a run.
func derived(key refstore.Key) bool {
	return slices.Contains([]string{"INDEX/proofs", "INDEX/state", "QUEUE/q/jobs"}, key.Partition)
}

// damage returns a damaged copy of data with a description of the damage.
func damage(rng *rand.Rand, kind int, data []byte) (string, []byte) {
	worse := bytes.Clone(data)
	switch {
	case kind == 1 || len(data) == 0:
		return "with a byte more", append(worse, byte(rng.Uint32()))
	case kind == 2:
		n := rng.IntN(len(data))
		return fmt.Sprintf("cut to %d bytes", n), worse[:n]
	}
	at := rng.IntN(len(data))
	worse[at] ^= byte(1 + rng.IntN(255))
	return fmt.Sprintf("with another byte at %d of %d", at, len(data)), worse
}

func filesOf(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if top, _, _ := strings.Cut(strings.TrimPrefix(path, dir+"/"), "/"); top != "locks" && top != "tmp" {
			files = append(files, path)
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of records: %v", err)
	}
	return files
}

// TestDamagedAttributes changes a value or a field of a record below the sums, as in a table.
func TestDamagedAttributes(t *testing.T) {
	n, rng := damages(t)
	below := mem.New()
	s := checked.New(below, true)
	whole := fill(t, s)
	all := append([]string{refstore.SumField}, allFields...)
	keys := samples()
	told := 0
	for i := range n {
		key := keys[rng.IntN(len(keys))].Key
		stored, err := below.Get(t.Context(), key, all...)
		if err != nil {
			t.Fatal(err)
		}
		worse := stored
		worse.Fields = slices.Clone(stored.Fields)
		where, what := "value", ""
		if j := rng.IntN(len(stored.Fields)+1) - 1; j >= 0 {
			where = stored.Fields[j].Name
			what, worse.Fields[j].Value = damage(rng, rng.IntN(20), stored.Fields[j].Value)
		} else {
			what, worse.Value = damage(rng, rng.IntN(20), stored.Value)
		}
		if stored.Version, err = below.Put(t.Context(), worse); err != nil {
			t.Fatal(err)
		}
		bad, err := check(t.Context(), s, whole, none)
		if err != nil {
			t.Fatalf("damage %d, %s of %s %s: %v", i, where, key, what, err)
		}
		told += bad
		if _, err := below.Put(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d damages, %d told, no other value", n, told)
}

// TestRemovedItems removes a record below the sums, as an item is removed from a table. Concurrent changes by other
// processes are not reported as damage.
func TestRemovedItems(t *testing.T) {
	below := mem.New()
	s := checked.New(below, true)
	whole := fill(t, s)
	for _, r := range samples() {
		key := r.Key
		untold := derived(key) || strings.HasPrefix(key.Partition, "EXECUTION") || strings.HasPrefix(key.Partition, "DATAFLOW")
		stored, err := below.Get(t.Context(), key, append([]string{refstore.SumField}, allFields...)...)
		if err == nil {
			err = below.Delete(t.Context(), key, stored.Version)
		}
		if err != nil {
			t.Fatal(err)
		}
		bad, err := check(t.Context(), s, whole, func(k refstore.Key) bool { return untold && k == key })
		if err != nil || !untold && bad != 1 {
			t.Fatalf("%s removed: %d records are damaged, and %v; want it to be told", key, bad, err)
		}
		if !untold {
			if err := s.Delete(t.Context(), key, refstore.Absent); err != nil {
				t.Fatalf("delete %s, which is gone: %v", key, err)
			}
			if _, err := s.Get(t.Context(), key); !errors.Is(err, refstore.ErrNotFound) {
				t.Fatalf("get %s, once it was deleted as gone: %v, want ErrNotFound", key, err)
			}
		}
		again := whole[key]
		again.Version = refstore.Absent
		if _, err := s.Put(t.Context(), again); err != nil {
			t.Fatalf("put %s again: %v", key, err)
		}
	}
	if bad, err := check(t.Context(), s, whole, none); err != nil || bad > 0 {
		t.Fatalf("all put again: %d records are damaged, and %v; want none", bad, err)
	}
}
