package ui

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Bounds of what connections may take.
const (
	maxConnections = 256
	maxHeader      = 16 << 10
	headerTimeout  = 10 * time.Second
	readTimeout    = 30 * time.Second
	writeTimeout   = 30 * time.Second // for one write
	idleTimeout    = 2 * time.Minute
	maxStreams     = 64 // streams of events
)

// Listen listens on a loopback port; 0 is any free one.
func Listen(port int) (net.Listener, error) {
	l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil && port == 0 {
		return net.Listen("tcp6", "[::1]:0")
	}
	return l, err
}

// Serve answers requests until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	all := newCrowd(maxConnections)
	h := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState: all.state, ErrorLog: silent(),
	}
	stop := context.AfterFunc(ctx, func() { _ = h.Close() })
	defer stop()
	err := h.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// crowd bounds the connections. When there are too many, it closes the connection that has gone longest without a
// request: a client that opens connections and is slow hinders itself, and a browser always gets in.
type crowd struct {
	most int

	mu    sync.Mutex
	all   map[net.Conn]bool
	queue *list.List // of net.Conn that have sent no whole request header, the oldest first
	at    map[net.Conn]*list.Element
}

func newCrowd(most int) *crowd {
	return &crowd{most: most, all: map[net.Conn]bool{}, queue: list.New(), at: map[net.Conn]*list.Element{}}
}

// state is http.Server.ConnState.
func (w *crowd) state(c net.Conn, to http.ConnState) {
	w.mu.Lock()
	if e := w.at[c]; e != nil {
		w.queue.Remove(e)
		delete(w.at, c)
	}
	var excess net.Conn
	switch to {
	case http.StateNew, http.StateIdle:
		w.all[c] = true
		w.at[c] = w.queue.PushBack(c)
		if len(w.all) > w.most {
			excess = w.queue.Front().Value.(net.Conn)
		}
	case http.StateActive:
	case http.StateClosed, http.StateHijacked:
		delete(w.all, c)
	}
	w.mu.Unlock()
	if excess != nil {
		_ = excess.Close()
	}
}
