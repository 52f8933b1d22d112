package zipfile

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"
)

// OpenEntry returns the content of e, which is one of Entries. Reading to the end checks size and CRC. If size, CRC
// or compressed data are wrong, the last bytes are held back and Read returns a FormatError. At most e.Size bytes are
// returned. Content read before io.EOF is unchecked.
func (z *Reader) OpenEntry(e Entry) (io.ReadCloser, error) {
	at, err := z.contentAt(z.r, &e)
	if err != nil {
		return nil, z.wrap(err)
	}
	c := &content{z: z, e: e, remaining: e.Size}
	c.section = *io.NewSectionReader(z.r, at, e.CompressedSize)
	if e.Method == Stored {
		c.from = &c.section
		return c, nil
	}
	c.inflater = z.inflaters.Get().(*inflater)
	if err := c.inflater.reset(&c.section); err != nil {
		return nil, z.wrap(err)
	}
	c.from = c.inflater.flate
	return c, nil
}

// An inflater holds the buffers for reading a deflated entry. It is reused.
type inflater struct {
	in    *bufio.Reader // flate reads no byte beyond its stream
	flate io.ReadCloser
}

func newInflater() *inflater {
	in := bufio.NewReaderSize(nil, 64<<10)
	return &inflater{in, flate.NewReader(in)}
}

func (i *inflater) reset(r io.Reader) error {
	i.in.Reset(r)
	return i.flate.(flate.Resetter).Reset(i.in, nil)
}

// content is an entry that is being read.
type content struct {
	z         *Reader
	e         Entry
	section   io.SectionReader
	from      io.Reader
	inflater  *inflater // nil for a stored entry
	remaining int64
	crc       uint32
	err       error // the first error, which every later Read returns
}

func (c *content) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n := 0
	if c.remaining > 0 {
		var err error
		n, err = c.from.Read(p[:min(int64(len(p)), c.remaining)])
		c.remaining -= int64(n)
		c.crc = crc32.Update(c.crc, crc32.IEEETable, p[:n])
		switch {
		case c.remaining == 0:
		case err == io.EOF:
			c.err = c.refuse("it ends %d bytes before the declared %d", c.remaining, c.e.Size)
			return 0, c.err
		case err != nil:
			c.err = c.broken(err)
			return 0, c.err
		}
		if c.remaining > 0 {
			return n, nil
		}
	}
	if c.err = c.end(); c.err != io.EOF || n == 0 {
		return 0, c.err
	}
	return n, nil
}

// end makes the final checks after the declared size was read, and returns io.EOF.
func (c *content) end() error {
	if c.inflater != nil {
		var one [1]byte
		switch n, err := io.ReadFull(c.from, one[:]); {
		case n > 0:
			return c.refuse("it has more than the declared %d bytes", c.e.Size)
		case err != io.EOF:
			return c.broken(err)
		}
		if _, err := c.inflater.in.ReadByte(); err == nil {
			return c.refuse("its compressed data end before its %d compressed bytes do", c.e.CompressedSize)
		} else if err != io.EOF {
			return c.broken(err)
		}
	}
	if c.crc != c.e.CRC {
		return c.refuse("its CRC is %08x and should be %08x: it is damaged", c.crc, c.e.CRC)
	}
	return io.EOF
}

func (c *content) refuse(format string, args ...any) error {
	return &FormatError{c.e.Name, fmt.Sprintf(format, args...)}
}

// broken distinguishes damaged data from a failure to read the archive.
func (c *content) broken(err error) error {
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) || err == io.ErrUnexpectedEOF {
		return c.refuse("its compressed data are damaged: %v", err)
	}
	return fmt.Errorf("read zip file: entry %s: %w", quote(c.e.Name), err)
}

// Close releases the buffers. It checks nothing.
func (c *content) Close() error {
	if i := c.inflater; i != nil {
		c.inflater, c.from = nil, nil
		i.in.Reset(nil)
		c.z.inflaters.Put(i)
	}
	c.err = errEntryClosed
	return nil
}

var errEntryClosed = errors.New("read zip file: the entry is closed")
