package record

import (
	"fmt"

	"e3/internal/format/beast2"
)

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

var signatureSchema = newSchema("signature", func() beast2.Type {
	return beast2.Struct(beast2.F("key", beast2.Blob), beast2.F("signature", beast2.Blob))
})

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

// SignedProof is the record of a Proof where executions must be signed. The signature is that of a process that has
// found the results, and covers them; the remaining fields come from the latest run.
type SignedProof struct {
	Signature Signature
	Proof     Proof
}

var signedProofSchema = newSchema("signed proof", func() beast2.Type {
	return beast2.Struct(beast2.F("key", beast2.Blob), beast2.F("signature", beast2.Blob), beast2.F("proof", beast2.Blob))
})

// Encode returns the bytes of the record.
func (p *SignedProof) Encode() []byte {
	proof := p.Proof.Encode()
	b := signedProofSchema.begin(signatureKey + signatureBytes + len(proof) + 8)
	return beast2.AppendBlob(p.Signature.append(b), proof)
}

// DecodeSignedProof reads the record.
func DecodeSignedProof(data []byte) (*SignedProof, error) {
	r, err := signedProofSchema.open(data)
	if err != nil {
		return nil, err
	}
	s := readSignature(r)
	at := r.Offset()
	text := r.Blob()
	if err := signedProofSchema.done(r); err != nil {
		return nil, err
	}
	p, err := DecodeProof(text)
	if err != nil {
		return nil, fmt.Errorf("signed proof: in the blob at %d: %w", at, err)
	}
	return &SignedProof{s, *p}, nil
}

// DecodeAnyProof reads a proof, signed or not, and does not check the signature.
func DecodeAnyProof(data []byte) (*Proof, error) {
	if signed, err := DecodeSignedProof(data); err == nil {
		return &signed.Proof, nil
	}
	return DecodeProof(data)
}
