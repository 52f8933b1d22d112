// Package digest names bytes by their SHA-256.
package digest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
)

// A Hash is the SHA-256 of some bytes, and names them. Its text is 64 lower-case hex digits.
type Hash [sha256.Size]byte

// TextLen is the length of the text of a Hash.
const TextLen = 2 * sha256.Size

// Sum returns the hash of b.
func Sum(b []byte) Hash { return sha256.Sum256(b) }

// Parse reads the text of a hash. Upper-case digits are refused: a name has one spelling.
func Parse(s string) (Hash, error) { return parse(s) }

func parse[T string | []byte](s T) (Hash, error) {
	var h Hash
	if len(s) != TextLen {
		return Hash{}, fmt.Errorf("hash %.80q has %d characters, want %d lower-case hex digits", s, len(s), TextLen)
	}
	for i := range h {
		hi, lo := nibble(s[2*i]), nibble(s[2*i+1])
		if hi|lo > 15 {
			return Hash{}, fmt.Errorf("hash %q has a character that is no lower-case hex digit", s)
		}
		h[i] = hi<<4 | lo
	}
	return h, nil
}

// nibble returns the value of a lower-case hex digit, or 0xff.
func nibble(c byte) byte { return nibbles[c] }

var nibbles = func() (t [256]byte) {
	for c := range t {
		t[c] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		t[c] = byte(i)
	}
	return t
}()

// String returns the 64 hex digits.
func (h Hash) String() string {
	var text [TextLen]byte
	hex.Encode(text[:], h[:])
	return string(text[:])
}

// Short is the beginning of the hash, by which people tell hashes apart.
func (h Hash) Short() string { return h.String()[:12] }

// IsZero reports whether h is the zero value, which stands for "no object".
func (h Hash) IsZero() bool { return h == Hash{} }

// Compare orders hashes as their texts are ordered.
func (h Hash) Compare(other Hash) int { return bytes.Compare(h[:], other[:]) }

// AppendText appends the 64 hex digits.
func (h Hash) AppendText(b []byte) ([]byte, error) { return hex.AppendEncode(b, h[:]), nil }

// MarshalText returns the 64 hex digits.
func (h Hash) MarshalText() ([]byte, error) { return h.AppendText(nil) }

// UnmarshalText is Parse for encoders.
func (h *Hash) UnmarshalText(text []byte) error {
	parsed, err := parse(text)
	if err != nil {
		return err
	}
	*h = parsed
	return nil
}

// A Hasher computes the hash of bytes that arrive in pieces.
type Hasher struct{ state hash.Hash }

// New returns a Hasher without bytes yet.
func New() *Hasher { return &Hasher{sha256.New()} }

// Write adds p. It never fails.
func (h *Hasher) Write(p []byte) (int, error) { return h.state.Write(p) }

// Hash returns the hash of the bytes written so far; more may follow.
func (h *Hasher) Hash() Hash {
	var sum Hash
	h.state.Sum(sum[:0])
	return sum
}

// Reset forgets the bytes written so far.
func (h *Hasher) Reset() { h.state.Reset() }
