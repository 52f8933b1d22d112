package zipfile

import (
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"
)

// level is the level of deflate. On logs and tables its output is smaller than the output of zip -1, and it is as fast
// as level 1. It must not change, because the bytes of archives depend on it.
const level = 2

// A unit is written as one piece. It is a batch of small entries, which share one block with their headers, or a single
// entry of many blocks.
type unit struct {
	sources []source
	blocks  chan *block // in order, closed after the last
	flushed chan struct{}

	// The producer sets headerLen and zip64 before it sends the first block, and written before it closes blocks.
	// Offsets in it count from the beginning of the unit, and the compressed size of an entry of many blocks is left to
	// the writer.
	headerLen int64 // room to leave for the header; 0 for a batch, which includes its headers
	zip64     bool
	written   []Entry
}

// A block is a piece of the archive.
type block struct {
	done        chan struct{} // closed when bytes is set; nil if bytes is set already
	bytes       []byte
	raw, packed *[]byte // buffers to recycle
}

func (w *Writer) recycle(b *block) {
	if b.raw != nil {
		w.raw.Put(b.raw)
	}
	if b.packed != nil {
		w.packed.Put(b.packed)
	}
}

// A compressor deflates blocks. Its output does not depend on earlier blocks.
type compressor struct {
	flate *flate.Writer
	out   []byte
}

// Write collects the output of flate.
func (c *compressor) Write(p []byte) (int, error) {
	c.out = append(c.out, p...)
	return len(p), nil
}

// deflate appends content to dst: a whole stream, or a part with further parts to come, which ends at a byte boundary
// and refers to no earlier part.
func (c *compressor) deflate(dst, content []byte, whole bool) ([]byte, error) {
	if c.flate == nil {
		var err error
		if c.flate, err = flate.NewWriter(c, level); err != nil {
			return nil, err
		}
	}
	c.out = dst
	c.flate.Reset(c)
	_, err := c.flate.Write(content)
	if err == nil {
		if whole {
			err = c.flate.Close()
		} else {
			err = c.flate.Flush()
		}
	}
	dst, c.out = c.out, nil
	return dst, err
}

// endOfStream ends a stream whose blocks were flushed: an empty last block.
var endOfStream = [...]byte{3, 0}

// worthDeflating decides from an entry's first block whether the entry is deflated. If deflate does not make the block
// 3 % smaller, the content counts as compressed already, and is stored.
func worthDeflating(content, deflated int) bool {
	return deflated < content && (content-deflated)*100 >= content*3
}

// use runs f with a compressor, once one is free.
func (w *Writer) use(f func(*compressor) error) error {
	select {
	case c := <-w.compressors:
		defer func() { w.compressors <- c }()
		return f(c)
	case <-w.ctx.Done():
		return w.failed()
	}
}

// pack makes the one block of a batch.
func (w *Writer) pack(u *unit) error {
	return w.use(func(c *compressor) error {
		raw := w.raw.Get().(*[]byte)
		defer w.raw.Put(raw)
		packed := w.packed.Get().(*[]byte)
		out := (*packed)[:0]
		u.written = make([]Entry, len(u.sources))
		for i := range u.sources {
			if err := w.failed(); err != nil {
				return err
			}
			s := &u.sources[i]
			content, err := s.readAll(*raw)
			if err != nil {
				return fmt.Errorf("entry %s: %w", quote(s.name), err)
			}
			u.written[i].Offset = int64(len(out))
			if out, err = c.appendEntry(out, s.name, content, &u.written[i]); err != nil {
				return fmt.Errorf("entry %s: %w", quote(s.name), err)
			}
		}
		u.sources = nil
		*packed = out
		u.blocks <- &block{bytes: out, packed: packed} // the channel has room for one block
		return nil
	})
}

// appendEntry appends the header and the content of an entry of one block, and fills e.
func (c *compressor) appendEntry(out []byte, name string, content []byte, e *Entry) ([]byte, error) {
	e.Name, e.Size, e.CRC, e.Method = name, int64(len(content)), crc32.ChecksumIEEE(content), Deflated
	start := len(out)
	out = appendLocal(out, e, false)
	body := len(out)
	out, err := c.deflate(out, content, true)
	if err != nil {
		return nil, err
	}
	if !worthDeflating(len(content), len(out)-body) {
		e.Method = Stored
		out = append(out[:body], content...)
	}
	e.CompressedSize = int64(len(out) - body)
	appendLocal(out[:start], e, false) // overwrites the first header, of equal length
	return out, nil
}

