package lease_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"e3/refstore"
)

// stranger is the session that hostile records name.
const stranger = "00dc6acf-ac00-7004-8e0e-99ff99b2944a"

// places are the keys of records that other processes write.
var places = []refstore.Key{
	{Partition: "LEASE/sessions", Sort: stranger},
	{Partition: "LEASE/locks", Sort: "one"},
	{Partition: "LEASE/claims/01", Sort: "01" + hex.EncodeToString(make([]byte, 31))},
	{Partition: "LEASE/epoch", Sort: "gc"},
	{Partition: "LEASE/condemned", Sort: "01"},
	{Partition: "LEASE/protected", Sort: stranger + "/0000000001"},
	{Partition: "LEASE/relied", Sort: stranger + "/0000000000"},
}

const session = `{"owner":{"host":"x","boot":"x","pid":1,"start":1},"began":1,"ttl":15000,"beat":1,"state":"alive","epoch":1,"protected":"YQo=","large":[1],"parts":1}`

// FuzzHostileRecords reads arbitrary records of others everywhere.
func FuzzHostileRecords(f *testing.F) {
	for i, valid := range []string{
		session,
		fmt.Sprintf(`{"holders":[{"session":%q,"nonce":1,"text":"YQ=="}]}`, stranger),
		fmt.Sprintf(`{"session":%q,"nonce":1}`, stranger),
		fmt.Sprintf(`{"number":1,"session":%q}`, stranger),
		fmt.Sprintf(`{"session":%q,"nonce":1,"names":"%044d"}`, stranger, 0),
		"a\nb\n",
		"0123456789abcdef0123456789abcdef",
	} {
		f.Add(uint8(i), []byte(valid), false)
		f.Add(uint8(i), []byte(valid), true)
	}
	f.Fuzz(func(t *testing.T, place uint8, value []byte, known bool) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			put := func(key refstore.Key, value []byte) {
				if _, err := w.store.Put(t.Context(), refstore.Record{Key: key, Value: value}); err != nil {
					t.Fatal(err)
				}
			}
			key := places[int(place)%len(places)]
			put(key, value)
			if known && key.Partition != "LEASE/sessions" {
				put(places[0], []byte(session))
			}
			m := w.on("a")
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			n := [32]byte{1}
			for what, call := range map[string]func() error{
				"lock":      func() error { _, err := m.TryLock(ctx, "one", refstore.Shared, nil); return err },
				"exclusive": func() error { _, err := m.TryLock(ctx, "one", refstore.Exclusive, nil); return err },
				"holder":    func() error { _, _, err := m.Holder(ctx, "one"); return err },
				"claim":     func() error { _, err := m.TryClaim(ctx, n, nil); return err },
				"live":      func() error { _, err := m.LiveSessions(ctx); return err },
				"rely":      func() error { return m.Rely(ctx, n) },
				"sweep":     func() error { _, err := m.Sweep(ctx); return err },
				"claims":    func() error { _, err := m.SweepClaims(ctx); return err },
				"quiesce": func() error {
					end, err := m.Quiesce(ctx)
					if err == nil {
						end()
					}
					return err
				},
			} {
				if err := call(); err != nil && err.Error() == "" {
					t.Errorf("%s fails without a word", what)
				}
			}
		})
	})
}

// TestHostileRecords: a malformed record is an error that names it, and is left unchanged.
func TestHostileRecords(t *testing.T) {
	huge := fmt.Sprintf(`{"owner":{},"began":1,"ttl":%d,"beat":1,"state":"alive"}`, int64(1)<<62)
	for name, c := range map[string]struct {
		place int
		value string
		call  func(ctx context.Context, m *machine) error
	}{
		"session": {0, `{"owner":{},"began":1,"ttl":1,"beat":1,"state":"alive","new":1}`, func(ctx context.Context, m *machine) error {
			_, err := m.LiveSessions(ctx)
			return err
		}},
		"dead without a death": {0, `{"owner":{},"began":1,"ttl":1,"beat":1,"state":"dead"}`, func(ctx context.Context, m *machine) error {
			_, err := m.Sweep(ctx)
			return err
		}},
		"a missing part": {0, `{"owner":{},"began":1,"ttl":1000000,"beat":1,"state":"alive","parts":1}`, func(ctx context.Context, m *machine) error {
			_, err := m.LiveSessions(ctx)
			return err
		}},
		"lock": {1, `{"holders":[]}`, func(ctx context.Context, m *machine) error {
			_, err := m.TryLock(ctx, "one", refstore.Exclusive, nil)
			return err
		}},
		"two exclusive holders": {1, `{"holders":[{"session":"a","nonce":1},{"session":"b","nonce":1}]}`, func(ctx context.Context, m *machine) error {
			_, _, err := m.Holder(ctx, "one")
			return err
		}},
		"claim": {2, `{"session":"","nonce":1}`, func(ctx context.Context, m *machine) error {
			_, err := m.TryClaim(ctx, [32]byte{1}, nil)
			return err
		}},
		"more follows": {2, `{"session":"a","nonce":1} {}`, func(ctx context.Context, m *machine) error {
			_, err := m.TryClaim(ctx, [32]byte{1}, nil)
			return err
		}},
		"epoch": {3, `[]`, func(ctx context.Context, m *machine) error {
			_, err := m.SessionBegan(ctx)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				key := places[c.place]
				if _, err := w.store.Put(t.Context(), refstore.Record{Key: key, Value: []byte(c.value)}); err != nil {
					t.Fatal(err)
				}
				err := c.call(t.Context(), w.on("a"))
				if err == nil || errors.Is(err, refstore.ErrClaimed) {
					t.Errorf("got %v, want an error about the record", err)
				}
				t.Log(err)
				if r, err := w.store.Get(t.Context(), key); err != nil || string(r.Value) != c.value {
					t.Errorf("the record was changed: %q, %v", r.Value, err)
				}
			})
		})
	}
	t.Run("a lease that never ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			for i, value := range []string{huge, fmt.Sprintf(`{"holders":[{"session":%q,"nonce":1}]}`, stranger)} {
				if _, err := w.store.Put(t.Context(), refstore.Record{Key: places[i], Value: []byte(value)}); err != nil {
					t.Fatal(err)
				}
			}
			m := w.on("a")
			took := m.patiently(t, 11*time.Minute, func() error {
				_, err := m.TryLock(t.Context(), "one", refstore.Exclusive, nil)
				return err
			})
			if took < 10*time.Minute {
				t.Errorf("took over after %v, want ten minutes", took)
			}
		})
	})
}
