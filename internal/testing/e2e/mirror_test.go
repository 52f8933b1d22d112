//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/repo"
	"e3/objectstore"
	"e3/refstore"
)

func jsonOf(v any) ([]byte, error) { return json.Marshal(v) }

func decodeJSON(text []byte, v any) error { return json.Unmarshal(text, v) }

// check copies the repository into a folder and checks all of it there. Only readers may run meanwhile.
func (w *world) check(t testing.TB, but tolerated) {
	t.Helper()
	root, err := w.mirror(t)
	if err != nil {
		t.Fatalf("copy the repository: %v", err)
	}
	checkBut(t, root, but)
}

// mirror copies the repository into a folder and returns that.
func (w *world) mirror(t testing.TB) (string, error) {
	ctx := context.Background()
	from := w.open(t)
	defer from.Close()
	root, err := repo.Create(filepath.Join(t.TempDir(), repo.DirName))
	if err != nil {
		return "", err
	}
	to, err := repo.Open(ctx, root, repo.Options{})
	if err != nil {
		return "", err
	}
	defer to.Close()
	for entry, err := range from.Objects.Walk(ctx) {
		if err != nil {
			return "", err
		}
		data, err := from.Objects.ReadAll(ctx, entry.Hash, 1<<30)
		if err != nil {
			return "", fmt.Errorf("object %s: %w", entry.Hash, err)
		}
		if h, err := to.Objects.PutBytes(ctx, data); err != nil || h != entry.Hash {
			return "", fmt.Errorf("object %s is %s: %w", entry.Hash, h, err)
		}
	}
	return root, w.scan(func(pk, sk string, attributes []string) error {
		return w.mirrored(ctx, from, to, pk, sk, attributes)
	})
}

// mirrored copies the record or stream of an item.
func (w *world) mirrored(ctx context.Context, from, to *repo.Repo, pk, sk string, attributes []string) error {
	kind, rest, _ := strings.Cut(pk, "/")
	name, rest, more := strings.Cut(rest, "/")
	if name != "team" {
		return fmt.Errorf("the item %s · %s is of no repository that is known", pk, sk)
	}
	prefix, kind := kind[:strings.LastIndex(kind, ".")+1], kind[strings.LastIndex(kind, ".")+1:]
	key := refstore.Key{Partition: kind, Sort: sk}
	if more {
		key.Partition += "/" + rest
	}
	switch {
	case prefix == "PARTITION.", kind == "LEASE", kind == "FORMAT", kind == "TASKS", kind == "INPUTS", kind == "RUNS",
		strings.HasSuffix(sk, " witness"):
		return nil // these are not the repository's, or in a folder come by themselves
	case prefix == "STREAM.":
		return mirrorStream(ctx, from, to, key)
	}
	var fields []string
	for _, a := range attributes {
		if f, ok := strings.CutPrefix(a, "f:"); ok {
			fields = append(fields, f)
		}
	}
	r, err := from.Records.Get(ctx, key, fields...)
	if errors.Is(err, refstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r.Version = refstore.Absent
	_, err = to.Records.Put(ctx, r)
	return err
}

func mirrorStream(ctx context.Context, from, to *repo.Repo, key refstore.Key) error {
	r, err := from.Records.Open(ctx, key, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err == nil {
		err = to.Records.Append(ctx, key, 0, data)
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", key, err)
	}
	return nil
}

// verified demands that e3 finds no fault either.
func (m *machine) verified() {
	m.t.Helper()
	r := m.e3("verify", "--json")
	var report struct{ Faults []json.RawMessage }
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != 0 || len(report.Faults) > 0 {
		m.t.Errorf("e3 verify: exit code %d\n%s", r.code, r.text())
	}
}

// freed demands that no lock or claim is held any more. A record may be left where its holder could not remove it in
// time, if its session is known to be over.
func (w *world) freed(t testing.TB) {
	t.Helper()
	ctx := context.Background()
	r := w.open(t)
	defer r.Close()
	err := w.scan(func(pk, sk string, _ []string) error {
		switch {
		case pk == "LEASE/team/locks":
			if holder, held, err := r.Records.Holder(ctx, sk); held || err != nil {
				return fmt.Errorf("the lock %s is held by %q: %w", sk, holder, err)
			}
		case strings.HasPrefix(pk, "LEASE/team/claims/"):
			key, err := objectstore.ParseHash(sk)
			if err != nil {
				return err
			}
			lock, err := r.Records.TryClaim(ctx, key, nil)
			if err != nil {
				return err
			}
			return lock.Unlock()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
