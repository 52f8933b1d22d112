package signature_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"e3/internal/format/signature"
)

// A key that is printed by accident shows only its public half.
func TestKeyDoesNotPrintItself(t *testing.T) {
	k := testKey(t, "Ann")
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, k); got != k.Public().String() {
			t.Errorf("%s prints %q", format, got)
		}
	}
}

func TestKeyFileIsCommon(t *testing.T) {
	text := testKey(t, "Ann, CI").Encode()
	if !bytes.Contains(text, []byte("\nName: Ann, CI\n-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----\n")) {
		t.Errorf("the file is\n%s", text)
	}
	for _, name := range []string{"", "a\nb", " a", "\x00", "\u202e", "\xff", strings.Repeat("a", 129)} {
		if _, err := signature.Generate(name); err == nil {
			t.Errorf("a key may be called %q", name)
		}
	}
}
