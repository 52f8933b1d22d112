package signature

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"e3/internal/atomicfile"
)

// Variable names the key file where it is not the usual one.
const Variable = "E3_KEY"

// ErrNoKey reports that the user has no key.
var ErrNoKey = errors.New("there is no key")

// Key is the key pair of a user. It holds the private key: it is never printed.
type Key struct {
	Name string // who the owner says they are; may be empty
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

// String returns the public key, so that a private one gets into no message.
func (k *Key) String() string { return k.Public().String() }

// GoString is String: it keeps the seed out of %#v.
func (k *Key) GoString() string { return k.String() }

// Sign vouches for the list with this digest.
func (k *Key) Sign(manifest [32]byte) *Signature {
	s := &Signature{Key: k.Public(), Name: k.Name, Manifest: manifest}
	copy(s.Bytes[:], ed25519.Sign(ed25519.NewKeyFromSeed(k.seed[:]), message(manifest, k.Name)))
	return s
}

// Path is where the user's key lies: where E3_KEY says, or in the user's configuration folder.
func Path(getenv func(string) string) (string, error) {
	if path := getenv(Variable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the folder of the key: %w; name a file with %s", err, Variable)
	}
	return filepath.Join(dir, "e3", "key"), nil
}

// Find returns the user's key. ErrNoKey if there is none; a file that E3_KEY names must be there, though, so that a
// mistake in it does not make for exports that are not signed.
func Find(getenv func(string) string) (*Key, error) {
	path, err := Path(getenv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoKey, err)
	}
	k, err := Load(path)
	if errors.Is(err, ErrNoKey) && getenv(Variable) != "" {
		return nil, fmt.Errorf("%s: %w", Variable, errors.Unwrap(err))
	}
	return k, err
}

// maxKeyFile is the most bytes that a key file can have.
const maxKeyFile = 16 << 10

// Load reads a key file. It refuses one that others can read: what they can read they can sign with. ErrNoKey if there
// is none.
func Load(path string) (*Key, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &missingError{path: path, err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	if !info.Mode().IsRegular() { // to open a pipe would wait for its other end
		return nil, fmt.Errorf("read key: %s is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 && runtime.GOOS != "windows" { // where modes say nothing
		return nil, fmt.Errorf("read key: others can use %s (mode %04o); if nobody has, keep it to yourself with: chmod 600 %[1]s", path, perm)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	k, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("read key %s: %w", path, err)
	}
	return k, nil
}

// missingError is an ErrNoKey that keeps what the system said.
type missingError struct {
	path string
	err  error
}

func (e *missingError) Error() string {
	return fmt.Sprintf("%v at %s; make one with: e3 key generate", ErrNoKey, e.path)
}

func (e *missingError) Is(target error) bool { return target == ErrNoKey }

func (e *missingError) Unwrap() error { return e.err }

// Save writes the key file so that only the user can read it, and makes its folder. Without replace nothing may be
// there: otherwise the error matches [fs.ErrExist].
func (k *Key) Save(path string, replace bool) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("save key: %w", err)
	}
	write := atomicfile.CreateFile
	if replace {
		write = atomicfile.WriteFile
	}
	if err := write(path, k.Encode(), atomicfile.Options{Perm: 0o600, Sync: true}); err != nil {
		return fmt.Errorf("save key: %w", err)
	}
	return nil
}

// A key file is PKCS#8 in PEM, as other programs write and read it, below lines of text, which they pass over.
const (
	pemType   = "PRIVATE KEY"
	nameLabel = "Name: "
)

// pkcs8 begins the PKCS#8 form of every ed25519 key (RFC 8410); the 32 bytes of the seed follow. Nothing in the form
// varies, so that there is nothing to parse.
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

// Parse reads the bytes of a key file. A name is not needed. Its errors do not quote the key.
func Parse(data []byte) (*Key, error) {
	if len(data) > maxKeyFile {
		return nil, fmt.Errorf("it has more than %d bytes, which no key has", maxKeyFile)
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
