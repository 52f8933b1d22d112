package term

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var noon = time.Date(2024, 1, 15, 12, 0, 0, 0, time.UTC)

func TestDisplayLine(t *testing.T) {
	task := func(name string, ago time.Duration) runningTask { return runningTask{name, noon.Add(-ago)} }
	long := strings.Repeat("long", 20)
	for _, test := range []struct {
		name    string
		running []runningTask
		room    int
		want    string
	}{
		{"nothing runs", nil, 79, "[3/10]"},
		{"one", []runningTask{task("train", 12*time.Second)}, 79, "[3/10] train 12s"},
		{"two", []runningTask{task("train", 62*time.Second), task("eval", 0)}, 79, "[3/10] train 1m02s, eval 0s"},
		{"more than fit", []runningTask{task("alpha", 0), task("beta", 0), task("gamma", 0), task("delta", 0)}, 30, "[3/10] alpha 0s, +3 more"},
		{"just fit", []runningTask{task("a", 0), task("b", 0)}, 18, "[3/10] a 0s, b 0s"},
		{"a long name", []runningTask{task(long, 0), task("b", 0)}, 40, "[3/10] longlonglo…nglonglong 0s, b 0s"},
		{"wide characters", []runningTask{task("日本語日本語日本語", 0)}, 20, "[3/10] 日本…本語 0s"},
		{"a name that would move the cursor", []runningTask{task("a\x1b[2J\n", 0)}, 79, `[3/10] a\x1b[2J\n 0s`},
		{"no room", []runningTask{task("train", 0)}, 5, "[3/1…"},
		{"none at all", []runningTask{task("train", 0)}, 0, ""},
		{"a clock that went back", []runningTask{task("train", -time.Hour)}, 79, "[3/10] train 0s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := &Live{done: 3, total: 10, running: test.running, now: func() time.Time { return noon }}
			got := d.line(test.room)
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if Columns(got) > max(test.room, 0) {
				t.Errorf("%q takes %d columns of %d", got, Columns(got), test.room)
			}
		})
	}
}

// A line is never wider than the terminal, whatever the width and the names are.
func TestDisplayLineFits(t *testing.T) {
	d := &Live{done: 3, total: 10000, now: func() time.Time { return noon }}
	for _, name := range []string{"a", "日本語", "ünï çödé", strings.Repeat("x", 200), "e\u0301", "👍🏽"} {
		d.running = append(d.running, runningTask{name, noon.Add(-time.Minute)})
		for room := range 120 {
			if got := d.line(room); Columns(got) > room || !utf8.ValidString(got) {
				t.Fatalf("%d tasks, %d columns: %q takes %d", len(d.running), room, got, Columns(got))
			}
		}
	}
}

// Tasks that wait for approval are shown before running ones.
func TestDisplayWaiting(t *testing.T) {
	d := &Live{done: 3, total: 10, now: func() time.Time { return noon }}
	d.Wait(1)
	d.Wait(1)
	if got, want := d.line(79), "[3/10] 2 waiting for approval"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	d.Start("train", noon)
	if got, want := d.line(79), "[3/10] 2 waiting for approval; train 0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	d.Wait(-2)
	if got, want := d.line(79), "[3/10] train 0s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The live line is erased at the end, and lines that were printed meanwhile stay.
func TestDisplayLeavesNothing(t *testing.T) {
	var screen bytes.Buffer
	d := newLive(&screen, func() int { return 40 }, func() time.Time { return noon })
	d.Above(func() { screen.WriteString("before\n") })
	d.Progress(0, 2)
	d.Start("task", noon)
	d.Above(func() { screen.WriteString("between\n") })
	d.End("task")
	d.End("unknown")
	d.Above(func() { screen.WriteString("after\n") })
	d.Close()
	d.Above(func() { screen.WriteString("at the end\n") })
	if got, want := shows(screen.String()), "before\nbetween\nafter\nat the end\n"; got != want {
		t.Errorf("the screen shows %q, want %q", got, want)
	}
	if !strings.Contains(screen.String(), "[0/2] task 0s") {
		t.Errorf("the live line was never drawn: %q", screen.String())
	}
}

// shows simulates a terminal for the few sequences that the display uses.
func shows(s string) string {
	var done strings.Builder
	line, at := "", 0
	for s != "" {
		switch {
		case strings.HasPrefix(s, eraseBelow):
			line, at, s = "", 0, s[len(eraseBelow):]
		case strings.HasPrefix(s, wrapOff), strings.HasPrefix(s, wrapOn):
			s = s[len(wrapOff):]
		case s[0] == '\r':
			at, s = 0, s[1:]
		case s[0] == '\n':
			done.WriteString(line + "\n")
			line, at, s = "", 0, s[1:]
		default:
			line, s = line[:at]+s[:1]+line[min(at+1, len(line)):], s[1:]
			at++
		}
	}
	return done.String() + line
}
