package main

import (
	"bufio"
	"io"
	"sync"
)

// lineWriter writes whole lines, from any goroutine, at once: whoever reads them
// follows a run.
type lineWriter struct {
	mu sync.Mutex
	w  *bufio.Writer
}

func newLineWriter(w io.Writer) *lineWriter { return &lineWriter{w: bufio.NewWriter(w)} }

func (l *lineWriter) write(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.Write(line)
	l.w.Flush()
}

func (l *lineWriter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.Flush()
}
