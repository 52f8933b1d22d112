package settings_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"e3/internal/format/signature"
	"e3/internal/settings"
	"e3/refstore"
	"e3/refstore/mem"
)

var recordKey = refstore.Key{Partition: "SETTINGS", Sort: "repository"}

// public is a public key made of a letter; no signature is valid for it.
func public(letter string) signature.PublicKey {
	return signature.PublicKey([]byte(strings.Repeat(letter, 32)))
}

func trusted(name, letter string) settings.TrustedKey {
	return settings.TrustedKey{Name: name, Key: public(letter), AddedBy: "ann@here", AddedAt: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
}

var exported = cmpopts.IgnoreUnexported(settings.Settings{}, settings.TrustedKey{}, settings.Runs{})

func put(t *testing.T, store refstore.Store, text string) {
	t.Helper()
	if _, err := store.Put(t.Context(), refstore.Record{Key: recordKey, Value: []byte(text)}); err != nil {
		t.Fatal(err)
	}
}

func value(t *testing.T, store refstore.Store) string {
	t.Helper()
	rec, err := store.Get(t.Context(), recordKey)
	if err != nil {
		t.Fatal(err)
	}
	return string(rec.Value)
}

func TestDefaults(t *testing.T) {
	store := mem.New()
	got, err := settings.Get(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&settings.Settings{}, got, exported); diff != "" {
		t.Errorf("settings without a record differ (-want +got):\n%s", diff)
	}
	if _, err := settings.Update(t.Context(), store, func(*settings.Settings) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), recordKey); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("an update that changes nothing wrote a record: %v", err)
	}
}

