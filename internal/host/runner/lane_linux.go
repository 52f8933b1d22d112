package runner

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// laneReader splits the stream of a lane into frames, and keeps their descriptors in order.
type laneReader struct {
	fd     int
	buf    []byte
	unread []byte // the part of buf that is not consumed yet
	fds    []int
	oob    [256]byte
}

// pending reports whether a whole frame (or a malformed one) has been read.
func (l *laneReader) pending() bool {
	_, _, _, _, ok, err := splitFrame(l.unread)
	return ok || err != nil
}

// next returns the next frame, if a whole one has been read. Its body is valid until
// the next fill.
func (l *laneReader) next() (kind messageKind, body []byte, ok bool, err error) {
	kind, body, rest, _, ok, err := splitFrame(l.unread)
	l.unread = rest
	return kind, body, ok, err
}

// fill reads once, into a buffer with room for the frame that has begun. No whole frame may be pending.
func (l *laneReader) fill() error {
	_, _, _, size, _, _ := splitFrame(l.unread)
	size = max(size, 32<<10)
	filled := len(l.unread)
	if len(l.buf) < size || len(l.buf) > 16*size {
		grown := make([]byte, size)
		copy(grown, l.unread)
		l.buf = grown
	} else {
		copy(l.buf, l.unread)
	}
	l.unread = l.buf[:filled]
	for {
		n, oobn, flags, _, err := unix.Recvmsg(l.fd, l.buf[filled:], l.oob[:], unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("receive a request: %w", err)
		case flags&unix.MSG_CTRUNC != 0:
			return errors.New("receive a request: descriptors were lost (too many open files?)")
		case n == 0:
			return io.EOF
		}
		l.unread = l.buf[:filled+n]
		return l.addDescriptors(l.oob[:oobn])
	}
}

func (l *laneReader) addDescriptors(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("receive descriptors: %w", err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fmt.Errorf("receive descriptors: %w", err)
		}
		l.fds = append(l.fds, fds...)
	}
	return nil
}

// takeDescriptors returns the next n descriptors, which the caller closes.
func (l *laneReader) takeDescriptors(n int) ([]int, error) {
	if len(l.fds) < n {
		return nil, fmt.Errorf("%w: %d descriptors where %d belong", errMessage, len(l.fds), n)
	}
	fds := l.fds[:n:n]
	l.fds = l.fds[n:]
	return fds, nil
}
