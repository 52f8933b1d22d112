package signature_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"e3/internal/format/signature"
)

// testKey is a key with a known seed; the words are those of the key file.
func testKey(t *testing.T, name string) *signature.Key {
	t.Helper()
	text := "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----\n"
	if name != "" {
		text = "Name: " + name + "\n" + text
	}
	k, err := signature.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func digest(text string) [32]byte { return sha256.Sum256([]byte(text)) }

func TestSignAndVerify(t *testing.T) {
	k := testKey(t, "Ann, CI")
	s := k.Sign(digest("list"))
	if err := s.Verify(digest("list")); err != nil {
		t.Fatalf("a signature does not hold: %v", err)
	}
	other, err := signature.Generate("Ann, CI")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*signature.Signature)
		of     string
	}{
		{"another list", func(*signature.Signature) {}, "other"},
		{"another list in the signature as well", func(s *signature.Signature) { s.Manifest = digest("other") }, "other"},
		{"another name", func(s *signature.Signature) { s.Name = "Bob" }, "list"},
		{"no name", func(s *signature.Signature) { s.Name = "" }, "list"},
		{"another key", func(s *signature.Signature) { s.Key = other.Public() }, "list"},
		{"zero key", func(s *signature.Signature) { s.Key = signature.PublicKey{} }, "list"},
		{"a bit of the signature", func(s *signature.Signature) { s.Bytes[7] ^= 1 }, "list"},
		{"no signature", func(s *signature.Signature) { s.Bytes = [64]byte{} }, "list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changed := *s
			tt.change(&changed)
			if err := changed.Verify(digest(tt.of)); !errors.Is(err, signature.ErrBadSignature) {
				t.Errorf("got %v, want ErrBadSignature", err)
			}
		})
	}
}

// The signed message never changes: signatures of today must stay valid.
func TestSignedMessage(t *testing.T) {
	seed := make([]byte, ed25519.SeedSize)
	for i := range seed {
		seed[i] = byte(i)
	}
	list := digest("list")
	want := ed25519.Sign(ed25519.NewKeyFromSeed(seed), []byte("e3 export 1\n"+string(list[:])+"Ann, CI"))
	if got := testKey(t, "Ann, CI").Sign(list).Bytes; !bytes.Equal(got[:], want) {
		t.Errorf("signed\ngot  %x\nwant %x", got, want)
	}
}

func TestEncode(t *testing.T) {
	k := testKey(t, `Ann "<&>" Ω`)
	s := k.Sign(digest("list"))
	list := digest("list")
	want := `{"e3":"signature","version":1,"key":"e3pub1A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg","name":"Ann \"<&>\" Ω",` +
		`"manifest":"` + hex.EncodeToString(list[:]) + `","signature":"` + base64.StdEncoding.EncodeToString(s.Bytes[:]) + "\"}\n"
	if got := string(s.Encode()); got != want {
		t.Errorf("encoded\ngot  %s\nwant %s", got, want)
	}
	back, err := signature.Decode(s.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if *back != *s {
		t.Errorf("decoded %+v, want %+v", back, s)
	}
	if err := back.Verify(list); err != nil {
		t.Error(err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := string(testKey(t, "Ann").Sign(digest("list")).Encode())
	replace := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("%q is not in %s", from, good)
		}
		return strings.Replace(good, from, to, 1)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "unexpected end"},
		{"no JSON", "e3", "invalid character"},
		{"array", "[]", "cannot unmarshal"},
		{"null", "null", "does not say that it is a signature"},
		{"empty object", "{}", "does not say that it is a signature"},
		{"something else", replace(`"signature"`, `"repository"`), "does not say that it is a signature"},
		{"newer", replace(`"version":1`, `"version":2`), "use a newer e3"},
		{"version zero", replace(`"version":1`, `"version":0`), "not written as e3 writes it"},
		{"key cut", replace("e3pub1A6", "e3pub1A"), "is not a public key"},
		{"key with a line break", replace("e3pub1A6EHv", `e3pub1A6EH\n`), "mistyped"},
		{"key of another form", replace("VMbg", "VMbh"), "mistyped"},
		{"name with a line break", replace("Ann", `A\nn`), "cannot be shown"},
		{"name with an escape", replace("Ann", `\u001b[2J`), "cannot be shown"},
		{"name that turns text around", replace("Ann", `A\u202en`), "cannot be shown"},
		{"name in spaces", replace("Ann", ` Ann`), "begins or ends with a space"},
		{"long name", replace("Ann", strings.Repeat("n", 129)), "129 bytes"},
		{"name spelt otherwise", replace("Ann", `\u0041nn`), "not written as e3 writes it"},
		{"name that is no UTF-8", replace("Ann", "A\xff"), "not written as e3 writes it"},
		{"digest cut", replace(`"manifest":"a3`, `"manifest":"`), "another form"},
		{"digest in upper case", replace(`"manifest":"a3`, `"manifest":"A3`), "not written as e3 writes it"},
		{"unknown member", replace(`,"name"`, `,"x":1,"name"`), "not written as e3 writes it"},
		{"member twice", replace(`,"name"`, `,"name":"Bob","name"`), "not written as e3 writes it"},
		{"member in upper case", replace(`"name"`, `"NAME"`), "not written as e3 writes it"},
		{"space", replace(`,"name"`, `, "name"`), "not written as e3 writes it"},
		{"something behind", good + "\n", "not written as e3 writes it"},
		{"no line end", strings.TrimSuffix(good, "\n"), "not written as e3 writes it"},
		{"large", good + strings.Repeat(" ", signature.MaxSize), "at most 4096 are allowed"},
		{"deep", strings.Repeat("[", 4000), "bad signature"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := signature.Decode([]byte(tt.text))
			if !errors.Is(err, signature.ErrBadSignature) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, error %v; want ErrBadSignature that says %q", s, err, tt.want)
			}
		})
	}
}

