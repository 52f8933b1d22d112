package rootfs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory of a layer's decompression.
const maxWindow = 128 << 20

// Decompress returns the uncompressed bytes of a layer: it knows gzip and zstd by their first bytes.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLayer, err)
		}
		return z, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLayer, err)
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}