func TestUpdate(t *testing.T) {
	store := mem.New()
	want := &settings.Settings{RequireSigned: true, TrustedKeys: []settings.TrustedKey{trusted("ann", "a"), trusted("Bob, CI", "b")}}
	got, err := settings.Update(t.Context(), store, func(s *settings.Settings) error {
		s.RequireSigned = true
		return errors.Join(s.Trust(want.TrustedKeys[0]), s.Trust(want.TrustedKeys[1]))
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, exported); diff != "" {
		t.Errorf("updated settings differ (-want +got):\n%s", diff)
	}
	if got, err = settings.Get(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, exported); diff != "" {
		t.Errorf("stored settings differ (-want +got):\n%s", diff)
	}
	const text = `{
  "requireSigned": true,
  "trustedKeys": [
    {"name": "ann", "key": "e3pub1YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE", "addedBy": "ann@here", "addedAt": "2026-11-20T12:00:00Z"},
`
	if got := value(t, store); !strings.HasPrefix(got, text) || !strings.HasSuffix(got, "\n  ]\n}\n") {
		t.Errorf("the record is\n%s\nwant it to begin with\n%s", got, text)
	}

	fault := errors.New("no")
	if _, err := settings.Update(t.Context(), store, func(s *settings.Settings) error { s.RequireSigned = false; return fault }); err != fault {
		t.Errorf("Update gives %v, want the error of change as it is", err)
	}
	if got, err := settings.Get(t.Context(), store); err != nil || !got.RequireSigned {
		t.Errorf("a change that failed was written: %+v, %v", got, err)
	}
}

// Members that a newer e3 has written to the record are kept.
func TestUpdateKeepsWhatIsUnknown(t *testing.T) {
	store := mem.New()
	put(t, store, `{"retention":{"days":30,"html":"<&>"},"trustedKeys":[{"key":"`+public("a").String()+`","name":"ann","scope":["x",1.50]}],"RequireSigned":7,"zeta":null}`)
	s, err := settings.Update(t.Context(), store, func(s *settings.Settings) error {
		s.RequireSigned = true
		return s.Trust(trusted("bob", "b"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.TrustedKeys) != 2 || !s.RequireSigned {
		t.Errorf("settings are %+v", s)
	}
	got := value(t, store)
	compact := strings.Join(strings.Fields(got), "")
	for _, want := range []string{`"retention":{"days":30,"html":"<&>"}`, `"scope":["x",1.50]`, `"RequireSigned":7`, `"zeta":null`, `"requireSigned":true`} {
		if !strings.Contains(compact, want) {
			t.Errorf("%s is gone from\n%s", want, got)
		}
	}
}

// No concurrent change of the settings is lost.
func TestUpdateConcurrently(t *testing.T) {
	store := mem.New()
	const writers = 16
	var wait sync.WaitGroup
	for i := range writers {
		wait.Go(func() {
			letter := string(rune('a' + i))
			if _, err := settings.Update(t.Context(), store, func(s *settings.Settings) error { return s.Trust(trusted(letter, letter)) }); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	s, err := settings.Get(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.TrustedKeys) != writers {
		t.Errorf("%d keys are trusted, want %d", len(s.TrustedKeys), writers)
	}
}

func TestUpdateEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := settings.Update(ctx, mem.New(), func(*settings.Settings) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
}

func TestTrust(t *testing.T) {
	s := &settings.Settings{}
	if err := s.Trust(trusted("ann", "a")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		key  settings.TrustedKey
		want error
	}{
		{"same key", trusted("other", "a"), settings.ErrTrusted},
		{"same key and name", trusted("ann", "a"), settings.ErrTrusted},
		{"same name", trusted("ann", "b"), settings.ErrNameTaken},
		{"no name", trusted("", "b"), nil},
		{"name of two lines", trusted("a\nb", "b"), nil},
		{"name that is a key", trusted(public("c").String(), "b"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := s.Trust(tt.key); err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v, want an error, %v", err, tt.want)
			}
		})
	}
	if err := s.Trust(trusted("bob", "b")); err != nil {
		t.Fatal(err)
	}
	if k, ok := s.Trusted(public("b")); !ok || k.Name != "bob" {
		t.Errorf("Trusted gives %v, %v", k, ok)
	}
	if k, ok := s.Trusted(public("c")); ok {
		t.Errorf("a key without a name is trusted as %v", k)
	}
	if k, ok := s.Distrust("ann"); !ok || k.Key != public("a") {
		t.Errorf("Distrust by name gives %v, %v", k, ok)
	}
	if k, ok := s.Distrust(public("b").String()); !ok || k.Name != "bob" {
		t.Errorf("Distrust by key gives %v, %v", k, ok)
	}
	if _, ok := s.Distrust("ann"); ok || len(s.TrustedKeys) != 0 {
		t.Errorf("a key was taken out twice, %d are left", len(s.TrustedKeys))
	}
}

func TestDecodeRefuses(t *testing.T) {
	key := `"key":"` + public("a").String() + `"`
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", ``, "unexpected end"},
		{"array", `[]`, "not a JSON object"},
		{"null", `null`, "not a JSON object"},
		{"cut", `{"requireSigned":true`, "unexpected end"},
		{"something behind", `{}{}`, "after top-level value"},
		{"setting twice", `{"requireSigned":false,"requireSigned":true}`, `"requireSigned" is there twice`},
		{"setting of another type", `{"requireSigned":"yes"}`, "requireSigned: "},
		{"null for a setting", `{"requireSigned":null}`, "null says nothing"},
		{"keys are no list", `{"trustedKeys":{}}`, "trustedKeys: "},
		{"null for a key", `{"trustedKeys":[null]}`, "trustedKeys[0]: not a JSON object"},
		{"no key", `{"trustedKeys":[{"name":"a"}]}`, `trustedKeys[0]: there is no "key"`},
		{"no name", `{"trustedKeys":[{` + key + `}]}`, "the name is empty"},
		{"bad key", `{"trustedKeys":[{"name":"a","key":"e3pub1"}]}`, "is not a public key"},
		{"name that cannot be shown", `{"trustedKeys":[{"name":"a\u001b",` + key + `}]}`, "cannot be shown"},
		{"key twice", `{"trustedKeys":[{"name":"a",` + key + `},{"name":"b",` + key + `}]}`, "trustedKeys[1]: the key is trusted already"},
		{"bad time", `{"trustedKeys":[{"name":"a",` + key + `,"addedAt":"yesterday"}]}`, "addedAt: "},
		{"time before the years", `{"trustedKeys":[{"name":"a",` + key + `,"addedAt":"0000-01-01T00:00:00+01:00"}]}`, "addedAt: the year"},
		{"deep", `{"x":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, "max depth"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if s, err := settings.Decode([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %+v, error %v; want an error that says %q", s, err, tt.want)
			}
			store := mem.New()
			put(t, store, tt.text)
			_, err := settings.Update(t.Context(), store, func(*settings.Settings) error { return nil })
			if err == nil || value(t, store) != tt.text {
				t.Errorf("an update gives %v and leaves %s", err, value(t, store))
			}
		})
	}
}

// The deepest JSON that decodes is encoded unchanged, without growth by indentation.
func TestDeepUnknownMember(t *testing.T) {
	text := `{"x":` + strings.Repeat("[", 9999) + strings.Repeat("]", 9999) + `}`
	s, err := settings.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	again := s.Encode()
	if len(again) > len(text)+100 {
		t.Errorf("%d bytes came back as %d", len(text), len(again))
	}
	if _, err := settings.Decode(again); err != nil {
		t.Error(err)
	}
}

func TestDecide(t *testing.T) {
	list := sha256.Sum256([]byte("list"))
	k, err := signature.Generate("Ann, CI")
	if err != nil {
		t.Fatal(err)
	}
	good := k.Sign(list)
	bad := *good
	bad.Bytes[0] ^= 1
	open := &settings.Settings{}
	knows := &settings.Settings{TrustedKeys: []settings.TrustedKey{{Name: "ann", Key: k.Public()}}}
	closed := &settings.Settings{RequireSigned: true}
	both := &settings.Settings{RequireSigned: true, TrustedKeys: knows.TrustedKeys}
	unknown := settings.Verdict{Trust: settings.Unknown, Key: k.Public(), Name: "Ann, CI"}
	known := settings.Verdict{Trust: settings.Trusted, Key: k.Public(), Name: "Ann, CI", TrustedAs: "ann"}
	for _, tt := range []struct {
		name     string
		settings *settings.Settings
		sig      *signature.Signature
		require  bool
		want     settings.Verdict
		err      error
	}{
		{"unsigned", open, nil, false, settings.Verdict{}, nil},
		{"unsigned, asked for", knows, nil, true, settings.Verdict{}, settings.ErrUnsigned},
		{"unsigned, required", both, nil, false, settings.Verdict{}, settings.ErrUnsigned},
		{"unknown", open, good, false, unknown, nil},
		{"unknown, asked for", open, good, true, unknown, settings.ErrUntrusted},
		{"unknown, required", closed, good, false, unknown, settings.ErrUntrusted},
		{"trusted", knows, good, false, known, nil},
		{"trusted, asked for", knows, good, true, known, nil},
		{"trusted, required", both, good, false, known, nil},
		{"bad", open, &bad, false, settings.Verdict{}, signature.ErrBadSignature},
		{"bad, key trusted", both, &bad, true, settings.Verdict{}, signature.ErrBadSignature},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.settings.Decide(tt.sig, list, tt.require)
			if !errors.Is(err, tt.err) {
				t.Errorf("error is %v, want %v", err, tt.err)
			}
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	if _, err := both.Decide(good, sha256.Sum256(nil), false); !errors.Is(err, signature.ErrBadSignature) {
		t.Errorf("a signature of another list gives %v, want ErrBadSignature", err)
	}
}

func TestVerdictIsSaid(t *testing.T) {
	key := public("a")
	for _, tt := range []struct {
		verdict settings.Verdict
		want    string
	}{
		{settings.Verdict{}, "not signed"},
		{settings.Verdict{Trust: settings.Unknown, Key: key}, "signed with a key that is not trusted here: " + key.String()},
		{settings.Verdict{Trust: settings.Unknown, Key: key, Name: "Ann"}, `signed under the name "Ann", with a key that is not trusted here: ` + key.String()},
		{settings.Verdict{Trust: settings.Trusted, Key: key, Name: "ann", TrustedAs: "ann"}, `signed with the key that is trusted here as "ann"`},
		{settings.Verdict{Trust: settings.Trusted, Key: key, Name: "Ann", TrustedAs: "ann"}, `signed with the key that is trusted here as "ann", under the name "Ann"`},
	} {
		if got := fmt.Sprint(tt.verdict); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

// A name that is made for a key has the beginning of its fingerprint, and is free.
func TestNameFor(t *testing.T) {
	s := &settings.Settings{}
	k := public("a")
	digits := strings.ReplaceAll(k.Fingerprint(), " ", "")
	for _, want := range []string{"key-" + digits[:8], "key-" + digits[:12], "key-" + digits[:16]} {
		got := s.NameFor(k)
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := settings.CheckKeyName(got); err != nil {
			t.Error(err)
		}
		if err := s.Trust(settings.TrustedKey{Name: got, Key: public(want), AddedBy: "ann@here"}); err != nil {
			t.Fatal(err)
		}
	}
	one := &settings.Settings{TrustedKeys: []settings.TrustedKey{{Name: "key-" + digits[:8], Key: k}}}
	if got := one.NameFor(k); got != "key-"+digits[:8] {
		t.Errorf("its own name is taken: %q", got)
	}
}

func TestRetention(t *testing.T) {
	day := 24 * time.Hour
	for _, test := range []struct {
		name, record string
		want         time.Duration
	}{
		{"of old records", `{"requireSigned": false, "trustedKeys": []}`, 90 * day},
		{"days", `{"eventsRetention": "30d"}`, 30 * day},
		{"weeks and hours", `{"eventsRetention": "1w12h"}`, 7*day + 12*time.Hour},
		{"never", `{"eventsRetention": "never"}`, 0},
	} {
		s, err := settings.Decode([]byte(test.record))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := s.KeepEvents(); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		again, err := settings.Decode(s.Encode())
		if err != nil || again.EventsRetention != s.EventsRetention {
			t.Errorf("%s: %q came back as %q, %v", test.name, s.EventsRetention, again.EventsRetention, err)
		}
	}
	for _, record := range []string{`{"eventsRetention": "soon"}`, `{"eventsRetention": ""}`, `{"eventsRetention": "0d"}`, `{"eventsRetention": 90}`, `{"eventsRetention": null}`, `{"eventsRetention": "-1d"}`} {
		if s, err := settings.Decode([]byte(record)); err == nil || !strings.Contains(err.Error(), "eventsRetention: ") {
			t.Errorf("%s is taken: %+v, %v", record, s, err)
		}
	}
	if got := (&settings.Settings{}).KeepEvents(); got != 90*day {
		t.Errorf("where nothing was said: %v", got)
	}
}

func TestRunsOf(t *testing.T) {
	store := mem.New()
	put(t, store, `{"executor":"workers","queue":"all","workspaces":{"prod":{"executor":"slurm","since":[1]},"dev":{"queue":"small"}}}`)
	s, err := settings.Get(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	for ws, want := range map[string]settings.Runs{
		"prod":  {Executor: "slurm", Queue: "all"},
		"dev":   {Executor: settings.Workers, Queue: "small"},
		"other": {Executor: settings.Workers, Queue: "all"},
	} {
		if diff := cmp.Diff(want, s.RunsOf(ws), exported); diff != "" {
			t.Errorf("of workspace %s (-want +got):\n%s", ws, diff)
		}
	}
	if got := (&settings.Settings{}).RunsOf("prod").Executor; got != settings.Local {
		t.Errorf("where nothing is said: got %q, want local", got)
	}

	_, err = settings.Update(t.Context(), store, func(s *settings.Settings) error {
		none := func(r *settings.Runs) { r.Executor, r.Queue = "", "" }
		return errors.Join(s.SetRuns("", func(r *settings.Runs) { r.Executor = "" }), s.SetRuns("dev", none), s.SetRuns("prod", none))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := value(t, store); !strings.Contains(got, `"workspaces": {
    "prod": {"since": [1]}
  }`) || !strings.Contains(got, `"queue": "all"`) || strings.Contains(got, "executor") || strings.Contains(got, "dev") {
		t.Errorf("the record is\n%s", got)
	}
}

func TestSetRunsRefuses(t *testing.T) {
	s := &settings.Settings{}
	for name, err := range map[string]error{
		"executor":  s.SetRuns("", func(r *settings.Runs) { r.Executor = "cloud" }),
		"queue":     s.SetRuns("prod", func(r *settings.Runs) { r.Queue = "a b" }),
		"workspace": s.SetRuns("a/b", func(r *settings.Runs) { r.Queue = "a" }),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if diff := cmp.Diff(&settings.Settings{}, s, exported); diff != "" {
		t.Errorf("what was refused has changed the settings:\n%s", diff)
	}
}

// The choice of a start wins over the settings, part by part; damaged settings are ignored.
func TestRoomSetting(t *testing.T) {
	s, err := settings.Decode([]byte(`{"room":"closed","later":1}`))
	if err != nil || s.Room != "closed" || !strings.Contains(string(s.Encode()), `"room": "closed"`) {
		t.Errorf("got %+v, %v", s, err)
	}
	if _, err := settings.Decode([]byte(`{"room":"half"}`)); err == nil || !strings.Contains(err.Error(), `"half" is neither open nor closed`) {
		t.Errorf("an unknown room: %v", err)
	}
}

func TestChoose(t *testing.T) {
	get := func(store refstore.Store) func(context.Context) (*settings.Settings, error) {
		return func(ctx context.Context) (*settings.Settings, error) { return settings.Get(ctx, store) }
	}
	store := mem.New()
	put(t, store, `{"executor":"workers","queue":"all","workspaces":{"prod":{"executor":"slurm"}}}`)
	type runs = settings.Runs
	for name, test := range map[string]struct {
		ws         string
		said, want runs
	}{
		"nothing":         {"dev", runs{}, runs{Executor: settings.Workers, Queue: "all"}},
		"of a workspace":  {"prod", runs{}, runs{Executor: "slurm", Queue: "all"}},
		"local":           {"dev", runs{Executor: settings.Local}, runs{Executor: settings.Local}},
		"a queue":         {"dev", runs{Queue: "gpu"}, runs{Executor: settings.Workers, Queue: "gpu"}},
		"workers":         {"prod", runs{Executor: settings.Workers}, runs{Executor: settings.Workers, Queue: "all"}},
		"workers, queue":  {"dev", runs{Executor: settings.Workers, Queue: "gpu"}, runs{Executor: settings.Workers, Queue: "gpu"}},
		"a queue of none": {"prod", runs{Queue: "gpu"}, runs{Executor: "slurm", Queue: "gpu"}},
	} {
		got, err := settings.Choose(t.Context(), get(store), test.ws, test.said)
		if diff := cmp.Diff(test.want, got, exported); err != nil || diff != "" {
			t.Errorf("said %s: %v (-want +got):\n%s", name, err, diff)
		}
	}

	broken := mem.New()
	put(t, broken, `{"executor":`)
	got, err := settings.Choose(t.Context(), get(broken), "prod", runs{})
	var damaged *settings.DamagedError
	if !errors.As(err, &damaged) || got.Executor != settings.Local {
		t.Errorf("damaged settings: got %+v, %v, want local and a DamagedError", got, err)
	}
}
