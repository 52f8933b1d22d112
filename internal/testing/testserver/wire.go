package testserver

import (
	"io"
	"net"
	"sync"
)

// A Wire forwards connections to a server that speaks any protocol, and fails as networks do. All its methods are safe for
// concurrent use.
type Wire struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	open   map[net.Conn]struct{} // both ends
	state  link
	deaf   bool          // answers are lost
	resume chan struct{} // closed when what stalls may go on; nil while nothing does
}

// NewWire begins to forward to the server at target, a host and port. It ends with the test.
func NewWire(tb TB, target string) *Wire {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("wire: %v", err)
	}
	w := &Wire{listener: l, target: target, open: map[net.Conn]struct{}{}}
	go w.accept()
	tb.Cleanup(func() {
		l.Close()
		w.Release()
		w.Cut()
	})
	return w
}

// Address is where clients connect.
func (w *Wire) Address() string { return w.listener.Addr().String() }

func (w *Wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		refused := w.state == refusing
		w.mu.Unlock()
		server, err := net.Dial("tcp", w.target)
		if err != nil || refused {
			client.Close()
			if server != nil {
				server.Close()
			}
			continue
		}
		w.mu.Lock()
		w.open[client], w.open[server] = struct{}{}, struct{}{}
		w.mu.Unlock()
		go w.copy(server, client, false)
		go w.copy(client, server, true)
	}
}

// copy passes on what is read, until either end closes.
func (w *Wire) copy(to, from net.Conn, answers bool) {
	defer w.close(to, from)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.mu.Lock()
		resume, lost := w.resume, answers && w.deaf
		w.mu.Unlock()
		if resume != nil {
			<-resume
		}
		if !lost && n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil || lost {
			return // a lost answer ends its connection
		}
	}
}

func (w *Wire) close(ends ...io.Closer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range ends {
		c.Close()
		delete(w.open, c.(net.Conn))
	}
}

// Cut breaks all connections.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		c.Close()
	}
	clear(w.open)
}

// Refuse breaks all connections and takes no others, until Restore.
func (w *Wire) Refuse() {
	w.mu.Lock()
	w.state = refusing
	w.mu.Unlock()
	w.Cut()
}

// LoseAnswers passes requests on and breaks each connection at its next answer, until Restore.
func (w *Wire) LoseAnswers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = true
}

// Stall holds all bytes, until Release.
func (w *Wire) Stall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resume == nil {
		w.resume = make(chan struct{})
	}
}

// Release lets go on what stalls.
func (w *Wire) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resume != nil {
		close(w.resume)
		w.resume = nil
	}
}

// Restore makes new connections whole.
func (w *Wire) Restore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state, w.deaf = whole, false
}
