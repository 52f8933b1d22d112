//go:build linux

package e2e

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"e3/internal/testing/testserver"
)

// spoken is what programs have said to a PostgreSQL server.
type spoken struct {
	mu                             sync.Mutex
	connections, statements, trips int
}

// listened relays connections to a server and counts what they carry: statements, and how often the program speaks after the
// server, which is a round trip.
func listened(t *testing.T, server string) (address string, s *spoken) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s = &spoken{}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go s.relay(near, server)
		}
	}()
	return l.Addr().String(), s
}

func (s *spoken) relay(near net.Conn, server string) {
	defer near.Close()
	far, err := net.Dial("tcp4", server)
	if err != nil {
		return
	}
	defer far.Close()
	s.mu.Lock()
	s.connections++
	s.mu.Unlock()
	answered := true
	go func() {
		defer near.Close()
		io.Copy(near, readerFunc(func(p []byte) (int, error) {
			n, err := far.Read(p)
			s.mu.Lock()
			answered = true
			s.mu.Unlock()
			return n, err
		}))
	}()
	head := make([]byte, 5)
	for begun := false; ; begun = true {
		from := 0 // the first message has no kind
		if !begun {
			from = 1
		}
		if _, err := io.ReadFull(near, head[from:]); err != nil {
			return
		}
		message := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(near, message); err != nil {
			return
		}
		s.mu.Lock()
		if kind := head[0]; begun && (kind == 'E' || kind == 'Q') { // Execute, Query
			s.statements++
		}
		if answered && (!begun || head[0] != 'X') { // Terminate has no answer
			s.trips++
		}
		answered = false
		s.mu.Unlock()
		if _, err := far.Write(append(head[from:len(head):len(head)], message...)); err != nil {
			return
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestStatements: an unchanged start on PostgreSQL makes few statements, in fewer round trips, over one connection, whatever the
// size of the package.
func TestStatements(t *testing.T) {
	u, err := url.Parse(testserver.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	address, said := listened(t, u.Host)
	p := newProjectBelow(t, inMemory(), map[string]string{"a.txt": "alpha\n"})
	p.env = append(p.env, "E3_CACHE_DIR="+p.path("cache"), "E3_STATE_DIR="+p.path("state"))
	if err := os.Mkdir(p.path("objects"), 0o700); err != nil {
		t.Fatal(err)
	}
	u.Host = address
	u.Path += "/team"
	location := u.String()
	p.must("init", location+"&objects="+url.QueryEscape(p.path("objects")))
	p.env = append(p.env, "E3_REPO="+location)
	const mostStatements, mostTrips = 30, 26
	for _, n := range []int{10, 300} {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprint(i))
		}
		p.write("e3.yaml", "e3: 1\nname: p\ninputs: {a: {file: a.txt}}\ntasks:\n  t: {matrix: {n: ["+strings.Join(list, ", ")+"]}, in: [a], out: o, run: 'echo $n > $out'}\n")
		p.must("start", "-f", "e3.yaml", "--json")
		var best spoken
		for try := range 10 { // a busy machine sends apart what goes together, and opens more connections
			said.mu.Lock()
			said.connections, said.statements, said.trips = 0, 0, 0
			said.mu.Unlock()
			p.must("start", "--json")
			said.mu.Lock()
			if try == 0 || said.trips < best.trips {
				best.connections, best.statements, best.trips = said.connections, said.statements, said.trips
			}
			said.mu.Unlock()
			if best.connections == 1 && best.statements <= mostStatements && best.trips <= mostTrips {
				break
			}
		}
		t.Logf("%d tasks: %d statements in %d round trips, over %d connections", n, best.statements, best.trips, best.connections)
		if best.connections > 1 || best.statements > mostStatements || best.trips > mostTrips {
			t.Errorf("an unchanged start of %d tasks: %d statements in %d round trips over %d connections, want at most %d, %d, 1",
				n, best.statements, best.trips, best.connections, mostStatements, mostTrips)
		}
	}
}
