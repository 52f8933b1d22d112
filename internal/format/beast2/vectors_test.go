package beast2_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"e3/internal/format/beast2"

	"github.com/google/go-cmp/cmp"
)

type vector struct {
	Name         string          `json:"name"`
	Type         json.RawMessage `json:"type"`
	Value        json.RawMessage `json:"value"`
	DecodedValue json.RawMessage `json:"decoded_value"`
	Hex          string          `json:"hex"`
	SHA256       string          `json:"sha256"`
}

func (v vector) bytes(t testing.TB) []byte { return unhex(t, v.Hex) }

// doc returns the JSON notation of the file.
func (v vector) doc() []byte { return document(v.Type, v.Value) }

func document(typ, value json.RawMessage) []byte {
	return []byte(`{"type":` + string(typ) + `,"value":` + string(value) + `}`)
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// load reads a file of testdata and insists that it has entries.
func load[T any](t testing.TB, name string) T {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func vectors(t testing.TB) []vector {
	t.Helper()
	vs := load[[]vector](t, "vectors.json")
	if len(vs) < 100 {
		t.Fatalf("%d vectors, want more than 100", len(vs))
	}
	return vs
}

// keptByUs are the vectors of which the reference's decoder loses data.
var keptByUs = map[string]string{
	"set/floats": "the reference makes -0 and 0 one key, though its order tells them apart",
}

func TestVectors(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			want := v.bytes(t)
			got, err := beast2.FromJSON(v.doc())
			if err != nil {
				t.Fatalf("FromJSON: %v", err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("FromJSON:\ngot  %x\nwant %x", got, want)
			}
			if sum := sha256.Sum256(got); hex.EncodeToString(sum[:]) != v.SHA256 {
				t.Errorf("sha256 is %x, want %s", sum, v.SHA256)
			}
			roundTrip(t, want)
			doc, err := beast2.ToJSON(want)
			if err != nil {
				t.Fatalf("ToJSON: %v", err)
			}
			value := v.Value
			if v.DecodedValue != nil && keptByUs[v.Name] == "" {
				value = v.DecodedValue
			}
			if diff := cmp.Diff(parse(t, document(v.Type, value)), parse(t, doc)); diff != "" {
				t.Errorf("ToJSON (-want +got):\n%s", diff)
			}
		})
	}
}

