package settings

import (
	"errors"
	"fmt"

	"e3/internal/format/signature"
)

// Reasons for not importing an export. A third one is [signature.ErrBadSignature].
var (
	ErrUnsigned  = errors.New("the export is not signed")
	ErrUntrusted = errors.New("the key that signed the export is not trusted here")
)

// Trust is the degree to which a signature counts.
type Trust int

// The results of [Settings.Decide].
const (
	Unsigned Trust = iota
	Unknown        // the signature is valid; its key is not trusted here
	Trusted        // the signature is valid, and its key is trusted here
)

// String is the word for programs.
func (t Trust) String() string { return [...]string{"unsigned", "unknown", "trusted"}[t] }

// Verdict holds the facts about an export's signer. All of it is safe to show.
type Verdict struct {
	Trust     Trust
	Key       signature.PublicKey // zero if unsigned
	Name      string              // as the signer gives it; "" if unsigned, or none is given
	TrustedAs string              // the name of the key here; "" unless trusted
}

// String describes the verdict in words.
func (v Verdict) String() string {
	switch {
	case v.Trust == Unsigned:
		return "not signed"
	case v.Trust == Trusted && (v.Name == "" || v.Name == v.TrustedAs):
		return fmt.Sprintf("signed with the key that is trusted here as %q", v.TrustedAs)
	case v.Trust == Trusted:
		return fmt.Sprintf("signed with the key that is trusted here as %q, under the name %q", v.TrustedAs, v.Name)
	case v.Name == "":
		return fmt.Sprintf("signed with a key that is not trusted here: %s", v.Key)
	}
	return fmt.Sprintf("signed under the name %q, with a key that is not trusted here: %s", v.Name, v.Key)
}

// Decide decides whether an export may be imported; no other code makes this decision. sig is the export's signature,
// nil if it has none. manifest is the digest of the list that the reader of the export has made. require asks for a
// trusted signature even if the repository does not. An invalid signature is always refused. The verdict is filled in
// even for a refused export. Errors: ErrUnsigned, ErrUntrusted, signature.ErrBadSignature.
func (s *Settings) Decide(sig *signature.Signature, manifest [32]byte, require bool) (Verdict, error) {
	require = require || s.RequireSigned
	if sig == nil {
		if require {
			return Verdict{}, fmt.Errorf("%w, and only exports that a trusted key has signed may come in", ErrUnsigned)
		}
		return Verdict{}, nil
	}
	if err := sig.Verify(manifest); err != nil {
		return Verdict{}, err
	}
	v := Verdict{Trust: Unknown, Key: sig.Key, Name: sig.Name}
	if k, ok := s.Trusted(sig.Key); ok {
		v.Trust, v.TrustedAs = Trusted, k.Name
	}
	if require && v.Trust != Trusted {
		who := ""
		if v.Name != "" {
			who = fmt.Sprintf(" under the name %q", v.Name)
		}
		return v, fmt.Errorf("%w: %s%s; if you know whose it is: e3 key trust <repo> %[2]s", ErrUntrusted, v.Key, who)
	}
	return v, nil
}
