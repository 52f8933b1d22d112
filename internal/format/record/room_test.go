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