func parse(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// roundTrip checks a valid file with Encode, JSON and the header.
func roundTrip(t testing.TB, data []byte) {
	t.Helper()
	typ, value, err := beast2.Decode(data)
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	again, err := beast2.Encode(typ, value)
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	if !bytes.Equal(again, data) {
		t.Fatalf("decode, encode:\ngot  %x\nwant %x", again, data)
	}
	if head := beast2.Header(typ); !bytes.HasPrefix(data, head) {
		t.Fatalf("Header:\ngot  %x\nwant a start of %x", head, data)
	}
	if _, err := beast2.DecodeAs(data, typ); err != nil {
		t.Fatalf("DecodeAs its own type: %v", err)
	}
	doc, err := beast2.ToJSON(data)
	if err != nil {
		t.Fatalf("ToJSON: %v", err)
	}
	again, err = beast2.FromJSON(doc)
	if err != nil {
		t.Fatalf("FromJSON of ToJSON: %v\n%s", err, doc)
	}
	if !bytes.Equal(again, data) {
		t.Fatalf("to JSON and back:\ngot  %x\nwant %x\n%s", again, data, doc)
	}
}

// stricter are the files that the reference accepts and this package refuses.
var stricter = map[string]string{
	"header/type-tag-nonminimal(accepted)":                             "padded varint: would encode to other bytes",
	"header/variant-cases-unsorted(accepted by decodeBeast2)":          "writers sort cases, and key order relies on it",
	"header/duplicate-struct-field(accepted)":                          "the first field's value would be lost",
	"boolean/2(accepted as true)":                                      "would encode to other bytes",
	"boolean/ff(accepted as true)":                                     "would encode to other bytes",
	"varint/nonminimal-int-10-bytes(accepted)":                         "padded varint: would encode to other bytes",
	"varint/int-10th-byte-7f(accepted, out of range)":                  "not an int64",
	"varint/length-nonminimal(accepted)":                               "padded varint: would encode to other bytes",
	"variant/tag-nonminimal(accepted)":                                 "padded varint: would encode to other bytes",
	"backref/type-confusion-set-as-array(accepted)":                    "one object cannot be of two types",
	"backref/type-confusion-array-of-string-as-array-of-int(accepted)": "one object cannot be of two types",
	"backref/inline-marker-nonminimal(accepted)":                       "padded varint: would encode to other bytes",
	"dict/duplicate-key(accepted, last wins)":                          "which value counts is unclear",
	"set/duplicates(accepted, collapsed)":                              "would encode to other bytes",
	"dict/duplicate-struct-keys(accepted, kept)":                       "which value counts is unclear",
	"string/invalid-utf8-byte-ff(accepted)":                            "no writer emits it",
	"string/lone-continuation-80(accepted)":                            "no writer emits it",
	"string/surrogate-ed-a0-80(accepted)":                              "writers drop unpaired high surrogates",
	"string/truncated-sequence-reads-past-end(accepted)":               "no writer emits it",
}

// accepted are the files of invalid.json that Decode and the reference accept.
var accepted = map[string]string{
	"header/type-mismatch":             "valid by itself; DecodeAs refuses it",
	"header/type-mismatch-field-order": "valid by itself; DecodeAs refuses it",
	"dict/unsorted-keys(accepted)":     "the reference writes unsorted dicts",
	"set/unsorted(accepted)":           "as for dicts",
}

func TestInvalid(t *testing.T) {
	type verdict struct {
		OK bool `json:"ok"`
	}
	entries := load[[]struct {
		Name            string          `json:"name"`
		Hex             string          `json:"hex"`
		ExpectedType    json.RawMessage `json:"expected_type"`
		DecodeBeast2    verdict         `json:"decodeBeast2"`
		DecodeBeast2For verdict         `json:"decodeBeast2For"`
	}](t, "invalid.json")
	seen := map[string]bool{}
	for _, e := range entries {
		seen[e.Name] = true
		t.Run(e.Name, func(t *testing.T) {
			data := unhex(t, e.Hex)
			_, _, err := beast2.Decode(data)
			_, ours := accepted[e.Name]
			_, strict := stricter[e.Name]
			if e.DecodeBeast2.OK != (ours || strict) {
				t.Errorf("the reference's verdict is %t; the tables of this test say accepted %t, stricter %t",
					e.DecodeBeast2.OK, ours, strict)
			}
			if ours {
				if err != nil {
					t.Fatalf("Decode: %v, want a value", err)
				}
				roundTrip(t, data)
			} else {
				wantSyntaxError(t, data, err)
			}
			if _, err := beast2.ToJSON(data); (err == nil) != ours {
				t.Errorf("ToJSON: %v, but Decode accepts: %t", err, ours)
			}
			if e.ExpectedType == nil {
				return
			}
			typ, err := beast2.TypeFromJSON(e.ExpectedType)
			if err != nil {
				t.Fatal(err)
			}
			_, err = beast2.DecodeAs(data, typ)
			if want := e.DecodeBeast2For.OK && !strict; (err == nil) != want {
				t.Errorf("DecodeAs: %v, want accepted %t", err, want)
			}
			if mismatch := new(beast2.MismatchError); strings.HasPrefix(e.Name, "header/type-mismatch") &&
				(!errors.As(err, &mismatch) || !strings.Contains(err.Error(), typ.String())) {
				t.Errorf("DecodeAs: %v, want a MismatchError that names %v", err, typ)
			}
		})
	}
	for _, table := range []map[string]string{stricter, accepted} {
		for name := range table {
			if !seen[name] {
				t.Errorf("%s is not in invalid.json", name)
			}
		}
	}
}

func wantSyntaxError(t *testing.T, data []byte, err error) {
	t.Helper()
	var syntax *beast2.SyntaxError
	if !errors.As(err, &syntax) {
		t.Fatalf("Decode: %v, want a SyntaxError", err)
	}
	if syntax.Offset < 0 || syntax.Offset > len(data) {
		t.Errorf("%v: the input has %d bytes", err, len(data))
	}
}

func TestRecordTypes(t *testing.T) {
	types := load[map[string]struct {
		Type      json.RawMessage `json:"type"`
		HeaderHex string          `json:"header_hex"`
	}](t, "record-types.json")
	if len(types) < 10 {
		t.Fatalf("%d types, want 10 and more", len(types))
	}
	for name, e := range types {
		t.Run(name, func(t *testing.T) {
			typ, err := beast2.TypeFromJSON(e.Type)
			if err != nil {
				t.Fatal(err)
			}
			if got := hex.EncodeToString(beast2.Header(typ)); got != e.HeaderHex {
				t.Errorf("Header:\ngot  %s\nwant %s", got, e.HeaderHex)
			}
			if diff := cmp.Diff(parse(t, e.Type), parse(t, []byte(beast2.TypeToJSON(typ)))); diff != "" {
				t.Errorf("notation (-want +got):\n%s", diff)
			}
			if built, ok := recordTypes[name]; ok {
				if !built.Equal(typ) || !typ.Equal(built) {
					t.Errorf("constructors:\ngot  %v\nwant %v", built, typ)
				}
				if got := hex.EncodeToString(beast2.Header(built)); got != e.HeaderHex {
					t.Errorf("Header of constructors:\ngot  %s\nwant %s", got, e.HeaderHex)
				}
			}
		})
	}
	for name := range recordTypes {
		if _, ok := types[name]; !ok {
			t.Errorf("%s is not in record-types.json", name)
		}
	}
}

// goldenObjects returns the objects and records of an export that the reference made.
func goldenObjects(t testing.TB) map[string][]byte {
	t.Helper()
	z, err := zip.OpenReader("testdata/golden.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	files := map[string][]byte{}
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, ".beast2") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = data
	}
	if len(files) < 10 {
		t.Fatalf("%d files in golden.zip, want 10 and more", len(files))
	}
	return files
}

func TestGoldenObjects(t *testing.T) {
	for name, data := range goldenObjects(t) {
		t.Run(name, func(t *testing.T) { roundTrip(t, data) })
	}
}
