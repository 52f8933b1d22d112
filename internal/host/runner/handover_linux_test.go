package runner

import (
	"bytes"
	"errors"
	"io"
	"os"
	"reflect"
	"testing"
	"testing/iotest"
	"time"

	"e3/internal/host/process"

	"golang.org/x/sys/unix"
)

func exampleHandover() *handover {
	return &handover{pid: 7, count: 1, host: process.Host{BootID: "b", PIDNamespace: "pid:[1]", Name: "h"}}
}

func exampleOrphan() *orphanMessage {
	return &orphanMessage{id: 9, pid: 8, startTicks: 6, marker: "E3_EXECUTION=7", identity: "job/1", state: "\x00\xff"}
}

func TestHandoverRoundTrip(t *testing.T) {
	var stream []byte
	stream = appendHandover(stream, exampleHandover())
	stream = appendOrphan(stream, exampleOrphan())
	stream = appendExtend(stream, extension{until: time.Hour, most: -1})
	stream = appendRelease(stream, "job/1")
	stream = appendRelease(stream, string(make([]byte, 100<<10)))
	stream = appendClose(stream)
	stream = appendAdopted(stream)
	var got []any
	take := func(kind messageKind, body []byte) error {
		var value any
		var err error
		switch kind {
		case kindHandover:
			value, err = decodeHandover(body)
		case kindOrphan:
			value, err = decodeOrphan(body)
		case kindExtend:
			value, err = decodeExtend(body)
		case kindRelease:
			value, err = decodeRelease(body)
		default:
			value = kind
		}
		got = append(got, value)
		return err
	}
	want := []any{exampleHandover(), exampleOrphan(), extension{until: time.Hour, most: -1}, "job/1", string(make([]byte, 100<<10)), kindClose, kindAdopted}
	for name, r := range map[string]io.Reader{
		"at once":      bytes.NewReader(stream),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
		"with the end": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		got = nil
		if err := readFrames(r, 1<<20, take); err != io.EOF || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v; got %.200q, want %.200q", name, err, got, want)
		}
	}
	if err := readFrames(bytes.NewReader(stream), 64<<10, take); !errors.Is(err, errMessage) {
		t.Errorf("a frame longer than allowed: %v, want %v", err, errMessage)
	}
}

// From any input an adopter gets valid orphans or none.
func FuzzHandover(f *testing.F) {
	whole := appendOrphan(appendHandover(nil, exampleHandover()), exampleOrphan())
	f.Add(whole)
	f.Add(appendReply(bytes.Clone(whole), &reply{kind: kindEnded, id: 9, flags: flagExpired}))
	f.Add(appendHandover(whole, exampleHandover()))
	f.Add(appendOrphan(nil, exampleOrphan()))
	f.Add(appendHandover(nil, &handover{pid: 7, count: 1 << 31}))
	f.Add(appendOrphan(appendOrphan(appendHandover(nil, &handover{pid: 7, count: 2}), exampleOrphan()), exampleOrphan()))
	f.Fuzz(func(t *testing.T, stream []byte) {
		a := &adoption{ready: make(chan struct{}), orphans: make(map[uint64]*Orphan)}
		if err := readFrames(bytes.NewReader(stream), maxHandover, a.handle); err == nil {
			t.Error("no error at the end of the stream")
		}
		if a.complete != (a.process.pid > 1 && len(a.orphans) == int(a.process.count)) || len(a.orphans) > len(stream) {
			t.Errorf("complete %v with %d orphans of %+v", a.complete, len(a.orphans), a.process)
		}
		for id, o := range a.all() {
			if o.from != a || o.ended == nil {
				t.Errorf("orphan %d: %+v", id, o)
			}
		}
	})
}

// A client that does not read does not stop a lane, and loses no reply.
func TestLaneDoesNotWaitForClient(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	client := os.NewFile(uintptr(pair[0]), "client")
	defer client.Close()
	defer unix.Close(pair[1])
	l := (&server{}).newLane(pair[1])
	const count = 10_000
	for i := range count {
		l.send(&reply{kind: kindEnded, id: uint64(i)})
	}
	if len(l.out) == 0 || l.fds[0].Events&unix.POLLOUT == 0 {
		t.Fatalf("%d bytes are kept, the socket's events are %x", len(l.out), l.fds[0].Events)
	}
	done := make(chan error)
	go func() {
		next := uint64(0)
		done <- readFrames(client, replySize, func(kind messageKind, body []byte) error {
			r, err := decodeReply(kind, body)
			if err == nil && r.id != next {
				t.Errorf("reply %d, want %d", r.id, next)
			}
			if next++; next == count {
				return io.ErrClosedPipe
			}
			return err
		})
	}()
	for len(l.out) > 0 {
		if _, err := unix.Ppoll(l.fds[:1], nil, nil); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		l.flush()
	}
	if err := <-done; err != io.ErrClosedPipe {
		t.Errorf("after the last reply: %v", err)
	}
	if l.fds[0].Events&unix.POLLOUT != 0 {
		t.Error("it still waits to write")
	}

	// A closed client that does not read delays the lane once, for a limited time.
	l.clientGone = true
	for range count {
		l.send(&reply{kind: kindEnded})
	}
}
