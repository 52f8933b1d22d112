// Package signature signs exports with the ed25519 key of a user and checks such signatures.
//
// The signed message is a list of the entries of an export ([Manifest]) and the name of the key's owner. The signature
// is the last entry of the zip and not in the list. It shows which key signed the content. The importing repository
// decides whether it trusts that key ([e3/internal/settings]).
package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EntryName is the name of the entry of an export that holds its signature.
const EntryName = "signature.json"

// MaxSize is the greatest size of the entry in bytes.
const MaxSize = 4 << 10

// MaxName is the greatest length in bytes of the name of a key's owner.
const MaxName = 128

// ErrBadSignature reports a signature that is wrong or cannot be read.
var ErrBadSignature = errors.New("bad signature")

// version is the version of the entry's form and of the signed message.
const version = 1

// domain begins the signed message, so that a signature of an export is invalid for any other purpose.
const domain = "e3 export 1\n"

// PublicKey names a signer. It can be compared with ==.
type PublicKey [ed25519.PublicKeySize]byte

// publicPrefix begins the text of a public key.
const publicPrefix = "e3pub1"

// base64url writes each key in one way.
var base64url = base64.RawURLEncoding.Strict()

// String returns the key as people pass it on: one word that [ParsePublicKey] reads.
func (k PublicKey) String() string { return publicPrefix + base64url.EncodeToString(k[:]) }

// Fingerprint is a short digest of the key, for comparing keys by voice.
func (k PublicKey) Fingerprint() string {
	sum := sha256.Sum256(k[:])
	text := hex.EncodeToString(sum[:16])
	groups := make([]string, 0, 8)
	for ; text != ""; text = text[4:] {
		groups = append(groups, text[:4])
	}
	return strings.Join(groups, " ")
}

// ParsePublicKey reads the text of a public key.
func ParsePublicKey(text string) (PublicKey, error) {
	var k PublicKey
	coded, ok := strings.CutPrefix(text, publicPrefix)
	if !ok || len(coded) != base64url.EncodedLen(len(k)) {
		return PublicKey{}, fmt.Errorf("%.80q is not a public key: it begins with %s and has %d characters", text, publicPrefix, len(publicPrefix)+base64url.EncodedLen(len(k)))
	}
	raw, err := base64url.DecodeString(coded)
	if err != nil || len(raw) != len(k) { // base64 ignores line breaks
		return PublicKey{}, fmt.Errorf("%.80q is not a public key: it was mistyped or cut", text)
	}
	return PublicKey(raw), nil
}

// CheckName reports why a name is not allowed for the owner of a key. A valid name is one printable line.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > MaxName:
		return fmt.Errorf("the name %.40q… has %d bytes, at most %d are allowed", name, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name %q is not valid UTF-8", name)
	case strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0:
		return fmt.Errorf("the name %q has a character that cannot be shown", name)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("the name %q begins or ends with a space", name)
	}
	return nil
}

// Signature is the signature of a key's owner on a list of entries.
type Signature struct {
	Key      PublicKey
	Name     string   // the owner's name for the key; may be empty
	Manifest [32]byte // digest of the list, see [Manifest]
	Bytes    [ed25519.SignatureSize]byte
}

// message is the signed message. The parts before the name have fixed lengths, so that no two pairs of list and name
// have the same message.
func message(manifest [32]byte, name string) []byte {
	return append(append([]byte(domain), manifest[:]...), name...)
}

// Verify returns an [ErrBadSignature] if s.Key has not made s, or if s signs another list than manifest.
func (s *Signature) Verify(manifest [32]byte) error {
	if s.Manifest != manifest {
		return fmt.Errorf("%w: the content is not what was signed: it was changed, cut or added to afterwards", ErrBadSignature)
	}
	if !ed25519.Verify(s.Key[:], message(manifest, s.Name), s.Bytes[:]) {
		return fmt.Errorf("%w: it was not made with the key %s", ErrBadSignature, s.Key)
	}
	return nil
}

// wire is the JSON of the entry. Its fields have the order of the bytes.
type wire struct {
	E3        string `json:"e3"`
	Version   int    `json:"version"`
	Key       string `json:"key"`
	Name      string `json:"name"`
	Manifest  string `json:"manifest"`  // SHA-256, hex
	Signature string `json:"signature"` // base64
}

// kind distinguishes the entry from other JSON.
const kind = "signature"

// Encode returns the bytes of the entry.
func (s *Signature) Encode() []byte {
	return encode(wire{
		E3: kind, Version: version, Key: s.Key.String(), Name: s.Name,
		Manifest: hex.EncodeToString(s.Manifest[:]), Signature: base64.StdEncoding.EncodeToString(s.Bytes[:]),
	})
}

func encode(w wire) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(w); err != nil { // strings and a number always encode
		panic(err)
	}
	return b.Bytes()
}

// Decode reads the entry. Bytes that Encode would not have written are an [ErrBadSignature].
func Decode(data []byte) (*Signature, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("%w: it has %d bytes, at most %d are allowed", ErrBadSignature, len(data), MaxSize)
	}
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	switch {
	case w.E3 != kind:
		return nil, fmt.Errorf("%w: it does not say that it is a signature", ErrBadSignature)
	case w.Version > version:
		return nil, fmt.Errorf("%w: it has form %d, this e3 knows up to %d; use a newer e3", ErrBadSignature, w.Version, version)
	}
	s := &Signature{Name: w.Name}
	var err error
	if s.Key, err = ParsePublicKey(w.Key); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	if s.Name != "" {
		if err := CheckName(s.Name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadSignature, err)
		}
	}
	if !decodeInto(s.Manifest[:], w.Manifest, hex.DecodeString) || !decodeInto(s.Bytes[:], w.Signature, base64.StdEncoding.DecodeString) {
		return nil, fmt.Errorf("%w: the digest or the signature in it has another form", ErrBadSignature)
	}
	// Only one form is valid: not with unknown or repeated members, another case, order or spelling, or further bytes.
	if !bytes.Equal(s.Encode(), data) {
		return nil, fmt.Errorf("%w: it is not written as e3 writes it", ErrBadSignature)
	}
	return s, nil
}

// decodeInto fills dst exactly.
func decodeInto(dst []byte, text string, decode func(string) ([]byte, error)) bool {
	raw, err := decode(text)
	return err == nil && copy(dst, raw) == len(dst) && len(raw) == len(dst)
}

// Manifest digests the list of an export's content: a line for every entry but the signature, in the order of the zip
// ([AppendLine]). It takes constant memory. It is not safe for concurrent use.
type Manifest struct {
	hash hash.Hash
	line []byte
}

// NewManifest begins a list.
func NewManifest() *Manifest { return &Manifest{hash: sha256.New()} }

// Add enters an entry by its name and the SHA-256 of its content.
func (m *Manifest) Add(name string, content [32]byte) {
	m.line = AppendLine(m.line[:0], name, content)
	m.hash.Write(m.line) // never fails
}

// Sum returns the digest of the added entries.
func (m *Manifest) Sum() [32]byte { return [32]byte(m.hash.Sum(nil)) }

// AppendLine appends the line of an entry, in the form of sha256sum, so that other tools can make the list too. If a
// name has a line break or a backslash, it is escaped and its line is marked, as sha256sum does. So different lists
// have different lines.
func AppendLine(b []byte, name string, content [32]byte) []byte {
	if strings.ContainsAny(name, "\\\n\r") {
		b = append(b, '\\')
		name = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`).Replace(name)
	}
	b = hex.AppendEncode(b, content[:])
	return append(append(append(b, "  "...), name...), '\n')
}