func TestLongestEntryFits(t *testing.T) {
	name := strings.Repeat(`"`, signature.MaxName) // each takes two bytes
	k, err := signature.Generate(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signature.Decode(k.Sign(digest("list")).Encode()); err != nil {
		t.Error(err)
	}
}

func TestPublicKeyText(t *testing.T) {
	k := testKey(t, "").Public()
	const text = "e3pub1A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg"
	if k.String() != text {
		t.Errorf("the key is %s, want %s", k, text)
	}
	back, err := signature.ParsePublicKey(text)
	if err != nil || back != k {
		t.Errorf("parsed %v, %v", back, err)
	}
	if got, want := k.Fingerprint(), "5647 5aa7 5463 474c 0285 df5d bf2b cab7"; got != want {
		t.Errorf("the fingerprint is %q, want %q", got, want)
	}
	for _, bad := range []string{"", "e3pub1", text[:len(text)-1], text + "A", "E3PUB1" + text[6:], " " + text, text + "\n",
		"e3pub1" + strings.Repeat("\n", 43), "e3pub1" + strings.Repeat("+", 43), strings.Repeat("x", 1000)} {
		if k, err := signature.ParsePublicKey(bad); err == nil {
			t.Errorf("%q is taken for the key %s", bad, k)
		} else if len(err.Error()) > 500 {
			t.Errorf("the error for %.20q has %d bytes", bad, len(err.Error()))
		}
	}
}

type entry struct{ name, content string }

func list(entries ...entry) [32]byte {
	m := signature.NewManifest()
	for _, e := range entries {
		m.Add(e.name, digest(e.content))
	}
	return m.Sum()
}

func TestManifestIsThatOfSha256sum(t *testing.T) {
	hexOf := func(text string) string { d := digest(text); return hex.EncodeToString(d[:]) }
	text := hexOf("1") + "  a/b\n" + `\` + hexOf("2") + `  c\\d\ne\r` + "\n"
	if got, want := list(entry{"a/b", "1"}, entry{"c\\d\ne\r", "2"}), digest(text); got != want {
		t.Errorf("the digest is %x, want that of\n%s", got, text)
	}
	if got := list(); got != digest("") {
		t.Errorf("the digest of no entries is %x", got)
	}
}

// Different lists have different digests, whatever the names contain.
func TestManifestTellsListsApart(t *testing.T) {
	one := digest("1")
	forged := "a\n" + hex.EncodeToString(one[:]) + "  b"
	lists := map[string][32]byte{
		"two entries":         list(entry{"a", "1"}, entry{"b", "1"}),
		"in another order":    list(entry{"b", "1"}, entry{"a", "1"}),
		"a name of two lines": list(entry{forged, "1"}),
		"escaped by hand":     list(entry{strings.ReplaceAll(forged, "\n", `\n`), "1"}),
		"twice":               list(entry{"a", "1"}, entry{"b", "1"}, entry{"b", "1"}),
		"other content":       list(entry{"a", "1"}, entry{"b", "2"}),
		"other name":          list(entry{"a", "1"}, entry{"b ", "1"}),
		"backslash":           list(entry{`a\n`, "1"}),
		"line break":          list(entry{"a\n", "1"}),
		"carriage return":     list(entry{"a\r", "1"}),
		"nothing":             list(),
		"empty name":          list(entry{"", "1"}),
	}
	seen := map[[32]byte]string{}
	for name, sum := range lists {
		if twin, ok := seen[sum]; ok {
			t.Errorf("%q and %q have the same digest", name, twin)
		}
		seen[sum] = name
	}
}

func BenchmarkManifestAdd(b *testing.B) {
	m := signature.NewManifest()
	sum := digest("content")
	name := "objects/ab/" + strings.Repeat("c", 62)
	b.ReportAllocs()
	for b.Loop() {
		m.Add(name, sum)
	}
}
