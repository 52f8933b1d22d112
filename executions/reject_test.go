package executions_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

func rejection(on bool) *record.Rejection {
	return &record.Rejection{Rejected: on, By: "ann@lab", At: time.UnixMilli(7).UTC(), Reason: "wrong units"}
}

// reject sets the mark; disturbed tells whether the generation changed.
func (l *lab) reject(t *testing.T, k executions.Key, id string, on bool) (changed, disturbed bool) {
	t.Helper()
	g := executions.NewGeneration(l.records, l.records)
	before := wantGeneration(t, g, true)
	changed, err := l.Reject(t.Context(), k, id, rejection(on))
	if err != nil {
		t.Fatal(err)
	}
	return changed, wantGeneration(t, g, true) != before
}

// A rejected success runs again. Once the rejection is taken back, the latest success answers. Nothing else of it
// changes.
func TestReject(t *testing.T) {
	l := newLab(t)
	req := l.request(script("echo said; date +%N > out"))
	first := l.do(t, req)
	bad := l.do(t, func() *executions.Request { r := *req; r.Force = true; return &r }())
	before, err := l.Get(t.Context(), keyOf(req), bad.ExecutionID)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		on, changed bool
	}{{false, false}, {true, true}, {true, false}, {false, true}, {false, false}, {true, true}} {
		changed, disturbed := l.reject(t, keyOf(req), bad.ExecutionID, step.on)
		if changed != step.changed || disturbed != step.changed {
			t.Errorf("reject %v: changed %v, generation changed %v, want %v", step.on, changed, disturbed, step.changed)
		}
		want := bad.ExecutionID
		if step.on {
			want = first.ExecutionID
		}
		if res := l.do(t, req); !res.Cached || res.ExecutionID != want {
			t.Errorf("reject %v: the answer is %+v, want %s", step.on, res, want)
		}
	}
	after, err := l.Get(t.Context(), keyOf(req), bad.ExecutionID)
	if err != nil || string(after.Encode()) != string(before.Encode()) || after.Detail.Worker != "ann@lab" || !after.Rejected() || after.Rejection.Reason != "wrong units" {
		t.Errorf("the rejected one is %+v, %v", after, err)
	}
	if got := l.log(t, req, bad.ExecutionID, executions.Stdout); got != "said\n" {
		t.Errorf("its log is %q", got)
	}

	// With both rejected it runs again, and proofs that relied on them are void.
	l.reject(t, keyOf(req), first.ExecutionID, true)
	g := executions.NewGeneration(l.records, l.records)
	value := wantGeneration(t, g, true)
	if res := l.do(t, req); res.Cached || res.State != record.Success {
		t.Errorf("with all rejected: %+v, want a new one", res)
	}
	if wantGeneration(t, g, true) == value {
		t.Error("the generation did not change when a rejected success was made again")
	}
}

func TestRejectRefuses(t *testing.T) {
	overLibraries(t, func(t *testing.T, l *library) {
		for _, state := range []record.State{record.Failed, record.Error, record.Running} {
			id := newID(t)
			l.put(t, id, statusOf(id, state, "here").Encode())
			if changed, err := l.Reject(t.Context(), importKey, id, rejection(true)); changed || err == nil || !strings.Contains(err.Error(), state.String()) {
				t.Errorf("%v: got %v, %v, want a refusal", state, changed, err)
			}
		}
		if _, err := l.Reject(t.Context(), importKey, newID(t), rejection(true)); !errors.Is(err, executions.ErrNotFound) {
			t.Errorf("of none: %v", err)
		}
		id := newID(t)
		l.put(t, id, []byte("torn"))
		if _, err := l.Reject(t.Context(), importKey, id, rejection(true)); !errors.Is(err, executions.ErrMalformed) {
			t.Errorf("of one that cannot be read: %v", err)
		}
	})
}

