package refstore

import (
	"context"
	"errors"
	"io"
	"iter"
)

// ErrSealed reports a change to a stream that was sealed.
var ErrSealed = errors.New("stream is sealed")

// ErrFull reports that a stream has reached the store's limit.
var ErrFull = errors.New("stream is full")

// StreamInfo describes a stream.
type StreamInfo struct {
	Size   int64 // bytes
	Sealed bool  // no byte will follow
}

// Streams keeps append-only byte streams: logs and events. Streams and records are apart: the same key may name one
// of each.
//
// The store knows bytes, not lines. A writer that died may leave a torn tail; the next appender finds it by reading and
// cuts it, the one exception to "never rewritten". So a reader takes a unit as final only once it is complete, and one
// that meets a unit which does not parse reads again from the unit's start.
//
// A stream that is not what was written may be found to be so only by a reader: it gets what is there, with zeros in the place of what is
// lost between, and [ErrDamaged] in the place of the end. Append and Seal refuse such a stream; Cut makes a whole one of it.
type Streams interface {
	// Append adds data if the stream has exactly offset bytes, and creates it at offset 0. Of several concurrent appends
	// at one offset, exactly one succeeds. A failed append leaves the stream as it was, unless the process died.
	// ErrConflict, ErrSealed, ErrFull.
	Append(ctx context.Context, key Key, offset int64, data []byte) error

	// Open reads what the stream holds from offset on; beyond its end there is nothing to read. ErrNotFound.
	Open(ctx context.Context, key Key, offset int64) (io.ReadCloser, error)

	// Size returns how long the stream is and whether it is sealed. ErrNotFound.
	Size(ctx context.Context, key Key) (StreamInfo, error)

	// Cut shortens the stream to size. ErrConflict if it is shorter, ErrSealed, ErrNotFound.
	Cut(ctx context.Context, key Key, size int64) error

	// Seal ends the stream: it never changes again. A stream that does not exist is created empty. Sealing twice is fine.
	Seal(ctx context.Context, key Key) error

	// Remove deletes the stream, sealed or not. ErrNotFound.
	Remove(ctx context.Context, key Key) error

	// Follow reads from offset on and waits for more at the end, also for a stream that does not exist yet. Read
	// returns io.EOF at the end of a sealed stream, the cause of ctx once ctx has ended, ErrNotFound once the stream
	// was removed, and ErrConflict if the stream was cut below the bytes already read. Close may be called at any
	// time and ends a waiting Read with [io/fs.ErrClosed].
	Follow(ctx context.Context, key Key, offset int64) (io.ReadCloser, error)

	// ListStreams yields the keys of the streams of one partition in order, under the rules of [Store.List]. KeysOnly and
	// Fields of the query do not matter.
	ListStreams(ctx context.Context, q Query) iter.Seq2[Key, error]

	// ListPartitions yields the partitions of a kind that hold streams, by segment in the order of their bytes; one whose
	// streams were all removed may be among them. Everything written before the iteration begins is seen. An error ends it.
	ListPartitions(ctx context.Context, kind string) iter.Seq2[string, error]

	// WatchStreams returns a channel that receives after a stream of the partition was created, appended to, cut or removed.
	// Wake-ups are coalesced and may be spurious; a change after WatchStreams returned is never missed for good. The channel
	// is closed when ctx ends.
	WatchStreams(ctx context.Context, partition string) (<-chan struct{}, error)
}

// Tailer is implemented by stores that pay for each read: it returns the end of a stream in one request.
type Tailer interface {
	// Tail returns the last bytes of a stream, at most n, and its info then. Of a damaged stream it returns what is there, with
	// ErrDamaged. ErrNotFound.
	Tail(ctx context.Context, key Key, n int64) ([]byte, StreamInfo, error)
}

// Tail is [Tailer].Tail for any Streams. Without a Tailer the data may be shorter than the info says, if the stream is cut meanwhile.
func Tail(ctx context.Context, streams Streams, key Key, n int64) ([]byte, StreamInfo, error) {
	if t, ok := streams.(Tailer); ok {
		return t.Tail(ctx, key, n)
	}
	info, err := streams.Size(ctx, key)
	if err != nil {
		return nil, StreamInfo{}, err
	}
	from := max(0, info.Size-n)
	r, err := streams.Open(ctx, key, from)
	if err != nil {
		return nil, StreamInfo{}, err
	}
	defer r.Close() // nothing was written
	data, err := io.ReadAll(io.LimitReader(r, info.Size-from))
	return data, info, err
}
