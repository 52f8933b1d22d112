package approval_test

import (
	"errors"
	"strings"
	"testing"

	"e3/internal/jobs/approval"
	"e3/refstore"
	"e3/refstore/mem"
)

const id = "0197f3c1-aaaa-7000-8000-000000000001"

func TestDecode(t *testing.T) {
	decided := func(status, more string) string {
		return strings.Replace(present, `"pending"`, `"`+status+`","at":"2026-01-02T03:04:06Z"`+more, 1)
	}
	for name, test := range map[string]struct{ text, want string }{
		"pending":            {present, ""},
		"withdrawn":          {strings.Replace(present, `"created"`, `"at":"2026-01-02T03:04:06Z","by":"a@b","created"`, 1), ""},
		"approved":           {decided("approved", `,"by":"a@b","note":"n"`), ""},
		"acted on":           {decided("approved", `,"acted":"2026-01-02T03:04:07Z"`), ""},
		"untold":             {decided("approved", `,"untold":7`), ""},
		"acted on too early": {strings.Replace(present, `"created"`, `"acted":"2026-01-02T03:04:07Z","created"`, 1), "that does not exist"},
		"another content":    {strings.Replace(present, `"key":"a`, `"key":"b`, 1), "its key"},
		"no key":             {strings.Replace(present, `"key"`, `"step"`, 1), "its key"},
		"no run":             {strings.Replace(present, `"run"`, `"step"`, 1), `run ""`},
		"empty":              {"", "EOF"},
		"more":               {present + "{}", "more follows"},
		"an unknown field":   {strings.Replace(present, `"type"`, `"kind":1,"type"`, 1), "unknown field"},
		"an unknown type":    {strings.Replace(present, "review", "nap", 1), `type "nap"`},
		"an unknown status":  {decided("maybe", ""), `status "maybe"`},
		"no id":              {strings.Replace(present, id, "7", 1), "no UUIDv7"},
		"another id":         {strings.Replace(present, "-7000-", "-4000-", 1), "no UUIDv7"},
		"an id in capitals":  {strings.Replace(present, id, strings.ToUpper(id), 1), "no UUIDv7"},
		"decided at no time": {strings.Replace(present, "pending", "approved", 1), "time of its decision"},
		"the year 1":         {strings.Replace(decided("approved", ""), "2026-01-02T03:04:06Z", "0001-01-01T00:00:00Z", 1), "time of its decision"},
		"a long note":        {decided("approved", `,"note":"`+strings.Repeat("n", 5000)+`"`), "too long"},
		"a large record":     {present + strings.Repeat(" ", 70000), "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := approval.Decode(refstore.Record{Key: presentKey(t), Value: []byte(test.text)})
			switch {
			case test.want == "" && (err != nil || b.ID != id || b.Workspace != "prod" || b.Run != run1 || b.Task != "train[a/b]" || b.Key != content("a")):
				t.Errorf("it is %+v, %v", b, err)
			case test.want != "" && (!errors.Is(err, approval.ErrMalformed) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
	key := presentKey(t)
	for _, k := range []refstore.Key{
		{Partition: "LOCK/prod", Sort: key.Sort}, {Partition: key.Partition, Sort: run1}, {Partition: "APPROVAL/", Sort: key.Sort},
		{Partition: key.Partition, Sort: "/a"}, {Partition: key.Partition, Sort: "train[a/b]/"}, {Partition: "BLOCK/prod", Sort: run1 + "/train[a/b]"},
	} {
		if _, err := approval.Decode(refstore.Record{Key: k, Value: []byte(present)}); !errors.Is(err, approval.ErrMalformed) {
			t.Errorf("under %q: %v", k, err)
		}
	}
}

// present is a block as this version of e3 writes it.
var present = `{"id":"` + id + `","type":"review","key":"` + content("a") + `","run":"` + run1 + `","status":"pending","created":"2026-01-02T03:04:05.123Z"}`

// presentKey is the key of its record.
func presentKey(t *testing.T) refstore.Key {
	s := mem.New()
	ask(t, blocks(s), review(run1, "train[a/b]"))
	for rec := range s.List(t.Context(), refstore.Query{Partition: "APPROVAL/prod"}) {
		return rec.Key
	}
	return refstore.Key{}
}

// A record is either refused or equal to its own encoding.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(present))
	f.Add([]byte(strings.Replace(present, `"pending"`, `"rejected","at":"2026-01-02T03:04:06+01:00","by":"a","note":"n","untold":3`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		key := presentKey(t)
		b, err := approval.Decode(refstore.Record{Key: key, Value: data})
		if err != nil {
			if !errors.Is(err, approval.ErrMalformed) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		s := mem.New()
		if _, err := s.Put(t.Context(), refstore.Record{Key: key, Value: data}); err != nil {
			t.Fatal(err)
		}
		got, changed, err := blocks(s).Resolve(t.Context(), &b, approval.Resolution{Approve: true})
		if changed != (b.Status == approval.Pending) {
			t.Errorf("it is %s, and was approved: %v, %v", b.Status, changed, err)
		}
		if changed && (got.ID != b.ID || got.Status != approval.Approved) {
			t.Errorf("it is %+v, was %+v", got, b)
		}
	})
}
