package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Parse reads one line, with or without its newline. It ignores unknown fields: the format only grows. A line without
// the right sum is an error.
func Parse(line []byte) (*Event, error) {
	e, err := parseLine(line)
	if err == nil && (e.Seq < 1 || e.Type == "" || e.Run == "") {
		return nil, fmt.Errorf("event: seq, run or type is missing")
	}
	return e, err
}

// parseLine parses a line of a run's log or of a journal.
func parseLine(line []byte) (*Event, error) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	before, err := checkSum(line)
	if err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	e := plainLine(before)
	if e == nil {
		e = &Event{}
		if err := json.Unmarshal(line, e); err != nil {
			return nil, fmt.Errorf("event: %w", err)
		}
	}
	return e, nil
}

// longestPlain bounds the lines that are read the fast way: their texts keep the whole line in memory.
const longestPlain = 2 << 10

// plainLine parses the form of most lines of [Append], several times as fast as encoding/json; nil for any other
// line. Both agree on every line that plainLine parses. The line lacks its sum and the end of the object.
func plainLine(line []byte) *Event {
	if len(line) > longestPlain || bytes.IndexByte(line, '\\') >= 0 || !utf8.Valid(line) {
		return nil
	}
	p := &plain{rest: string(line), ok: true}
	e := &Event{}
	p.want(`{"seq":`)
	e.Seq = p.number()
	p.want(`,"time":`)
	e.Time = p.time()
	p.want(`,"run":`)
	e.Run = p.text()
	p.want(`,"workspace":`)
	e.Workspace = p.text()
	p.want(`,"type":`)
	e.Type = Type(p.text())
	if p.have(`,"task":`) {
		e.Task = p.text()
	}
	if p.have(`,"execution":`) {
		e.Execution = p.text()
	}
	if p.have(`,"worker":`) {
		e.Worker = p.text()
	}
	if p.have(`,"data":{`) {
		e.Data = &Data{}
		p.data(e.Data)
	}
	if !p.ok || p.rest != "" {
		return nil
	}
	return e
}

// plain splits a line without escapes. ok becomes false at an unexpected byte.
type plain struct {
	rest string
	ok   bool
}

func (p *plain) have(s string) bool {
	rest, ok := strings.CutPrefix(p.rest, s)
	p.rest = rest
	return ok
}

func (p *plain) want(s string) { p.ok = p.have(s) && p.ok }

func (p *plain) text() string {
	p.want(`"`)
	s, rest, ok := strings.Cut(p.rest, `"`)
	for i := range len(s) {
		ok = ok && s[i] >= ' '
	}
	if p.ok = p.ok && ok; !p.ok {
		return ""
	}
	p.rest = rest
	return s
}

// number reads an integer in Go's form.
func (p *plain) number() int64 {
	n := len(p.rest) - len(strings.TrimLeft(p.rest, "-0123456789"))
	v, err := strconv.ParseInt(p.rest[:n], 10, 64)
	if err != nil || n > 1 && strings.TrimLeft(p.rest[:n], "-")[0] == '0' {
		p.ok = false
	}
	p.rest = p.rest[n:]
	return v
}

// time reads a time in Append's form.
func (p *plain) time() time.Time {
	s := p.text()
	if len(s) != len("2006-01-02T15:04:05.000Z") || s[19] != '.' || s[23] != 'Z' {
		p.ok = false
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		p.ok = false
	}
	return t
}

// data reads the members of events of tasks, up to the end of the object.
func (p *plain) data(d *Data) {
	for more := false; p.ok && !p.have("}"); more = true {
		if more {
			p.want(",")
		}
		name := p.text()
		p.want(":")
		switch name {
		case "key":
			d.Key = p.text()
		case "output":
			d.Output = p.text()
		case "as":
			d.As = p.text()
		case "reason":
			d.Reason = p.text()
		case "message":
			d.Message = p.text()
		case "because":
			d.Because = p.text()
		case "attempt":
			d.Attempt = p.number()
		case "ms":
			d.Duration = p.number()
		case "exitCode":
			d.ExitCode = p.number()
		case "bytes":
			d.Bytes = p.number()
		case "delayMs":
			d.DelayMs = p.number()
		case "tasks":
			n := p.number()
			d.Tasks = int(n)
			p.ok = p.ok && int64(d.Tasks) == n
		case "shared":
			if d.Shared = p.have("true"); !d.Shared {
				p.want("false")
			}
		default:
			p.ok = false
		}
	}
}
