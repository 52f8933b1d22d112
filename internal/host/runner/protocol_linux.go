package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// The client and the supervisor are the same binary, so the protocol has no
// versions. A message is a frame: length of the rest (4 bytes), kind (1 byte),
// fields. Integers are little-endian, strings are preceded by a 4-byte length.
// The descriptors of a spawn request travel with the first byte of its frame.

const (
	frameHeader = 5
	// maxFrame bounds a frame. The kernel accepts at most 6 MiB of arguments and environment, so every command that can
	// start fits.
	maxFrame = 8 << 20
)

type messageKind byte

const (
	kindSpawn   messageKind = iota + 1 // client: run this command
	kindCancel                         // client: stop that command
	kindStarted                        // supervisor: the command runs
	kindFailed                         // supervisor: the command could not start
	kindEnded                          // supervisor: the command ended

	// Kinds for commands that may outlive their client. An adopter is a client too, except that it starts nothing.
	kindExtend   // client: the commands may run until then
	kindRelease  // client: forget that command
	kindClose    // client: kill everything and end
	kindHandover // supervisor: its process, and the number of commands that follow
	kindOrphan   // supervisor: one of these commands
	kindAdopted  // supervisor: another adopter has the commands, perhaps from now on
	kindDemand   // adopter, first message: the deadline of its lease, and the commands that their owner has lost
)

// Flags of a spawn request.
const (
	flagStdout   = 1 << iota // a descriptor for stdout is attached
	flagStderr               // a descriptor for stderr is attached
	flagMerged               // stderr is stdout's descriptor
	flagAnnounce             // send kindStarted
	flagLasting              // the command may run longer if the client does not extend it in time
)

// Flags of an end.
const (
	flagTimedOut = 1 << iota
	flagCancelled
	flagExpired   // for kindFailed, too: the supervisor was not extended in time
	flagOOM       // the kernel killed the command because memory ran out
	flagStraggler // a descendant may be alive
	flagClosed    // for kindFailed: pid is the room.Step that failed
	flagLimit     // with flagOOM: the command's own limit of memory was reached
	flagLimits    // for kindFailed: the command's limits could not be set
)

var errMessage = errors.New("malformed message")

// spawnRequest is the body of kindSpawn.
type spawnRequest struct {
	id            uint64
	flags         byte
	timeout       time.Duration
	grace         time.Duration
	announceAfter time.Duration
	path          string
	dir           string
	marker        string
	room          string
	closed        string // a room.Room as JSON; empty: the command runs in the open
	readOnly      string // a folder that the command cannot change; empty: there is none
	traced        string // a trace.Look as JSON; empty: the command is not traced
	limits        string // cgroup.Limits as JSON; empty: the command has none
	argv          []string
	env           []string
	mask          []string // set with flagStdout or flagStderr
	redirects     []Redirect
	identity      string // empty: the command dies with its client
	state         string
}

// descriptors is the number of descriptors that are attached to the request.
func (r *spawnRequest) descriptors() int {
	n := 0
	for _, flag := range []byte{flagStdout, flagStderr} {
		if r.flags&flag != 0 {
			n++
		}
	}
	return n
}

// reply is the body of every message from the supervisor. Which fields are set depends on the kind.
type reply struct {
	kind       messageKind
	flags      byte
	id         uint64
	pid        uint32
	status     uint32 // wait status for kindEnded, errno for kindFailed
	startTicks uint64
	userCPU    time.Duration
	systemCPU  time.Duration
	peakRSS    int64 // bytes
	started    int64 // Unix nanoseconds
	ended      int64
	maskErrno  uint32 // errno of writing masked output; 0: it was written
}

const replySize = frameHeader + 1 + 8 + 4 + 4 + 8 + 8 + 8 + 8 + 8 + 8 + 4

// appendFrame begins a frame at the end of b; finishFrame sets its length.
func appendFrame(b []byte, kind messageKind) []byte {
	return append(b, 0, 0, 0, 0, byte(kind))
}

func finishFrame(b []byte, start int) []byte {
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func appendSpawn(b []byte, r *spawnRequest) []byte {
	start := len(b)
	b = appendFrame(b, kindSpawn)
	b = binary.LittleEndian.AppendUint64(b, r.id)
	b = append(b, r.flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.timeout))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.grace))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.announceAfter))
	b = appendString(b, r.path)
	b = appendString(b, r.dir)
	b = appendString(b, r.marker)
	b = appendString(b, r.room)
	b = appendString(b, r.closed)
	b = appendString(b, r.readOnly)
	b = appendString(b, r.traced)
	b = appendString(b, r.limits)
	b = appendStrings(b, r.argv)
	b = appendStrings(b, r.env)
	b = appendStrings(b, r.mask)
	b = appendRedirects(b, r.redirects)
	b = appendString(b, r.identity)
	b = appendString(b, r.state)
	return finishFrame(b, start)
}

