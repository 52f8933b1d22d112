package events_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"e3/internal/events"
	"e3/internal/events/eventstest"
)

var texts = rapid.StringN(0, 20, -1)

var anyEvent = rapid.Custom(func(t *rapid.T) events.Event {
	e := events.Event{
		Seq:       rapid.Int64Range(1, math.MaxInt64).Draw(t, "seq"),
		Time:      time.UnixMilli(rapid.Int64Range(-1<<40, 1<<45).Draw(t, "ms")).UTC(),
		Run:       rapid.StringN(1, 20, -1).Draw(t, "run"),
		Workspace: texts.Draw(t, "ws"),
		Type:      events.Type(rapid.StringN(1, 20, -1).Draw(t, "type")),
		Task:      texts.Draw(t, "task"), Execution: texts.Draw(t, "execution"), Worker: texts.Draw(t, "worker"),
	}
	if rapid.Bool().Draw(t, "data") {
		e.Data = &events.Data{
			Package: texts.Draw(t, "package"), Tasks: rapid.Int().Draw(t, "tasks"), As: texts.Draw(t, "as"), Key: texts.Draw(t, "key"),
			Attempt: rapid.Int64().Draw(t, "attempt"), Duration: rapid.Int64().Draw(t, "ms"), ExitCode: rapid.Int64().Draw(t, "exit"),
			Reason: texts.Draw(t, "reason"), Message: texts.Draw(t, "message"), Output: texts.Draw(t, "output"),
			DelayMs: rapid.Int64().Draw(t, "delay"), Because: texts.Draw(t, "because"), Shared: rapid.Bool().Draw(t, "shared"),
		}
		if rapid.Bool().Draw(t, "process") {
			e.Data.Process = &events.Process{PID: rapid.Int().Draw(t, "pid"), StartTime: rapid.Uint64().Draw(t, "start"), Host: texts.Draw(t, "host")}
		}
		if rapid.Bool().Draw(t, "summary") {
			e.Data.Summary = &events.Summary{Total: rapid.Int64().Draw(t, "total"), Skipped: rapid.Int64().Draw(t, "skipped")}
		}
	}
	return e
})

func TestLineRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyEvent.Draw(t, "event")
		line, err := events.AppendLine(nil, &want)
		if err != nil {
			t.Fatal(err)
		}
		checkLine(t, line)
		got, err := events.Parse(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		slow := &events.Event{}
		if err := json.Unmarshal(line, slow); err != nil || !cmp.Equal(slow, got) {
			t.Fatalf("%s: parsed %+v, its JSON says %+v, %v", line, got, slow, err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Fatalf("parsed event differs (-want +got):\n%s", diff)
		}
		bare, err := events.Parse(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil || !cmp.Equal(bare, got) {
			t.Fatalf("without its newline: %v, %v", bare, err)
		}
		before := []byte("before\n")
		if more, err := events.AppendLine(before, &want); err != nil || string(more) != "before\n"+string(line) {
			t.Fatalf("appended to a line: %q, %v", more, err)
		}
	})
}

// checkLine tells whether line is one line of JSON.
func checkLine(t interface{ Fatalf(string, ...any) }, line []byte) {
	if !bytes.HasSuffix(line, []byte("\n")) || bytes.Count(line, []byte("\n")) != 1 {
		t.Fatalf("not one line: %q", line)
	}
	if !json.Valid(line) {
		t.Fatalf("not JSON: %s", line)
	}
}

