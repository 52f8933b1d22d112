package cached_test

import (
	"context"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"testing"

	"e3/objectstore"
	"e3/objectstore/cached"
	"e3/objectstore/objectstoretest"
)

// A damaged copy in the cache is fetched again; a damaged object is an error, whether or not it was read before.
func TestDamage(t *testing.T) {
	seed, count := objectstoretest.DamageSeed(), objectstoretest.DamageCount(10)
	t.Logf("seed %d, %d objects", seed, count)
	setCopy := func(s *fixture, h objectstore.Hash, b []byte) error {
		text := h.String()
		path := filepath.Join(s.local.Path(), text[:2], text[2:])
		if err := os.RemoveAll(path); err != nil || b == nil {
			return err
		}
		return os.WriteFile(path, b, 0o444)
	}
	setFar := func(s *fixture, h objectstore.Hash, b []byte) error {
		if b == nil {
			s.far.remove(h)
		} else {
			s.far.set(h, b)
		}
		return setCopy(s, h, nil)
	}
	for name, tt := range map[string]struct {
		set     func(*fixture, objectstore.Hash, []byte) error
		heals   bool
		noCache bool
	}{
		"the copy":                  {set: setCopy, heals: true},
		"the object":                {set: setFar},
		"the object, without cache": {set: setFar, noCache: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, newFar(), newPact(), nil)
			set := func(h objectstore.Hash, b []byte) error { return tt.set(s, h, b) }
			d := objectstoretest.Damage{Set: set, Heals: tt.heals, Scratch: t.TempDir(), Seed: seed, Count: count}
			var store objectstore.Store = s
			if tt.noCache {
				blind := open(t, s.far, newPact(), nil)
				for shard := range objectstore.Shards { // files in the way of folders
					path := filepath.Join(blind.local.Path(), hex.EncodeToString([]byte{byte(shard)}))
					if err := os.WriteFile(path, nil, 0o666); err != nil {
						t.Fatal(err)
					}
				}
				store = uncached{blind.Store, s}
			}
			if err := d.Run(t.Context(), store); err != nil {
				t.Error(err)
			}
		})
	}
}

// However a remote object or its copy is damaged, a put by another process leaves the right bytes in both, if the
// remote store reports hashes or is distrusted.
func TestPutOverDamage(t *testing.T) {
	seed, count := objectstoretest.DamageSeed(), objectstoretest.DamageCount(10)
	t.Logf("seed %d, %d objects", seed, count)
	for _, name := range []string{"the copy", "the object", "the object, with sums"} {
		t.Run(name, func(t *testing.T) {
			far := newFar()
			far.sums = name == "the object, with sums"
			s := open(t, far, newPact(), nil)
			d := objectstoretest.Damage{
				Set: func(h objectstore.Hash, b []byte) error {
					switch {
					case name == "the copy":
						text := h.String()
						path := filepath.Join(s.local.Path(), text[:2], text[2:])
						if err := os.RemoveAll(path); err != nil || b == nil {
							return err
						}
						return os.WriteFile(path, b, 0o444)
					case b == nil:
						far.remove(h)
					default:
						far.set(h, b)
					}
					return nil
				},
				Get: func(h objectstore.Hash) ([]byte, error) {
					b, _ := far.get(h)
					return b, nil
				},
				Scratch: t.TempDir(), Seed: seed, Count: count,
			}
			n := 0
			again := func() objectstore.Store {
				dir := s.local.Path()
				if n++; n%2 == 0 && name != "the copy" {
					dir = t.TempDir()
				}
				other := openIn(t, dir, far, newPact(), nil)
				if name == "the object" {
					other.Distrust()
				}
				return other
			}
			if err := d.RunPuts(t.Context(), s, again); err != nil {
				t.Error(err)
			}
		})
	}
}

// uncached reads from a store that cannot make copies, and puts to one that can.
type uncached struct {
	*cached.Store
	puts objectstore.Store
}

func (u uncached) Put(ctx context.Context, r io.Reader) (objectstore.Info, error) {
	return u.puts.Put(ctx, r)
}

func (u uncached) PutBytes(ctx context.Context, b []byte) (objectstore.Hash, error) {
	return objectstore.PutBytes(ctx, u.puts, b)
}
