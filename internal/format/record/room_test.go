package record_test

import (
	"strings"
	"testing"

	"e3/internal/format/digest"
	"e3/internal/format/record"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestRoom: tasks in different rooms have different hashes, whatever else they have.
func TestRoom(t *testing.T) {
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

// TestUnknownDevice: a device that is not known is refused.
func TestUnknownDevice(t *testing.T) {
	task := keyedTask()
	task.Room = record.Room{Closed: true}.WithDevices([]string{"nvidib"})
	if _, err := record.DecodeTask(task.Encode()); err == nil || !strings.Contains(err.Error(), `device "nvidib" is not supported`) {
		t.Errorf("got %v, want that it is refused", err)
	}
}

// TestImage: a task with an image has another hash.
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