func TestDiscard(t *testing.T) {
	overLibraries(t, func(t *testing.T, l *library) {
		output := objectstore.Sum([]byte("here")).String()
		for _, here := range []struct {
			name   string
			value  []byte
			fields []refstore.Field
			gone   bool
			output string // of the tombstone
		}{
			{"whole", nil, nil, false, ""},
			{"torn", []byte("torn"), nil, true, ""},
			{"torn rejection", nil, []refstore.Field{{Name: "rejected.beast2"}}, true, output},
			{"torn provenance", nil, []refstore.Field{{Name: "provenance.beast2", Value: []byte("x")}}, true, output},
		} {
			id := newID(t)
			if here.value == nil {
				here.value = statusOf(id, record.Success, "here").Encode()
			}
			l.put(t, id, here.value, here.fields...)
			if gone, err := l.Discard(t.Context(), importKey, id, "me"); gone != here.gone || err != nil {
				t.Errorf("%s: got %v, %v, want %v", here.name, gone, err, here.gone)
			}
			if _, err := l.Get(t.Context(), importKey, id); errors.Is(err, executions.ErrNotFound) != here.gone {
				t.Errorf("%s: then %v", here.name, err)
			}
			if gone, err := l.Discard(t.Context(), importKey, id, "me"); gone || err != nil {
				t.Errorf("%s, again: %v, %v", here.name, gone, err)
			}
			stones := slices.DeleteFunc(l.tombstones(t), func(s record.Tombstone) bool { return s.ExecutionID != id })
			if len(stones) == 1 != here.gone || here.gone && stones[0].OutputHash != here.output {
				t.Errorf("%s: tombstones are %+v, want one: %v, with the output %q", here.name, stones, here.gone, here.output)
			}
		}
	})
}

// A rerun with the same output becomes an answer. With another output it is on record as rejected.
func TestRerun(t *testing.T) {
	for _, test := range []struct {
		name, script string
		announce     time.Duration
		state        record.State
		rejected     bool
	}{
		{"same", "echo x > out", time.Hour, record.Success, false},
		{"other", "echo $E3_EXECUTION > out", time.Hour, record.Success, true},
		{"other, announced", "sleep 0.1; echo $E3_EXECUTION > out", 10 * time.Millisecond, record.Success, true},
		{"fails", "if test -e %s; then exit 3; fi; touch %s; echo x > out", time.Hour, record.Failed, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t, func(o *executions.Options) { o.Announce = test.announce })
			req := l.request(script(strings.ReplaceAll(test.script, "%s", t.TempDir()+"/flag")))
			first := l.do(t, req)
			a, err := l.Lookup(t.Context(), keyOf(req))
			if err != nil || a.Hit == nil {
				t.Fatalf("%+v, %v", a, err)
			}
			again, err := l.Rerun(t.Context(), req, a.Hit)
			if err != nil || again.Cached || again.State != test.state || again.ExecutionID == first.ExecutionID {
				t.Fatalf("again: %+v, %v", again, err)
			}
			if (again.Output != first.Output) != (test.rejected || test.state != record.Success) {
				t.Errorf("outputs %s and %s", first.Output, again.Output)
			}
			e, err := l.Get(t.Context(), keyOf(req), again.ExecutionID)
			if err != nil || e.Rejected() != test.rejected {
				t.Fatalf("on record: %+v, %v, want rejected %v", e, err, test.rejected)
			}
			if test.rejected && (e.Rejection.By != "ann@lab" || !strings.Contains(e.Rejection.Reason, first.ExecutionID) || !e.Rejection.At.Equal(e.CompletedAt)) {
				t.Errorf("the rejection is %+v", e.Rejection)
			}
			if res := l.do(t, req); !res.Cached || res.Output != first.Output {
				t.Errorf("the answer is now %+v, was %+v", res, first)
			}
			if req.Force {
				t.Error("it has changed the request")
			}
		})
	}
}

