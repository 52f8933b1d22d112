package zipfile

const BlockSize = blockSize

// A Compressor compresses the blocks of one core, one after the other.
type Compressor struct{ c compressor }

// Deflate appends the deflated content to dst.
func (c *Compressor) Deflate(dst, content []byte) ([]byte, error) {
	return c.c.deflate(dst, content, true)
}
