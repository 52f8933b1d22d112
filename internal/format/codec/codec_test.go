package codec_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"e3/internal/format/beast2"
	"e3/internal/format/codec"
)

type color int

func (c color) Cases() []string { return []string{"blue", "green", "red"} }

type amount struct {
	Name  string
	Value float64 `beast2:",min=0"`
}

type room struct {
	Closed  bool `beast2:",present"`
	Network bool
}

type keys struct {
	List []string `beast2:"*,sorted,max=3"`
}

type need struct {
	Kind color `beast2:"*,case,bare"`
	N    int64 `beast2:",in=green|red"`
	M    int64 `beast2:",in=red"`
}

func (n *need) Check() error {
	if n.N == 13 {
		return errors.New("13 is refused")
	}
	return nil
}

// everything has a field for each thing that a tag can say.
type everything struct {
	RunID   string
	TTL     time.Duration `beast2:"ttlMs"`
	CPU     time.Duration `beast2:"cpuUs,us"`
	At      time.Time
	Ended   time.Time `beast2:",option"`
	Tries   int       `beast2:",min=0,max=255"`
	Sum     [4]byte
	Data    []byte
	Serial  uint32
	Color   color    `beast2:",max=1"`
	Argv    []string `beast2:",of=command,min=1"`
	Shell   string   `beast2:",of=command"`
	Amounts []amount `beast2:",dict"`
	Room    room     `beast2:",option"`
	Keys    *keys
	Need    need
	State   color  `beast2:"status,case"`
	Why     string `beast2:",in=red"`
	Where   string `beast2:",in=green|red"`
	Last    bool
	Passed  []string `beast2:"-"`
}

var everythings = codec.New[everything]("everything")

// TestType: what the tags say is the type of a record.
func TestType(t *testing.T) {
	str, integer := beast2.String, beast2.Integer
	want := beast2.Struct(
		beast2.F("runId", str), beast2.F("ttlMs", integer), beast2.F("cpuUs", integer), beast2.F("at", beast2.DateTime),
		beast2.F("ended", beast2.Option(beast2.DateTime)), beast2.F("tries", integer), beast2.F("sum", beast2.Blob),
		beast2.F("data", beast2.Blob), beast2.F("serial", integer),
		beast2.F("color", beast2.Variant(beast2.F("blue", beast2.Null), beast2.F("green", beast2.Null))),
		beast2.F("command", beast2.Variant(beast2.F("argv", beast2.Array(str)), beast2.F("shell", str))),
		beast2.F("amounts", beast2.Dict(str, beast2.Float)),
		beast2.F("room", beast2.Option(beast2.Struct(beast2.F("network", beast2.Boolean)))),
		beast2.F("keys", beast2.Option(beast2.Array(str))),
		beast2.F("need", beast2.Variant(beast2.F("blue", beast2.Null), beast2.F("green", integer),
			beast2.F("red", beast2.Struct(beast2.F("n", integer), beast2.F("m", integer))))),
		beast2.F("status", beast2.Variant(beast2.F("blue", beast2.Struct()), beast2.F("green", beast2.Struct(beast2.F("where", str))),
			beast2.F("red", beast2.Struct(beast2.F("why", str), beast2.F("where", str))))),
		beast2.F("last", beast2.Boolean))
	if got := everythings.Type(); got.String() != want.String() {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

var some = rapid.Custom(func(t *rapid.T) *everything {
	text := rapid.String()
	number := rapid.Int64Range(14, 1<<40)
	e := &everything{
		RunID: text.Draw(t, "id"), TTL: time.Duration(number.Draw(t, "ttl")) * time.Millisecond,
		CPU: time.Duration(number.Draw(t, "cpu")) * time.Microsecond, At: time.UnixMilli(number.Draw(t, "at")).UTC(),
		Tries: rapid.IntRange(0, 255).Draw(t, "tries"), Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
		Serial: rapid.Uint32().Draw(t, "serial"), Color: color(rapid.IntRange(0, 1).Draw(t, "color")),
		Amounts: rapid.SliceOfDistinct(rapid.Custom(func(t *rapid.T) amount {
			return amount{text.Draw(t, "name"), rapid.Float64Range(0, 9).Draw(t, "value")}
		}), func(a amount) string { return a.Name }).Draw(t, "amounts"),
		Need: need{Kind: color(rapid.IntRange(0, 2).Draw(t, "kind"))}, State: color(rapid.IntRange(0, 2).Draw(t, "state")),
		Last: rapid.Bool().Draw(t, "last"),
	}
	copy(e.Sum[:], text.Draw(t, "sum"))
	flip := func(what string) bool { return rapid.Bool().Draw(t, what) }
	if flip("ended") {
		e.Ended = time.UnixMilli(number.Draw(t, "end")).UTC()
	}
	if e.Shell = text.Draw(t, "script"); flip("argv") {
		e.Argv, e.Shell = []string{"cp"}, ""
	}
	if flip("closed") {
		e.Room = room{true, flip("network")}
	}
	if flip("keys") {
		e.Keys = &keys{[]string{"a", "b"}}
	}
	if e.Need.Kind > 0 {
		e.Need.N = number.Draw(t, "n")
	}
	if e.Need.Kind == 2 {
		e.Need.M = number.Draw(t, "m")
	}
	if e.State > 0 {
		e.Where = text.Draw(t, "where")
	}
	if e.State == 2 {
		e.Why = text.Draw(t, "why")
	}
	return e
})

// TestRoundTrip: a record reads back, and the generic decoder of beast2, which knows nothing of tags, reads its bytes.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := some.Draw(t, "record")
		data := everythings.Encode(want, 64)
		got, err := everythings.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if _, _, err := beast2.Decode(data); err != nil {
			t.Errorf("beast2: %v", err)
		}
	})
}

