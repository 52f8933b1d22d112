package zipfile

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// blockSize is the number of bytes of content that are compressed on their own. It must not change, because the bytes
// of archives depend on it. Larger blocks would hardly improve ratio and speed. Smaller blocks would need less memory
// and more synchronization.
const blockSize = 512 << 10

// batchEntries is the greatest number of small entries in one unit.
const batchEntries = 256

// A Spool keeps the central directory until it can be written, usually in a file. It needs about 46 bytes and the name
// for each entry.
type Spool interface {
	io.Writer
	io.ReaderAt
}

// Options adjust a Writer. The zero value is usable. No option changes the bytes of the archive.
type Options struct {
	// Workers is the number of blocks that are compressed at a time; 0 means the number of cores, but at most 8. Each
	// worker needs about 4 MiB.
	Workers int
}

// A Writer makes an archive. Its bytes depend only on the entries, on their order, and on whether the size of each
// entry of at least a block was announced. The caller must make sure that names are unique.
//
// One goroutine at a time may use a Writer. The first error stops it, and every later call returns that error.
type Writer struct {
	out       io.WriterAt
	spool     Spool
	directory *bufio.Writer // to spool

	ctx    context.Context
	cancel context.CancelCauseFunc

	batch     []source
	batchSize int64

	queue       chan *unit       // in the order of the archive
	compressors chan *compressor // a token: its holder may use a core
	streams     chan struct{}    // entries of many blocks that are being read
	lookahead   int              // blocks of such an entry that are read ahead of writing
	raw         sync.Pool        // *[]byte of blockSize+1
	packed      sync.Pool        // *[]byte for blocks as they are written

	producers sync.WaitGroup
	committed chan struct{} // closed when writing has ended
	closed    bool

	// These belong to the committing goroutine until committed is closed.
	entries int64
	offset  int64 // offset of the next local header
	spooled int64 // size of the directory in bytes
	record  []byte
}

// A source is an entry that is still to be read.
type source struct {
	name string
	size int64 // -1 if it is unknown
	open func() (io.ReadCloser, error)
}

// NewWriter returns a Writer that writes an archive to out, from position 0. It keeps the directory in spool, which
// must be empty. It closes and syncs neither out nor spool. Cancelling ctx stops the Writer.
func NewWriter(ctx context.Context, out io.WriterAt, spool Spool, o Options) *Writer {
	workers := o.Workers
	workers = cmp.Or(max(workers, 0), min(runtime.GOMAXPROCS(0), 8))
	w := &Writer{
		out:         out,
		spool:       spool,
		directory:   bufio.NewWriterSize(spool, 64<<10),
		queue:       make(chan *unit, workers+1),
		compressors: make(chan *compressor, workers),
		streams:     make(chan struct{}, 2+workers/8),
		lookahead:   workers + 1,
		committed:   make(chan struct{}),
	}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.raw.New = func() any { b := make([]byte, blockSize+1); return &b }
	w.packed.New = func() any { b := make([]byte, 0, blockSize+blockSize/8); return &b }
	for range workers {
		w.compressors <- &compressor{}
	}
	go w.commit()
	return w
}

// Add appends an entry: a regular file of mode 0644. A goroutine of the Writer calls open later, reads the reader to
// its end and closes it. Work in the reader, such as hashing, therefore runs in parallel with other entries. An error
// of open, Read or Close stops the Writer. If size is not -1, the reader must yield exactly that many bytes. Announce
// the size if it is known, because small entries are then read many at a time. Add blocks while the queue of work is
// full.
func (w *Writer) Add(name string, size int64, open func() (io.ReadCloser, error)) error {
	if err := w.failed(); err != nil {
		return err
	}
	if err := CheckName(name); err != nil {
		return w.fail(fmt.Errorf("write zip file: %w", err))
	}
	s := source{name, size, open}
	switch {
	case name[len(name)-1] == '/':
		return w.fail(fmt.Errorf("write zip file: entry %s: directories are not written", quote(name)))
	case size < -1:
		return w.fail(fmt.Errorf("write zip file: entry %s: its size is %d", quote(name), size))
	case size < 0 || size > blockSize:
		if err := w.dispatch(); err != nil {
			return err
		}
		select {
		case w.streams <- struct{}{}:
		case <-w.ctx.Done():
			return w.failed()
		}
		u := &unit{sources: []source{s}, blocks: make(chan *block, w.lookahead-1)}
		return w.enqueue(u, w.stream)
	}
	if len(w.batch) == batchEntries || w.batchSize+size > blockSize {
		if err := w.dispatch(); err != nil {
			return err
		}
	}
	w.batch = append(w.batch, s)
	w.batchSize += size
	return nil
}

