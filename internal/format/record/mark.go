package record

import "e3/internal/format/beast2"

// Sizes of the parts of a Signature, in bytes.
const (
	signatureKey   = 32
	signatureBytes = 64
)

// Signature is signature.beast2 beside an execution: the key that has signed it, and its signature. Package
// internal/format/signature defines the signed bytes and verifies signatures.
type Signature struct {
	Key   [signatureKey]byte
	Bytes [signatureBytes]byte
}

func signatureType() beast2.Type {
	return beast2.Struct(beast2.F("key", beast2.Blob), beast2.F("signature", beast2.Blob))
}

var signatureSchema = newSchema("signature", signatureType)

// Encode returns the bytes of signature.beast2.
func (s *Signature) Encode() []byte {
	return s.append(signatureSchema.begin(signatureKey + signatureBytes + 2))
}

func (s *Signature) append(b []byte) []byte {
	return beast2.AppendBlob(beast2.AppendBlob(b, s.Key[:]), s.Bytes[:])
}

// DecodeSignature reads signature.beast2.
func DecodeSignature(data []byte) (*Signature, error) {
	r, err := signatureSchema.open(data)
	if err != nil {
		return nil, err
	}
	s := readSignature(r)
	return &s, signatureSchema.done(r)
}

func readSignature(r *beast2.Reader) (s Signature) {
	for _, part := range [][]byte{s.Key[:], s.Bytes[:]} {
		at := r.Offset()
		if b := r.Blob(); r.Err() == nil && len(b) != len(part) {
			r.Failf(at, "it has %d bytes, want %d", len(b), len(part))
		} else {
			copy(part, b)
		}
	}
	return s
}
