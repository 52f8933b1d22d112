package executions

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"time"

	"e3/internal/format/record"
	"e3/refstore"
)

var errUnknownSum = errors.New("not all of the log was sent by this process")

// maxAppend bounds one append to a log, in bytes.
const maxAppend = 4 << 20

// logPump copies the two growing log files of a command to their streams, for stores that cannot adopt files. A fault
// of the store does not disturb the command: unsent bytes are sent later, at the latest by finish.
type logPump struct {
	logs   [2]pumpedLog
	cancel context.CancelFunc
	done   sync.WaitGroup
	buf    []byte
}

// pumpedLog is one log of a logPump. The file is read through the descriptor that the command got, so its name does not
// matter.
type pumpedLog struct {
	streams refstore.Streams
	key     refstore.Key
	file    *os.File
	sent    int64 // length of the stream
	unsure  int   // length in bytes of a failed append that may have taken effect; 0 for none
	shared  bool  // appends of this file by a dead process may still arrive
	full    bool  // the store takes no more
	sum     uint32
	unknown bool // the sum is unknown: another process has sent a part, or the stream is full
}

// cutOff ends a log that has become too long for the store.
const cutOff = "\n[e3: the log is cut off here: the repository cannot keep a longer one]\n"

// start begins to copy, until stop, finish, or the loss of the lease.
func (p *logPump) start(x *Executor) {
	bound, stop := x.bound(context.Background())
	bound, cancel := context.WithCancel(bound)
	p.cancel = func() { cancel(); stop() }
	p.done.Go(func() { p.run(bound, x.opts.LogEvery) })
}

func (p *logPump) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for i := range p.logs {
			_ = p.copy(ctx, &p.logs[i]) // finish tries again
		}
	}
}

// stop ends the copying. The streams stay open.
func (p *logPump) stop() {
	p.cancel()
	p.done.Wait()
}

// finish copies the rest once the command has ended, and seals the streams that are not empty.
func (p *logPump) finish(ctx context.Context) error {
	p.stop()
	for i := range p.logs {
		l := &p.logs[i]
		err := p.copy(ctx, l)
		if err == nil && l.sent > 0 {
			err = l.streams.Seal(ctx, l.key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copy sends everything that is in the file at the time of the call.
func (p *logPump) copy(ctx context.Context, l *pumpedLog) error {
	if l.file == nil {
		return nil
	}
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	// A command may truncate its own log. Sent bytes stay, and nothing more is sent until the file is longer again.
	for l.sent < info.Size() && !l.full {
		n := int(min(maxAppend, info.Size()-l.sent))
		if l.unsure > 0 {
			n = min(n, l.unsure) // the same bytes again, to tell whether they arrived
		}
		if cap(p.buf) < n {
			p.buf = make([]byte, n)
		}
		n, err := l.file.ReadAt(p.buf[:n], l.sent)
		if n == 0 {
			if errors.Is(err, io.EOF) { // truncated meanwhile
				err = nil
			}
			return err
		}
		if err := l.append(ctx, p.buf[:n]); err != nil {
			return err
		}
	}
	return nil
}

// append sends bytes, and finds out whether a failed append had taken effect.
func (l *pumpedLog) append(ctx context.Context, data []byte) error {
	err := l.streams.Append(ctx, l.key, l.sent, data)
	switch {
	case err == nil:
		l.sent += int64(len(data))
		l.unsure = 0
		l.sum = crc32.Update(l.sum, castagnoli, data)
	case errors.Is(err, refstore.ErrFull): // the result counts all the same
		l.full, l.unknown = true, true
		_ = l.streams.Append(ctx, l.key, l.sent, []byte(cutOff)) // if it still fits
		return nil
	case !errors.Is(err, refstore.ErrConflict):
		l.unsure = max(l.unsure, len(data))
	case l.shared:
		info, sizeErr := l.streams.Size(ctx, l.key)
		if sizeErr != nil {
			return sizeErr
		}
		if info.Size <= l.sent {
			return err
		}
		l.sent, l.unsure, l.unknown = info.Size, 0, true
		return nil
	case l.unsure > 0:
		info, sizeErr := l.streams.Size(ctx, l.key)
		if sizeErr != nil {
			return sizeErr
		}
		if info.Size != l.sent+int64(l.unsure) {
			return fmt.Errorf("another process writes to it: %w", err)
		}
		l.sum = crc32.Update(l.sum, castagnoli, data[:min(len(data), l.unsure)])
		l.sent, l.unsure = info.Size, 0
		return nil
	}
	return err
}

// sum is the checksum of a complete stream.
func (p *logPump) sum(stream Stream) (record.LogSum, error) {
	l := &p.logs[0]
	if stream == Stderr {
		l = &p.logs[1]
	}
	if l.unknown {
		return record.LogSum{}, errUnknownSum
	}
	return record.LogSum{Size: l.sent, Sum: l.sum}, nil
}
