package record_test

import (
	"strings"
	"testing"

	"e3/internal/format/beast2"
	"e3/internal/format/digest"
	"e3/internal/format/record"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestRoom: a task in a closed room has a form of its own, whatever else it has, and one in the open room keeps its hash.
func TestRoom(t *testing.T) {
	open := keyedTask()
	open.Room = record.Room{}
	if got := digest.Sum(open.Encode()).String(); got != "d1428ed2b61c28bc8845efab352cfa027cb5b6671592986289394d8fcbee3994" {
		t.Errorf("a task in the open room has the hash %s", got)
	}
	hashes := map[string]bool{}
	for _, room := range []record.Room{{}, {Closed: true}, {Closed: true, Network: true}, record.Room{Closed: true, Network: true}.WithDevices([]string{"nvidia"})} {
		for _, passed := range []record.Passed{{}, {Env: []string{"A"}}, {Secrets: []string{"B"}}} {
			for _, inputs := range [][]record.Input{nil, keyedTask().Inputs} {
				want := keyedTask()
				want.Room, want.Passed, want.Inputs = room, passed, inputs
				data := want.Encode()
				got, err := record.DecodeTask(data)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%v (-want +got):\n%s", room, diff)
				}
				hashes[digest.Sum(data).String()] = true
			}
		}
	}
	if len(hashes) != 24 {
		t.Errorf("24 tasks have %d hashes", len(hashes))
	}
}

// TestRoomIsRefusedByOlder: to an e3 without rooms the type of such a task is unknown. One with rooms refuses words that
// it does not know.
func TestRoomIsRefusedByOlder(t *testing.T) {
	task := keyedTask()
	known := task.Encode()
	task.Room = record.Room{Closed: true, Network: true}
	data := task.Encode()
	a, _, err := beast2.Decode(known)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := beast2.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if a.String() == b.String() {
		t.Errorf("both have the type %s", a)
	}
	for _, word := range []string{"device:nvidib", "devicf:nvidia"} {
		task.Room = record.Room{Closed: true}.WithDevices([]string{"nvidia"})
		later := strings.Replace(string(task.Encode()), "device:nvidia", word, 1)
		if _, err := record.DecodeTask([]byte(later)); err == nil || !strings.Contains(err.Error(), "not supported by this version") {
			t.Errorf("%s: %v", word, err)
		}
	}
	later := strings.Replace(string(data), "network", "netwerk", 1)
	if _, err := record.DecodeTask([]byte(later)); err == nil || !strings.Contains(err.Error(), "not supported by this version") {
		t.Errorf("a later word: %v", err)
	}
}

// TestImage: a task with an image has another hash, and an e3 without images refuses its field.
func TestImage(t *testing.T) {
	task := keyedTask()
	task.Room = record.Room{Closed: true}
	without := string(task.Encode())
	task.Image = strings.Repeat("ab", 32)
	data := task.Encode()
	got, err := record.DecodeTask(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(task, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if string(data) == without || len(data) != len(without)+65 {
		t.Errorf("%d bytes with an image, %d without", len(data), len(without))
	}
	for _, bad := range []record.Task{{Argv: task.Argv, Output: task.Output, Image: task.Image, Room: record.Room{Closed: true}}} {
		for name, change := range map[string]func(){"open": func() { bad.Room.Closed = false }, "a name": func() { bad.Image = "python:3" }} {
			keep := bad
			change()
			if _, err := record.DecodeTask(bad.Encode()); err == nil {
				t.Errorf("%s: accepted", name)
			}
			bad = keep
		}
	}
}

// TestLinkImages: a link with images has them, with a room or without.
func TestLinkImages(t *testing.T) {
	for _, room := range []string{"", "closed"} {
		want := &record.Link{Home: "/h", Room: room, Images: "oci:x\tabc\n", File: "e3.yaml", Package: "p"}
		got, err := record.DecodeLink(want.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