// Mend covers executions that the dead session imported, however old they are.
func TestMendImported(t *testing.T) {
	for _, test := range []struct {
		name string
		age  time.Duration // of the import when power was lost
		left int
	}{{"of this session", 0, 0}, {"before", 3 * time.Hour, 1}} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t)
			in := incoming("01890a5d-ac96-774b-bcce-b302099a8057", record.Success, "out", "")
			steps := *chain
			steps.Steps = append([]record.Step(nil), chain.Steps...)
			steps.Steps[1].ImportedAt = time.Now().Add(-test.age)
			in.Provenance = &steps
			if _, err := l.Import(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			r, err := l.records.Get(t.Context(), refstore.Key{Partition: "EXECUTION/" + importKey.String(), Sort: in.Status.ExecutionID})
			if err != nil {
				t.Fatal(err)
			}
			r.Fields = []refstore.Field{{Name: "output", Value: []byte("torn")}}
			if _, err := l.records.Put(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if err := l.Mend(t.Context(), l.objects, executions.NewGeneration(l.records, l.records), time.Now()); err != nil {
				t.Fatal(err)
			}
			if n := len(l.all(t, importKey)); n != test.left {
				t.Errorf("%d are left, want %d", n, test.left)
			}
		})
	}
}

// All and Locate find executions under every key, and name those whose records cannot be read.
func TestAllAndLocate(t *testing.T) {
	l := newLibrary(openStore(t, t.TempDir()))
	other := executions.Key{Task: objectstore.Sum([]byte("other")), Inputs: importKey.Inputs}
	put := func(k executions.Key, id string, value []byte) {
		if _, err := l.records.Put(t.Context(), refstore.Record{Key: refstore.Key{Partition: "EXECUTION/" + k.String(), Sort: id}, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c, torn := "01a1fa79-f9af-7978-9210-86d7c19ce1c5", "01a1fa79-f9d3-7c93-b4fe-94661804c75e", "01a1fa80-0000-7c93-b4fe-94661804c75e", "01a1fa81-0000-7c93-b4fe-94661804c75e"
	put(importKey, a, statusOf(a, record.Success, "a").Encode())
	put(other, b, statusOf(b, record.Failed, "b").Encode())
	put(importKey, c, statusOf(c, record.Success, "c").Encode())
	put(other, c, statusOf(c, record.Success, "c").Encode())
	put(other, torn, []byte("torn"))
	got := map[string]int{}
	for e, err := range l.All(t.Context()) {
		var bad *executions.RecordError
		switch {
		case err == nil:
			got[e.ExecutionID]++
		case errors.As(err, &bad) && bad.Key == other && bad.ExecutionID == torn:
			got[torn]++
		default:
			t.Fatal(err)
		}
	}
	if len(got) != 4 || got[a] != 1 || got[b] != 1 || got[c] != 2 || got[torn] != 1 {
		t.Errorf("All yields %v", got)
	}
	for _, test := range []struct {
		prefix, want string
		err          error
	}{
		{a, a, nil}, {"01A1FA79-F9D", b, nil}, {"01a1fa79", "", executions.ErrAmbiguous}, {c, "", executions.ErrAmbiguous},
		{"", "", executions.ErrAmbiguous}, {"ff", "", executions.ErrNotFound}, {"../x", "", executions.ErrNotFound}, {torn, "", executions.ErrMalformed},
	} {
		e, err := l.Locate(t.Context(), test.prefix)
		if !errors.Is(err, test.err) || err == nil && e.ExecutionID != test.want {
			t.Errorf("%q: got %+v, %v, want %s, %v", test.prefix, e, err, test.want, test.err)
		}
	}
	for _, e := range []struct {
		prefix string
		want   error
	}{{b, nil}, {"01a1fa80", nil}, {a, executions.ErrNotFound}} {
		if _, err := l.FindTask(t.Context(), other.Task, e.prefix); !errors.Is(err, e.want) {
			t.Errorf("FindTask %q: %v, want %v", e.prefix, err, e.want)
		}
	}
}
