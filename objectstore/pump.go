package objectstore

import (
	"context"
	"io"
	"sync"
)

const (
	// chunkSize is the unit of reading, hashing and writing. Data that fits in one chunk is handled without
	// goroutines.
	chunkSize = 512 << 10
	// pumpDepth is the most chunks that one transfer holds.
	pumpDepth = 4
)

// buffers recycles chunks between transfers.
var buffers = sync.Pool{New: func() any {
	b := make([]byte, chunkSize)
	return &b
}}

func getBuffer() *[]byte  { return buffers.Get().(*[]byte) }
func putBuffer(b *[]byte) { buffers.Put(b) }

// pump copies r to w, or only reads it if w is nil, and hashes it meanwhile on another core: hashing takes
// as much time as reading and writing together. Runs of zeros become holes of w. head, if it is not nil, is a full chunk that was read from r before; pump takes
// ownership of it.
func pump(ctx context.Context, r io.Reader, w *sparseWriter, head *[]byte) (Info, error) {
	type chunk struct {
		buf *[]byte
		n   int
	}
	full := make(chan chunk, pumpDepth)
	free := make(chan *[]byte, pumpDepth)
	sum := make(chan Hash, 1)
	go func() {
		hasher := NewHasher()
		for c := range full {
			hasher.Write((*c.buf)[:c.n])
			free <- c.buf
		}
		sum <- hasher.Hash()
	}()

	var size int64
	held := 0
	// step moves one chunk and reports whether it was the last. When the hasher returns a chunk, the chunk has been
	// written, too: step writes each chunk before it asks for the next.
	step := func() (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		c := chunk{buf: head}
		var err error
		switch {
		case head != nil:
			head = nil
			held++
			c.n = chunkSize
		default:
			select {
			case c.buf = <-free:
			default:
				if held < pumpDepth {
					c.buf = getBuffer()
					held++
				} else {
					c.buf = <-free
				}
			}
			c.n, err = io.ReadFull(r, *c.buf)
		}
		full <- c
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return false, err
		}
		size += int64(c.n)
		if w != nil {
			if _, err := w.Write((*c.buf)[:c.n]); err != nil {
				return false, err
			}
		}
		return last, nil
	}
	var last bool
	var err error
	for !last && err == nil {
		last, err = step()
	}
	if err == nil && w != nil {
		err = w.finish()
	}
	close(full)
	info := Info{<-sum, size}
	for range held {
		putBuffer(<-free)
	}
	if err != nil {
		return Info{}, err
	}
	return info, nil
}

// HashReader returns the name and the size of the bytes of r.
func HashReader(ctx context.Context, r io.Reader) (Info, error) {
	buf := getBuffer()
	n, err := io.ReadFull(r, *buf)
	if err == nil {
		return pump(ctx, r, nil, buf)
	}
	defer putBuffer(buf)
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		return Info{}, err
	}
	return Info{Sum((*buf)[:n]), int64(n)}, ctx.Err()
}