// TestRefused: each bound of a tag is held, and the error names the field.
func TestRefused(t *testing.T) {
	for want, change := range map[string]func(*everything){
		"tries: 256 is out of range": func(e *everything) { e.Tries = 256 },
		"tries: -1 is out of range":  func(e *everything) { e.Tries = -1 },
		"value: -1 is out of range":  func(e *everything) { e.Amounts = []amount{{"x", -1}} },
		"ttlMs: -1 is out of range":  func(e *everything) { e.TTL = -time.Millisecond },
		"argv is empty":              func(e *everything) { e.Argv = []string{} },
		"tag 2":                      func(e *everything) { e.Color = 2 },
		`name "a" is out of order`:   func(e *everything) { e.Keys = &keys{[]string{"b", "a"}} },
		`name "b" is out of order`:   func(e *everything) { e.Keys = &keys{[]string{"b", "b"}} },
		"list: 4 are more than 3":    func(e *everything) { e.Keys = &keys{[]string{"a", "b", "c", "d"}} },
		"13 is refused":              func(e *everything) { e.Need = need{Kind: 1, N: 13} },
	} {
		e := &everything{At: time.UnixMilli(0), Shell: "true"}
		change(e)
		if _, err := everythings.Decode(everythings.Encode(e, 0)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	good := everythings.Encode(&everything{At: time.UnixMilli(0)}, 0)
	if _, err := everythings.Decode(append(good, 0)); err == nil {
		t.Error("a byte after the record is accepted")
	}
	for n := range good {
		if _, err := everythings.Decode(good[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are accepted", n, len(good))
		}
	}
	other := codec.New[amount]("amount")
	if _, err := everythings.Decode(other.Encode(&amount{}, 0)); !errors.Is(err, codec.ErrType) {
		t.Errorf("a record of another type: got %v, want %v", err, codec.ErrType)
	}
}

// TestMemory: lists of an untrusted record take no more memory than allowed.
func TestMemory(t *testing.T) {
	data := everythings.Encode(&everything{At: time.UnixMilli(0), Amounts: make([]amount, 1000)}, 0)
	if _, err := everythings.DecodeWithin(data, codec.NewMemory(1<<20)); err != nil {
		t.Error(err)
	}
	if _, err := everythings.DecodeWithin(data, codec.NewMemory(1<<10)); err == nil || !strings.Contains(err.Error(), "1024 bytes of memory") {
		t.Errorf("got %v, want that they take more than 1024 bytes", err)
	}
}

// FuzzDecode: what is accepted has the bytes that it is written with.
func FuzzDecode(f *testing.F) {
	f.Add(everythings.Encode(&everything{At: time.UnixMilli(0)}, 0))
	f.Add(everythings.Encode(&everything{RunID: "r", At: time.UnixMilli(5), Argv: []string{"a"}, State: 2, Why: "w", Room: room{Closed: true}, Keys: &keys{[]string{"a"}}, Need: need{2, 1, 2}}, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := everythings.Decode(data)
		if err != nil {
			return
		}
		if again := everythings.Encode(v, 0); !bytes.Equal(data, again) {
			t.Errorf("%x is read, and written as %x", data, again)
		}
	})
}
