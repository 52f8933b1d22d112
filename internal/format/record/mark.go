package record

import "e3/internal/format/codec"

// Sizes of the parts of a Signature, in bytes.
const (
	signatureKey   = 32
	signatureBytes = 64
)

// Signature is signature.beast2 beside an execution: the signing key, and its signature. Package
// internal/format/signature defines the signed bytes and verifies signatures.
type Signature struct {
	Key   [signatureKey]byte
	Bytes [signatureBytes]byte `beast2:"signature"`
}

var signatureCodec = codec.New[Signature]("signature")

// Encode returns the bytes of signature.beast2.
func (s *Signature) Encode() []byte { return signatureCodec.Encode(s, signatureKey+signatureBytes+2) }

// DecodeSignature reads signature.beast2.
func DecodeSignature(data []byte) (*Signature, error) { return signatureCodec.Decode(data) }