// readAll reads a source of one block into buf, which has room for one more byte.
func (s *source) readAll(buf []byte) ([]byte, error) {
	r, err := s.open()
	if err != nil {
		return nil, err
	}
	n, err := io.ReadFull(r, buf[:s.size+1])
	switch {
	case err == nil:
		err = fmt.Errorf("%w: it is longer than %d bytes", ErrSize, s.size)
	case err != io.EOF && err != io.ErrUnexpectedEOF:
	case int64(n) < s.size:
		err = fmt.Errorf("%w: it has %d bytes, not %d", ErrSize, n, s.size)
	default:
		err = nil
	}
	if closing := r.Close(); err == nil {
		err = closing
	}
	return buf[:n], err
}

// stream makes the blocks of an entry that may have many.
func (w *Writer) stream(u *unit) error {
	s := u.sources[0]
	r, err := s.open()
	if err == nil {
		err = w.streamFrom(u, r)
		if closing := r.Close(); err == nil {
			err = closing
		}
	}
	if err != nil {
		return fmt.Errorf("entry %s: %w", quote(s.name), err)
	}
	return nil
}

func (w *Writer) streamFrom(u *unit, r io.Reader) error {
	s := u.sources[0]
	e := Entry{Name: s.name}
	for first, last := true, false; !last; first = false {
		if err := w.failed(); err != nil {
			return err
		}
		raw := w.raw.Get().(*[]byte)
		content := (*raw)[:blockSize]
		n, err := io.ReadFull(r, content)
		last = err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return err
		}
		content = content[:n]
		e.Size += int64(n)
		e.CRC = crc32.Update(e.CRC, crc32.IEEETable, content)
		if s.size >= 0 && (e.Size > s.size || last && e.Size < s.size) {
			return fmt.Errorf("%w: it has %d bytes so far, not %d", ErrSize, e.Size, s.size)
		}
		b := &block{raw: raw}
		switch {
		case first:
			if err := w.firstBlock(u, &e, b, content, last); err != nil {
				return err
			}
		case e.Method == Stored || n == 0:
			b.bytes = content
		default:
			b.done = make(chan struct{})
			w.producers.Go(func() {
				if err := w.use(func(c *compressor) error { return w.compress(c, b, content, false) }); err != nil {
					w.fail(fmt.Errorf("write zip file: entry %s: %w", quote(s.name), err))
					return
				}
				close(b.done)
			})
		}
		if err := w.send(u, b); err != nil {
			return err
		}
		if last && e.Method == Deflated && !first {
			if err := w.send(u, &block{bytes: endOfStream[:]}); err != nil {
				return err
			}
		}
	}
	u.written = []Entry{e}
	return nil
}

// send appends b to the blocks of u.
func (w *Writer) send(u *unit, b *block) error {
	select {
	case u.blocks <- b:
		return nil
	case <-w.ctx.Done():
		return w.failed()
	}
}

// firstBlock decides how the entry is written.
func (w *Writer) firstBlock(u *unit, e *Entry, b *block, content []byte, whole bool) error {
	size := u.sources[0].size
	u.zip64 = !whole && (size < 0 || size > 1<<32-zip64Slack)
	u.headerLen = localHeaderLen(e.Name, u.zip64)
	err := w.use(func(c *compressor) error { return w.compress(c, b, content, whole) })
	if err != nil {
		return err
	}
	e.Method = Deflated
	if !worthDeflating(len(content), len(b.bytes)) {
		e.Method = Stored
		b.bytes = content
	}
	return nil
}

// compress sets the bytes of b.
func (w *Writer) compress(c *compressor, b *block, content []byte, whole bool) error {
	packed := w.packed.Get().(*[]byte)
	out, err := c.deflate((*packed)[:0], content, whole)
	if err != nil {
		return err
	}
	*packed = out
	b.packed, b.bytes = packed, out
	return nil
}
