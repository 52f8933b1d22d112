package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/postgres"
)

// through is an address by way of a wire.
func through(t testing.TB, address, by string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = by
	return u.String()
}

func server(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// TestSchedules: clients behind bad connections count in a record and write lines to a stream. What was answered has
// happened once; what was refused has not; and what has no answer has happened once, or not.
func TestSchedules(t *testing.T) {
	suite.Thorough(t)
	address := database(t)
	for i := range 200 {
		seed := uint64(time.Now().UnixNano())
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			if !schedule(t, address, rand.New(rand.NewPCG(seed, 0))) {
				t.Logf("seed %d", seed)
			}
		})
	}
}

// TestSchedule is one of these.
func TestSchedule(t *testing.T) {
	schedule(t, database(t), rand.New(rand.NewPCG(1, 0)))
}

func schedule(t *testing.T, address string, random *rand.Rand) bool {
	const clients, rounds = 3, 6
	o := options(address)
	o.Repository += "_"
	key, stream := refstore.Key{Partition: "INDEX/test", Sort: "n"}, refstore.Key{Partition: "EVENTS/w", Sort: "run"}
	s := open(t, o)
	if _, err := s.Put(t.Context(), refstore.Record{Key: key, Value: []byte("0")}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	done, doubtful := 0, 0
	lines := map[string]bool{} // by text: whether it was answered
	var group, chaos sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for c := range clients {
		wire := testserver.NewWire(t, server(t, address))
		o := o
		o.Address, o.Attempt, o.Patience, o.Conns = through(t, address, wire.Address()), 200*time.Millisecond, 600*time.Millisecond, 2
		store := open(t, o)
		chance := rand.New(rand.NewPCG(random.Uint64(), 0))
		chaos.Go(func() { disturb(ctx, chance, wire) })
		group.Go(func() {
			for round := range rounds {
				rec, err := store.Get(t.Context(), key)
				n := 0
				if err == nil {
					n, err = strconv.Atoi(string(rec.Value))
				}
				if err == nil {
					_, err = store.Put(t.Context(), refstore.Record{Key: key, Value: []byte(strconv.Itoa(n + 1)), Version: rec.Version})
					mu.Lock()
					switch {
					case err == nil:
						done++
					case !errors.Is(err, refstore.ErrConflict):
						doubtful++
					}
					mu.Unlock()
				}
				line := fmt.Sprintf("%d/%d\n", c, round)
				info, err := store.Size(t.Context(), stream)
				if err == nil || errors.Is(err, refstore.ErrNotFound) {
					err = store.Append(t.Context(), stream, info.Size, []byte(line))
					mu.Lock()
					if !errors.Is(err, refstore.ErrConflict) {
						lines[line] = err == nil
					}
					mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	stop()
	chaos.Wait()
	rec, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(string(rec.Value))
	if err != nil || n < done || n > done+doubtful {
		t.Errorf("got the count %q, want %d to %d", rec.Value, done, done+doubtful)
	}
	r, err := s.Open(t.Context(), stream, 0)
	if err != nil {
		if !errors.Is(err, refstore.ErrNotFound) {
			t.Error(err)
		}
		return !t.Failed()
	}
	text, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	there := map[string]int{}
	for line := range strings.Lines(string(text)) {
		there[line]++
		if _, known := lines[line]; !known {
			t.Errorf("%q was refused, and is there", line)
		}
	}
	for line, answered := range lines {
		if there[line] > 1 || answered && there[line] == 0 {
			t.Errorf("%q (answered: %v) is there %d times", line, answered, there[line])
		}
	}
	return !t.Failed()
}

// disturb breaks and restores a wire until ctx ends.
func disturb(ctx context.Context, random *rand.Rand, wire *testserver.Wire) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.Int64N(int64(30 * time.Millisecond)))):
		}
		switch random.IntN(10) {
		case 0, 1:
			wire.Cut()
		case 2:
			wire.Refuse()
		case 3, 4:
			wire.LoseAnswers()
		case 5:
			wire.Stall()
		default:
			wire.Release()
			wire.Restore()
		}
	}
	wire.Release()
	wire.Restore()
}

// counting counts in a record until ctx ends, and returns how many increments were answered.
func counting(t *testing.T, ctx context.Context, s *postgres.Store, key refstore.Key, counted chan<- struct{}) (answered int) {
	for ctx.Err() == nil {
		rec, err := s.Get(t.Context(), key)
		n := 0
		if err == nil {
			n, err = strconv.Atoi(string(rec.Value))
		} else if errors.Is(err, refstore.ErrNotFound) {
			err = nil
		}
		if err == nil {
			_, err = s.Put(t.Context(), refstore.Record{Key: key, Value: []byte(strconv.Itoa(n + 1)), Version: rec.Version})
		}
		if err != nil {
			t.Error(err)
			return answered
		}
		answered++
		select {
		case counted <- struct{}{}:
		default:
		}
	}
	return answered
}

// interrupted counts before, during and after what f does to the server; each answered increment counts.
func interrupted(t *testing.T, address string, f func()) {
	t.Helper()
	o := options(address)
	o.Patience = 30 * time.Second
	s := open(t, o)
	key := refstore.Key{Partition: "INDEX/test", Sort: "n"}
	ctx, stop := context.WithCancel(t.Context())
	counted, answered := make(chan struct{}), make(chan int)
	go func() { answered <- counting(t, ctx, s, key, counted) }()
	for range 3 {
		<-counted
	}
	f()
	for range 3 {
		select {
		case <-counted:
		case n := <-answered:
			t.Fatalf("counted to %d, and then no further", n)
		}
	}
	stop()
	n := <-answered
	rec, err := s.Get(t.Context(), key)
	if err != nil || string(rec.Value) != strconv.Itoa(n) {
		t.Errorf("got the count %q, %v, want %d", rec.Value, err, n)
	}
}

// TestRestart: a server that crashes and comes back is waited for.
func TestRestart(t *testing.T) {
	suite.Thorough(t)
	server := testserver.NewPostgres(t)
	address := server.Database(t)
	if _, err := postgres.Init(t.Context(), postgres.Options{Address: address}); err != nil {
		t.Fatal(err)
	}
	interrupted(t, address, func() {
		server.Crash()
		server.Start(t)
	})
}

// TestFailover: a replica that is waited for at each commit takes over, under the second of two addresses.
func TestFailover(t *testing.T) {
	suite.Thorough(t)
	first := testserver.NewPostgres(t, "-c", "synchronous_standby_names=*")
	second := first.Replica(t)
	address := first.Database(t)
	both := strings.Replace(address, first.Address(), first.Address()+","+second.Address(), 1) + "&target_session_attrs=primary"
	if _, err := postgres.Init(t.Context(), postgres.Options{Address: both}); err != nil {
		t.Fatal(err)
	}
	interrupted(t, both, func() {
		first.Crash()
		second.Promote(t)
	})
}
