package runner

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"e3/internal/host/process"
)

// maxHandover bounds a frame of a handover.
const maxHandover = MaxState + 64<<10

// maxDemand bounds a frame of kindDemand. One identity of each supervisor is enough.
const maxDemand = 64 << 10

// handover is the body of kindHandover: the supervisor, and the host of its pids.
type handover struct {
	pid   uint32
	count uint32
	host  process.Host
}

// orphanMessage is the body of kindOrphan. pid and startTicks are 0 if the process has ended.
type orphanMessage struct {
	id         uint64
	pid        uint32
	startTicks uint64
	marker     string
	identity   string
	state      string
}

func appendExtend(b []byte, e extension) []byte {
	start := len(b)
	b = appendFrame(b, kindExtend)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.until))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.most))
	return finishFrame(b, start)
}

func decodeExtend(body []byte) (extension, error) {
	c := cursor{s: string(body)}
	e := extension{until: time.Duration(c.integer(8)), most: time.Duration(c.integer(8))}
	if err := c.end(); err != nil {
		return extension{}, fmt.Errorf("extension: %w", err)
	}
	return e, nil
}

func appendDemand(b []byte, d *demand) []byte {
	start := len(b)
	b = appendFrame(b, kindDemand)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.until))
	b = binary.LittleEndian.AppendUint64(b, uint64(d.most))
	lost, size := d.lost, len(b)
	for i, identity := range lost {
		if size += 4 + len(identity); size > maxDemand-frameHeader-4 {
			lost = lost[:i]
			break
		}
	}
	b = appendStrings(b, lost)
	return finishFrame(b, start)
}

func decodeDemand(body []byte) (*demand, error) {
	c := cursor{s: string(body)}
	d := &demand{extension: extension{until: time.Duration(c.integer(8)), most: time.Duration(c.integer(8))}, lost: c.strings()}
	if err := c.end(); err != nil {
		return nil, fmt.Errorf("demand: %w", err)
	}
	return d, nil
}

func appendRelease(b []byte, identity string) []byte {
	start := len(b)
	return finishFrame(appendString(appendFrame(b, kindRelease), identity), start)
}

func decodeRelease(body []byte) (identity string, err error) {
	c := cursor{s: string(body)}
	identity = c.string()
	if err := c.end(); err != nil {
		return "", fmt.Errorf("release: %w", err)
	}
	return identity, nil
}

func appendClose(b []byte) []byte {
	start := len(b)
	return finishFrame(appendFrame(b, kindClose), start)
}

func appendAdopted(b []byte) []byte {
	start := len(b)
	return finishFrame(appendFrame(b, kindAdopted), start)
}

func appendHandover(b []byte, h *handover) []byte {
	start := len(b)
	b = appendFrame(b, kindHandover)
	b = binary.LittleEndian.AppendUint32(b, h.pid)
	b = binary.LittleEndian.AppendUint32(b, h.count)
	b = appendString(b, h.host.BootID)
	b = appendString(b, h.host.PIDNamespace)
	b = appendString(b, h.host.Name)
	return finishFrame(b, start)
}

func decodeHandover(body []byte) (*handover, error) {
	c := cursor{s: string(body)}
	h := &handover{
		pid:   uint32(c.integer(4)),
		count: uint32(c.integer(4)),
		host:  process.Host{BootID: c.string(), PIDNamespace: c.string(), Name: c.string()},
	}
	if err := c.end(); err != nil {
		return nil, fmt.Errorf("handover: %w", err)
	}
	return h, nil
}

func appendOrphan(b []byte, o *orphanMessage) []byte {
	start := len(b)
	b = appendFrame(b, kindOrphan)
	b = binary.LittleEndian.AppendUint64(b, o.id)
	b = binary.LittleEndian.AppendUint32(b, o.pid)
	b = binary.LittleEndian.AppendUint64(b, o.startTicks)
	b = appendString(b, o.marker)
	b = appendString(b, o.identity)
	b = appendString(b, o.state)
	return finishFrame(b, start)
}

func decodeOrphan(body []byte) (*orphanMessage, error) {
	c := cursor{s: string(body)}
	o := &orphanMessage{
		id:         c.integer(8),
		pid:        uint32(c.integer(4)),
		startTicks: c.integer(8),
		marker:     c.string(),
		identity:   c.string(),
		state:      c.string(),
	}
	if err := c.end(); err != nil {
		return nil, fmt.Errorf("orphan: %w", err)
	}
	return o, nil
}

// readFrames calls handle for each frame of a stream, until an error; io.EOF at its end. A frame longer than limit is
// malformed. Bodies are valid until handle returns.
func readFrames(r io.Reader, limit int, handle func(kind messageKind, body []byte) error) error {
	buf := make([]byte, 4<<10)
	filled := 0
	for {
		n, err := r.Read(buf[filled:])
		filled += n
		rest := buf[:filled]
		for {
			kind, body, tail, size, ok, frameErr := splitFrame(rest)
			if frameErr == nil && size > limit {
				frameErr = fmt.Errorf("%w: %d bytes", errMessage, size)
			}
			if frameErr != nil {
				return frameErr
			}
			if !ok {
				if size > len(buf) {
					grown := make([]byte, size)
					copy(grown, rest)
					buf, rest = grown, grown[:len(rest)]
				}
				break
			}
			if err := handle(kind, body); err != nil {
				return err
			}
			rest = tail
		}
		if err != nil {
			return err
		}
		filled = copy(buf, rest)
	}
}
