package objectstore

import "e3/internal/format/digest"

// A Hash names an object: the SHA-256 of its bytes. Its text is 64 lower-case hex digits.
type Hash = digest.Hash

// A Hasher computes the name of bytes that arrive in pieces.
type Hasher = digest.Hasher

// Sum returns the name of b.
func Sum(b []byte) Hash { return digest.Sum(b) }

// ParseHash reads the text of a hash. Upper-case digits are refused: a name has one spelling.
func ParseHash(s string) (Hash, error) { return digest.Parse(s) }

// NewHasher returns a Hasher that has no bytes yet.
func NewHasher() *Hasher { return digest.New() }
