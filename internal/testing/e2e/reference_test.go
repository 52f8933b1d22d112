//go:build linux

package e2e

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"e3/internal/format/record"
)

// referenceHeaders returns the bytes with which the TypeScript e3 opens each kind of record.
func referenceHeaders(t *testing.T) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile("../../format/beast2/testdata/record-types.json")
	if err != nil {
		t.Fatal(err)
	}
	var types map[string]struct {
		Header string `json:"header_hex"`
	}
	if err := json.Unmarshal(data, &types); err != nil {
		t.Fatal(err)
	}
	headers := map[string][]byte{}
	for name, typ := range types {
		header, err := hex.DecodeString(typ.Header)
		if err != nil {
			t.Fatal(err)
		}
		headers[name] = header
	}
	return headers
}

// A recordsSeen are the states of the records of real starts that were held to the reference's types.
type recordsSeen struct {
	t       *testing.T
	headers map[string][]byte
	states  map[string]bool
}

// look reads a record's file, holds its header to the reference's, and what is in it to what comes out
// when it is encoded again. Of a record in the making it may be too early, or late, to tell.
func (s *recordsSeen) look(path, kind string, recode func([]byte) (state string, again []byte, err error)) {
	s.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	if kind == "ExecutionStatus" {
		within, err := parts(data)
		if err != nil {
			s.t.Errorf("%s: %v", path, err)
		}
		data = within["status.beast2"]
	}
	if header := s.headers[kind]; len(header) == 0 || !bytes.HasPrefix(data, header) {
		s.t.Errorf("%s begins with\n  %x\nwant the reference's header of %s\n  %x", path, data[:min(len(data), len(header))], kind, header)
	}
	state, again, err := recode(data)
	if err != nil {
		s.t.Errorf("%s: %v", path, err)
	} else if !bytes.Equal(again, data) {
		s.t.Errorf("%s, encoded again:\ngot  %x\nwant %x", path, again, data)
	}
	s.states[kind+" "+state] = true
}

// repository looks at every status, run and workspace record of a project.
func (s *recordsSeen) repository(p *project) {
	s.t.Helper()
	for kind, pattern := range map[string]string{
		"ExecutionStatus": "executions/*/*/*/status.beast2",
		"DataflowRun":     "dataflows/*/*.beast2",
		"WorkspaceState":  "workspaces/*.beast2",
	} {
		paths, err := filepath.Glob(filepath.Join(p.repository(), pattern))
		if err != nil {
			s.t.Fatal(err)
		}
		for _, path := range paths {
			switch kind {
			case "ExecutionStatus":
				s.look(path, kind, func(data []byte) (string, []byte, error) {
					r, err := record.DecodeStatus(data)
					if err != nil {
						return "", nil, err
					}
					return r.State.String(), r.Encode(), nil
				})
			case "DataflowRun":
				s.look(path, kind, func(data []byte) (string, []byte, error) {
					r, err := record.DecodeRun(data)
					if err != nil {
						return "", nil, err
					}
					return r.State.String(), r.Encode(), nil
				})
			case "WorkspaceState":
				s.look(path, kind, func(data []byte) (string, []byte, error) {
					r, err := record.DecodeWorkspaceState(data)
					if err != nil {
						return "", nil, err
					}
					return map[bool]string{true: "with a run", false: "without a run"}[r.CurrentRunID != ""], r.Encode(), nil
				})
			}
		}
	}
}

// What real starts write is what the reference reads, in every state that a record can have.
func TestReferenceReadsOurRecords(t *testing.T) {
	s := &recordsSeen{t: t, headers: referenceHeaders(t), states: map[string]bool{}}
	p := newProject(t, map[string]string{"e3.yaml": `
e3: 1
name: prod
inputs:
  mode: {value: first}
tasks:
  good:    {in: [mode], out: o, run: "echo $mode >$out; echo text"}
  bad:     {in: [mode], out: o, run: "echo $mode >$out; [ $mode != first ] || exit 3"}
  killed:  {in: [mode], out: o, run: "echo $mode >$out; [ $mode != first ] || kill -9 $$"}
  waiting: {in: [good, mode], out: w, run: "cat $good >$out; [ $mode != wait ] || sleep 1000"}
`})
	for _, args := range [][]string{{"init"}, {"workspace", "create", ".", "prod"}, {"workspace", "deploy", ".", "prod", "e3.yaml"}} {
		if r := p.e3(args...); r.code != 0 {
			t.Fatalf("e3 %q: exit code %d\n%s", args, r.code, r.text())
		}
	}
	s.repository(p)
	p.start(1)
	s.repository(p)

	if r := p.e3("set", ".", "prod.mode", "second"); r.code != 0 {
		t.Fatalf("set: exit code %d\n%s", r.code, r.text())
	}
	p.start(0)
	s.repository(p)

	if r := p.e3("set", ".", "prod.mode", "wait"); r.code != 0 {
		t.Fatalf("set: exit code %d\n%s", r.code, r.text())
	}
	x := p.spawn("start", "-f", "e3.yaml", "--json")
	eventually(t, patience, "an execution on record as running", func() string {
		for _, e := range p.all() {
			if e.State == record.Running {
				return ""
			}
		}
		return "there is none"
	})
	s.repository(p)
	syscall.Kill(x.cmd.Process.Pid, syscall.SIGTERM)
	if r := x.wait(); r.code != 130 {
		t.Fatalf("cancelled: exit code %d, want 130\n%s", r.code, r.text())
	}
	s.repository(p)

	for _, want := range []string{
		"ExecutionStatus error", "ExecutionStatus failed", "ExecutionStatus running", "ExecutionStatus success",
		"DataflowRun running", "DataflowRun completed", "DataflowRun failed", "DataflowRun cancelled",
		"WorkspaceState with a run", "WorkspaceState without a run",
	} {
		if !s.states[want] {
			t.Errorf("no record was seen of %s; seen: %q", want, slices.Sorted(maps.Keys(s.states)))
		}
	}
}