func appendCancel(b []byte, id uint64) []byte {
	start := len(b)
	b = appendFrame(b, kindCancel)
	b = binary.LittleEndian.AppendUint64(b, id)
	return finishFrame(b, start)
}

func appendReply(b []byte, r *reply) []byte {
	start := len(b)
	b = appendFrame(b, r.kind)
	b = append(b, r.flags)
	b = binary.LittleEndian.AppendUint64(b, r.id)
	b = binary.LittleEndian.AppendUint32(b, r.pid)
	b = binary.LittleEndian.AppendUint32(b, r.status)
	b = binary.LittleEndian.AppendUint64(b, r.startTicks)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.userCPU))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.systemCPU))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.peakRSS))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.started))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.ended))
	b = binary.LittleEndian.AppendUint32(b, r.maskErrno)
	return finishFrame(b, start)
}

// splitFrame splits the first frame off b. size is the size of the whole frame, 0 if unknown. ok is false if b does not
// hold the whole frame yet.
func splitFrame(b []byte) (kind messageKind, body, rest []byte, size int, ok bool, err error) {
	if len(b) < frameHeader {
		return 0, nil, b, 0, false, nil
	}
	length := binary.LittleEndian.Uint32(b)
	if length < 1 || length > maxFrame {
		return 0, nil, b, 0, false, fmt.Errorf("%w: length %d", errMessage, length)
	}
	size = 4 + int(length)
	if len(b) < size {
		return 0, nil, b, size, false, nil
	}
	return messageKind(b[4]), b[frameHeader:size], b[size:], size, true, nil
}

// cursor reads fields. After the first malformed field it yields zeros, and bad is set.
type cursor struct {
	s   string
	bad bool
}

func (c *cursor) take(n int) string {
	if c.bad || n > len(c.s) {
		c.bad = true
		return ""
	}
	s := c.s[:n]
	c.s = c.s[n:]
	return s
}

func (c *cursor) integer(size int) uint64 {
	field := c.take(size)
	var v uint64
	for i := len(field) - 1; i >= 0; i-- {
		v = v<<8 | uint64(field[i])
	}
	return v
}

func (c *cursor) string() string { return c.take(int(c.integer(4))) }

func (c *cursor) strings() []string {
	n := int(c.integer(4))
	if n > len(c.s)/4 { // each string takes at least its length field
		c.bad = true
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = c.string()
	}
	return list
}

func (c *cursor) end() error {
	if c.bad || c.s != "" {
		return errMessage
	}
	return nil
}

// decodeSpawn copies body once; the strings of the request share that copy.
func decodeSpawn(body []byte) (*spawnRequest, error) {
	c := cursor{s: string(body)}
	r := &spawnRequest{
		id:            c.integer(8),
		flags:         byte(c.integer(1)),
		timeout:       time.Duration(c.integer(8)),
		grace:         time.Duration(c.integer(8)),
		announceAfter: time.Duration(c.integer(8)),
		path:          c.string(),
		dir:           c.string(),
		marker:        c.string(),
		room:          c.string(),
		closed:        c.string(),
		readOnly:      c.string(),
		traced:        c.string(),
		limits:        c.string(),
		argv:          c.strings(),
		env:           c.strings(),
		mask:          c.strings(),
		redirects:     c.redirects(),
		identity:      c.string(),
		state:         c.string(),
	}
	if err := c.end(); err != nil {
		return nil, fmt.Errorf("spawn request: %w", err)
	}
	return r, nil
}

func decodeCancel(body []byte) (id uint64, err error) {
	c := cursor{s: string(body)}
	id = c.integer(8)
	if err := c.end(); err != nil {
		return 0, fmt.Errorf("cancel request: %w", err)
	}
	return id, nil
}

func decodeReply(kind messageKind, body []byte) (reply, error) {
	if kind < kindStarted || kind > kindEnded || len(body) != replySize-frameHeader {
		return reply{}, fmt.Errorf("%w: reply of kind %d with %d bytes", errMessage, kind, len(body))
	}
	le := binary.LittleEndian
	return reply{
		kind:       kind,
		flags:      body[0],
		id:         le.Uint64(body[1:]),
		pid:        le.Uint32(body[9:]),
		status:     le.Uint32(body[13:]),
		startTicks: le.Uint64(body[17:]),
		userCPU:    time.Duration(le.Uint64(body[25:])),
		systemCPU:  time.Duration(le.Uint64(body[33:])),
		peakRSS:    int64(le.Uint64(body[41:])),
		started:    int64(le.Uint64(body[49:])),
		ended:      int64(le.Uint64(body[57:])),
		maskErrno:  le.Uint32(body[65:]),
	}, nil
}
