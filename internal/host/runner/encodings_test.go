package runner

import (
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// programs print a secret, the variable S, in their own encodings.
var programs = []struct {
	name, needs string
	args        []string
}{
	{"printf %q", "bash", []string{"-c", `printf %q "$S"`}},
	{"@Q", "bash", []string{"-c", `echo "${S@Q}"`}},
	{"bash -x", "bash", []string{"-xc", `: "x $S y"`}},
	{"bash -x alone", "bash", []string{"-xc", `: "$S"`}},
	{"dash -x", "dash", []string{"-xc", `: "$S"`}},
	{"xxd -p", "xxd", []string{"-p"}},
	{"base64", "base64", nil},
	{"python", "python3", []string{"-c", `
import os, json, shlex, html, urllib.parse as u
s = os.environ["S"]
for f in (repr, ascii, json.dumps, lambda s: json.dumps(s, ensure_ascii=False), shlex.quote, html.escape, u.quote, u.quote_plus,
          lambda s: u.quote(s, safe=""), lambda s: s.encode().hex(), lambda s: s.encode().hex().upper()):
    print(f(s))
`}},
}

// Programs print random secrets; after masking only quotes and masks are left. E3_SECRETS is the number of secrets,
// E3_TEST_SEED the seed.
func TestProgramsAreMasked(t *testing.T) {
	seed, count := setting(t, "E3_TEST_SEED", rand.Uint64()), setting(t, "E3_SECRETS", 4)
	t.Logf("E3_TEST_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 4))
	for _, p := range programs {
		t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
			path, err := exec.LookPath(p.needs)
			if err != nil {
				t.Skipf("%s is missing: install it (Debian: apt-get install %s)", p.needs, p.needs)
			}
			for range count {
				secret := randomSecret(rnd)
				for _, locale := range []string{"C.UTF-8", "C"} {
					c := exec.Command(path, p.args...)
					c.Env = append(os.Environ(), "S="+secret, "LC_ALL="+locale, "PYTHONIOENCODING=utf-8", "PYTHONUTF8=1")
					c.Stdin = strings.NewReader(secret)
					out, err := c.CombinedOutput()
					if err != nil {
						t.Fatalf("%q: %v\n%s", secret, err, out)
					}
					checkMasked(t, secret, string(out))
				}
			}
		})
	}
}

// TestEncodingsAreMasked does the same with Go's encoders.
func TestEncodingsAreMasked(t *testing.T) {
	seed := setting(t, "E3_TEST_SEED", rand.Uint64())
	t.Logf("E3_TEST_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 5))
	for range 300 {
		secret := randomSecret(rnd)
		marshalled, err := json.Marshal(secret)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{
			secret, string(marshalled), strconv.Quote(secret), strconv.QuoteToASCII(secret), url.QueryEscape(secret), url.PathEscape(secret),
			percentDigits.ReplaceAllStringFunc(url.QueryEscape(secret), strings.ToLower), html.EscapeString(secret),
			fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret),
		} {
			checkMasked(t, secret, text)
		}
	}
}

var percentDigits = regexp.MustCompile("%[0-9A-F]{2}")

// checkMasked checks that masking text, an encoded secret, leaves less than a piece.
func checkMasked(t *testing.T, secret, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		left := strings.NewReplacer(maskText, "", "+ : ", "", "x ", "", " y", "").Replace(Mask(line, secret))
		if left = strings.Trim(left, "$'\"+: \n"); len(left) >= leastPiece {
			t.Errorf("of the secret %q, printed as\n%s\nthere is left %q", secret, line, left)
		}
	}
}

// randomSecret returns a single line, because quoted text may join parts of several lines.
func randomSecret(rnd *rand.Rand) string {
	const alphabet = `abcXYZ019 '"\/&<>%+=$!#~*?()[]{};:,.-_^@|` + "`\té€😀"
	letters := []rune(alphabet)
	b := []rune("s3cr")
	for range 6 + rnd.IntN(30) {
		b = append(b, letters[rnd.IntN(len(letters))])
	}
	return string(b) + "Z"
}

func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
