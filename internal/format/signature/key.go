package signature

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

// Key is the key pair of a user. It holds the private key: it is never printed.
type Key struct {
	Name string // the owner's name for the key; may be empty
	seed [ed25519.SeedSize]byte
}

// Generate makes a key pair.
func Generate(name string) (*Key, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return &Key{Name: name, seed: [ed25519.SeedSize]byte(private.Seed())}, nil
}

// Public returns the public key.
func (k *Key) Public() PublicKey {
	return PublicKey(ed25519.NewKeyFromSeed(k.seed[:]).Public().(ed25519.PublicKey))
}

// String returns the public key, so that the private key appears in no message.
func (k *Key) String() string { return k.Public().String() }

// GoString is String: it keeps the seed out of %#v.
func (k *Key) GoString() string { return k.String() }

// Sign signs a list by its digest.
func (k *Key) Sign(manifest [32]byte) *Signature {
	s := &Signature{Key: k.Public(), Name: k.Name, Manifest: manifest}
	copy(s.Bytes[:], ed25519.Sign(ed25519.NewKeyFromSeed(k.seed[:]), message(manifest, k.Name)))
	return s
}

// MaxKeyFile is the greatest size of a key file in bytes.
const MaxKeyFile = 16 << 10

// A key file is PKCS#8 in PEM, which other programs can read, too. It begins with lines of text, which PEM readers
// skip.
const (
	pemType   = "PRIVATE KEY"
	nameLabel = "Name: "
)

// pkcs8 begins the PKCS#8 form of every ed25519 key (RFC 8410); the 32 bytes of the seed follow. All other bytes of
// the form are fixed, so no parser is needed.
const pkcs8 = "\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20"

// Encode returns the bytes of the key file.
func (k *Key) Encode() []byte {
	var b bytes.Buffer
	b.WriteString("This is a private key of e3. Whoever has it can sign exports in the name of its owner.\n")
	if k.Name != "" {
		b.WriteString(nameLabel + k.Name + "\n")
	}
	b.Write(pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: append([]byte(pkcs8), k.seed[:]...)}))
	return b.Bytes()
}

// Parse reads the bytes of a key file. The name may be missing. Errors do not quote the key.
func Parse(data []byte) (*Key, error) {
	if len(data) > MaxKeyFile {
		return nil, fmt.Errorf("it has more than %d bytes, which no key has", MaxKeyFile)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("there is no PEM block in it")
	}
	seed, ok := bytes.CutPrefix(block.Bytes, []byte(pkcs8))
	if block.Type != pemType || !ok || len(seed) != ed25519.SeedSize {
		return nil, errors.New("it is not an ed25519 key in PKCS#8")
	}
	k := &Key{seed: [ed25519.SeedSize]byte(seed)}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, "-----BEGIN") {
			break
		}
		if name, ok := strings.CutPrefix(line, nameLabel); ok {
			if err := CheckName(name); err != nil {
				return nil, err
			}
			k.Name = name
		}
	}
	return k, nil
}