// AddBytes appends an entry with this content. The caller must not change it until Flush or Close has returned.
func (w *Writer) AddBytes(name string, content []byte) error {
	return w.Add(name, int64(len(content)), func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
}

// dispatch enqueues the collected small entries.
func (w *Writer) dispatch() error {
	if len(w.batch) == 0 {
		return nil
	}
	u := &unit{sources: w.batch, blocks: make(chan *block, 1)}
	w.batch, w.batchSize = nil, 0
	return w.enqueue(u, w.pack)
}

// enqueue fixes the place of u in the archive and starts a goroutine that makes the blocks of u.
func (w *Writer) enqueue(u *unit, produce func(*unit) error) error {
	select {
	case w.queue <- u:
	case <-w.ctx.Done():
		return w.failed()
	}
	if produce == nil {
		return nil
	}
	w.producers.Go(func() {
		if err := produce(u); err != nil {
			w.fail(fmt.Errorf("write zip file: %w", err))
			return
		}
		close(u.blocks)
	})
	return nil
}

// Flush waits until all added entries are read and written to out.
func (w *Writer) Flush() error {
	if err := w.dispatch(); err != nil {
		return err
	}
	if err := w.failed(); err != nil {
		return err
	}
	u := &unit{flushed: make(chan struct{})}
	if err := w.enqueue(u, nil); err != nil {
		return err
	}
	select {
	case <-u.flushed:
		return nil
	case <-w.ctx.Done():
		return w.failed()
	}
}

// Close writes the directory and ends the archive. After an error it only waits until all reading and writing has
// stopped, and returns that error; out then holds no archive.
func (w *Writer) Close() error {
	if w.closed {
		return w.failed()
	}
	err := w.Flush()
	w.stop()
	if err != nil {
		return err
	}
	if err := w.end(); err != nil {
		return w.fail(fmt.Errorf("write zip file: %w", err))
	}
	w.fail(errClosed)
	return nil
}

// Abort stops the Writer without completing the archive, and waits until all reading and writing has stopped. After
// Close it does nothing, so that it can be deferred.
func (w *Writer) Abort() {
	if !w.closed {
		w.fail(errAborted)
		w.stop()
	}
}

var (
	errClosed  = errors.New("write zip file: the writer is closed")
	errAborted = errors.New("write zip file: the writer was stopped")
)

// stop ends the goroutines.
func (w *Writer) stop() {
	w.closed = true
	close(w.queue)
	<-w.committed
	w.producers.Wait()
}

// Size returns the length of the archive in bytes. It is known when Close has returned.
func (w *Writer) Size() int64 { return w.offset }

// Len returns the number of entries that were written. It is known when Close has returned.
func (w *Writer) Len() int64 { return w.entries }

// fail sets the Writer's error if it has none yet, and returns the Writer's error.
func (w *Writer) fail(err error) error {
	w.cancel(err)
	return w.failed()
}

func (w *Writer) failed() error { return context.Cause(w.ctx) }

// commit writes the units in their order until the queue is closed or an error occurs.
func (w *Writer) commit() {
	defer close(w.committed)
	for {
		var u *unit
		select {
		case u = <-w.queue:
		case <-w.ctx.Done():
			return
		}
		if u == nil {
			return
		}
		if u.flushed != nil {
			close(u.flushed)
			continue
		}
		if err := w.write(u); err != nil {
			w.fail(fmt.Errorf("write zip file: %w", err))
			return
		}
	}
}

// write writes the blocks of u as they are completed, then the header of an entry of many blocks, whose sizes are
// known only then. It enters the entries of u into the directory.
func (w *Writer) write(u *unit) error {
	at := w.offset
	first := true
	for {
		var b *block
		select {
		case b = <-u.blocks:
		case <-w.ctx.Done():
			return w.failed()
		}
		if b == nil {
			break
		}
		if b.done != nil {
			select {
			case <-b.done:
			case <-w.ctx.Done():
				return w.failed()
			}
		}
		if first { // the producer has set headerLen by now
			at += u.headerLen
			first = false
		}
		if _, err := w.out.WriteAt(b.bytes, at); err != nil {
			return err
		}
		at += int64(len(b.bytes))
		w.recycle(b)
	}
	if u.headerLen > 0 {
		e := &u.written[0]
		e.CompressedSize = at - w.offset - u.headerLen
		w.record = appendLocal(w.record[:0], e, u.zip64)
		if _, err := w.out.WriteAt(w.record, w.offset); err != nil {
			return err
		}
		<-w.streams
	}
	for i := range u.written {
		e := &u.written[i]
		e.Offset += w.offset
		w.record = appendCentral(w.record[:0], e)
		if _, err := w.directory.Write(w.record); err != nil {
			return fmt.Errorf("keep the directory: %w", err)
		}
		w.spooled += int64(len(w.record))
	}
	w.entries += int64(len(u.written))
	w.offset = at
	return nil
}

// end copies the directory after the entries and completes the archive.
func (w *Writer) end() error {
	if err := w.directory.Flush(); err != nil {
		return fmt.Errorf("keep the directory: %w", err)
	}
	d := directory{entries: w.entries, offset: w.offset, size: w.spooled}
	buf := w.raw.Get().(*[]byte)
	for done := int64(0); done < d.size; {
		if err := w.failed(); err != nil {
			return err
		}
		piece := (*buf)[:min(int64(len(*buf)), d.size-done)]
		if err := readFullAt(w.spool, piece, done); err != nil {
			return fmt.Errorf("read the directory back: %w", err)
		}
		if _, err := w.out.WriteAt(piece, d.offset+done); err != nil {
			return err
		}
		done += int64(len(piece))
	}
	tail := appendEnd(nil, d)
	if _, err := w.out.WriteAt(tail, d.offset+d.size); err != nil {
		return err
	}
	w.offset = d.offset + d.size + int64(len(tail))
	return nil
}
