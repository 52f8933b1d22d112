package runner

import (
	"bytes"
	"reflect"
	"testing"
	"time"
)

func exampleSpawn() *spawnRequest {
	return &spawnRequest{
		id: 7, flags: flagStdout | flagMerged, timeout: time.Minute, grace: -1, announceAfter: time.Second,
		path: "/bin/sh", dir: "/tmp", closed: "{}", marker: "E3_EXECUTION=7",
		argv: []string{"sh", "-c", "", "\xff"}, env: []string{"A=b"},
		mask: []string{"s3cret", ""}, redirects: []Redirect{{FD: 1, Path: "out", Mode: Append}, {FD: 2, From: 1}}, identity: "job/1", state: "state\x00",
	}
}

func TestSpawnRoundTrip(t *testing.T) {
	want := exampleSpawn()
	kind, body, rest, _, ok, err := splitFrame(append(appendSpawn(nil, want), 'x'))
	if kind != kindSpawn || string(rest) != "x" || !ok || err != nil {
		t.Fatalf("splitFrame: kind %d, rest %q, %v, %v", kind, rest, ok, err)
	}
	got, err := decodeSpawn(body)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestReplyRoundTrip(t *testing.T) {
	want := reply{kind: kindEnded, flags: flagTimedOut, id: 1 << 60, pid: 1 << 21, status: 9 << 8, startTicks: 5,
		userCPU: 1, systemCPU: 2, peakRSS: 1 << 40, started: -3, ended: 4, maskErrno: 9}
	frame := appendReply(nil, &want)
	if len(frame) != replySize {
		t.Errorf("frame of %d bytes, want %d", len(frame), replySize)
	}
	kind, body, _, _, ok, err := splitFrame(frame)
	if !ok || err != nil {
		t.Fatalf("splitFrame: %v, %v", ok, err)
	}
	if got, err := decodeReply(kind, body); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// Any input gives a message or an error, and a decoded message encodes to the same bytes.
func FuzzFrames(f *testing.F) {
	f.Add(appendSpawn(nil, exampleSpawn()))
	f.Add(appendCancel(appendSpawn(nil, &spawnRequest{}), 3))
	f.Add(appendReply(nil, &reply{kind: kindStarted, id: 1, pid: 2}))
	f.Add(appendRelease(appendExtend(nil, extension{until: 1, most: -1}), "job/1"))
	f.Add(appendOrphan(appendHandover(nil, exampleHandover()), exampleOrphan()))
	f.Add(appendClose(nil))
	f.Add([]byte{0, 0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 1})
	f.Add([]byte{49, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, stream []byte) {
		for {
			kind, body, rest, _, ok, err := splitFrame(stream)
			if err != nil || !ok {
				return
			}
			frame := stream[:len(stream)-len(rest)]
			stream = rest
			var again []byte
			switch kind {
			case kindSpawn:
				r, err := decodeSpawn(body)
				if err != nil {
					continue
				}
				again = appendSpawn(nil, r)
			case kindCancel:
				id, err := decodeCancel(body)
				if err != nil {
					continue
				}
				again = appendCancel(nil, id)
			case kindExtend:
				e, err := decodeExtend(body)
				if err != nil {
					continue
				}
				again = appendExtend(nil, e)
			case kindRelease:
				identity, err := decodeRelease(body)
				if err != nil {
					continue
				}
				again = appendRelease(nil, identity)
			case kindHandover:
				h, err := decodeHandover(body)
				if err != nil {
					continue
				}
				again = appendHandover(nil, h)
			case kindOrphan:
				o, err := decodeOrphan(body)
				if err != nil {
					continue
				}
				again = appendOrphan(nil, o)
			default:
				r, err := decodeReply(kind, body)
				if err != nil {
					continue
				}
				again = appendReply(nil, &r)
			}
			if !bytes.Equal(again, frame) {
				t.Fatalf("decoded %x, encoded %x", frame, again)
			}
		}
	})
}