func TestLineText(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 5_999_999, time.FixedZone("", 3600))
	for _, test := range []struct {
		name string
		e    events.Event
		want string
	}{
		{
			"bare", events.Event{Seq: 1, Time: at, Run: "r", Workspace: "w", Type: events.RunStarted},
			`{"seq":1,"time":"2026-11-20T11:00:00.005Z","run":"r","workspace":"w","type":"run.started"}`,
		},
		{
			"task", events.Event{Seq: 2, Time: at.Truncate(time.Second), Run: "r", Workspace: "w", Type: events.TaskFailed, Task: "train[4]",
				Execution: "x", Worker: "ann@lab", Data: &events.Data{ExitCode: 3, Attempt: 1}},
			`{"seq":2,"time":"2026-11-20T11:00:00.000Z","run":"r","workspace":"w","type":"task.failed","task":"train[4]",` +
				`"execution":"x","worker":"ann@lab","data":{"attempt":1,"exitCode":3}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := events.Append(nil, &test.e)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.want+"\n" {
				t.Errorf("got  %swant %s", got, test.want)
			}
		})
	}
}

// Names may hold characters that Go quotes in a way that JSON does not know.
func TestLineOddNames(t *testing.T) {
	for _, name := range []string{"\x00", "\a", "\x7f", "\U000e0001", "\u2028", `"\`, "\xff", "<&>"} {
		e := events.Event{Seq: 1, Run: name, Workspace: name, Type: events.TaskSkipped, Task: name, Data: &events.Data{Because: name}}
		line, err := events.AppendLine(nil, &e)
		if err != nil {
			t.Fatal(err)
		}
		checkLine(t, line)
		got, err := events.Parse(line)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		want := strings.ToValidUTF8(name, "\ufffd")
		if got.Run != want || got.Workspace != want || got.Task != want || got.Data.Because != want {
			t.Errorf("%q came back as %q, %q, %q, %q", name, got.Run, got.Workspace, got.Task, got.Data.Because)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ name, line string }{
		{"empty", ""},
		{"blank", "\n"},
		{"text", "hello\n"},
		{"cut short", `{"seq":1,"time":"2026-11-20T11:00:00.000Z","run":"r","ty`},
		{"two events", `{"seq":1,"run":"r","type":"t"}{"seq":2,"run":"r","type":"t"}`},
		{"a list", `[]`},
		{"null", `null`},
		{"no seq", `{"run":"r","type":"run.started"}`},
		{"seq 0", `{"seq":0,"run":"r","type":"run.started"}`},
		{"fractional seq", `{"seq":1.5,"run":"r","type":"run.started"}`},
		{"no run", `{"seq":1,"type":"run.started"}`},
		{"no type", `{"seq":1,"run":"r"}`},
		{"time that is none", `{"seq":1,"run":"r","type":"t","time":"yesterday"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if e, err := events.Parse([]byte(eventstest.Summed(test.line))); err == nil {
				t.Errorf("taken as %+v", e)
			}
		})
	}
}

func TestParseUnknownFields(t *testing.T) {
	e, err := events.Parse([]byte(eventstest.Summed(`{"seq":7,"run":"r","type":"task.napped","naps":3,"data":{"dream":"of sheep","attempt":2}}`)))
	if err != nil {
		t.Fatal(err)
	}
	if e.Seq != 7 || e.Type != "task.napped" || e.Data == nil || e.Data.Attempt != 2 {
		t.Errorf("got %+v", e)
	}
}

// Parse agrees with the line's JSON, and the result can be written and parsed again.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, line []byte) {
		if _, err := events.Parse(line); err == nil && eventstest.Summed(string(line)) != string(line) {
			t.Fatalf("a line without its sum is an event: %s", line)
		}
		line = []byte(eventstest.Summed(string(line)))
		e, err := events.Parse(line)
		slow := &events.Event{}
		good := json.Unmarshal(line, slow) == nil && slow.Seq > 0 && slow.Run != "" && slow.Type != ""
		if good != (err == nil) {
			t.Fatalf("Parse says %v; its JSON is an event: %v", err, good)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(slow, e); diff != "" || slow.Time.Location() != e.Time.Location() {
			t.Errorf("-JSON +parsed:\n%s", diff)
		}
		e.Time = e.Time.UTC().Truncate(time.Millisecond)
		if y := e.Time.Year(); y < 0 || y > 9999 {
			return // another zone may move a time out of the range of RFC 3339
		}
		again, err := events.AppendLine(nil, e)
		if err != nil {
			t.Fatal(err)
		}
		checkLine(t, again)
		got, err := events.Parse(again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Errorf("written and parsed again (-want +got):\n%s", diff)
		}
	})
}

func TestMilliseconds(t *testing.T) {
	for n, want := range map[int64]time.Duration{
		0: 0, 8: 8 * time.Millisecond, -1: 0, math.MinInt64: 0, math.MaxInt64: math.MaxInt64 / time.Millisecond * time.Millisecond,
	} {
		if got := events.Milliseconds(n); got != want {
			t.Errorf("Milliseconds(%d) = %v, want %v", n, got, want)
		}
	}
}
