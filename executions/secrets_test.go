package executions_test

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/internal/format/record"
)

// aSecret draws a token, a text with quotes and letters of many bytes, or several lines. It has no slash and no NUL.
func aSecret(r *rand.Rand) string {
	word := func(alphabet string, least, most int) string {
		letters := []rune(alphabet)
		var b strings.Builder
		for range least + r.IntN(most-least+1) {
			b.WriteRune(letters[r.IntN(len(letters))])
		}
		return b.String()
	}
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	switch r.IntN(3) {
	case 0:
		return word(plain+"+-_.=", 8, 80)
	case 1:
		return word(plain, 4, 8) + word(` "'\$äß√日*?`+"\t\x01", 2, 8) + word(plain+"äß\"", 4, 30)
	}
	lines := []string{"-----BEGIN " + word(plain, 4, 4)}
	for range 1 + r.IntN(4) {
		lines = append(lines, word(plain+"+=", 8, 70))
	}
	return strings.Join(append(lines, "xy"), []string{"\n", "\r\n"}[r.IntN(2)])
}

// printing prints a secret in the forms that are masked.
const printing = `printf '%s' "$S"; printf 'is <%s>\n' "$S" >&2
while read -r line || test -n "$line"; do printf 'line: %s.\n' "$line"; printf '%s\n' "$line" | base64 -w0; done <<<"$S"
for before in '' a bc def; do for after in '' z yx; do
	printf '%s%s%s' "$before" "$S" "$after" | base64 -w0; echo
	printf '%s%s%s' "$before" "$S" "$after" | base64 -w0 | tr '+/' '-_' | tr -d '='; echo
done; done
printf '%s' "$S" | base64; printf '%s' "$S" | base64 -w64
`

// leaks returns the part of a secret that a text shows: the whole, a line, or a good part as base64.
func leaks(text, secret string) string {
	pieces := []string{secret}
	for line := range strings.SplitSeq(secret, "\n") {
		pieces = append(pieces, strings.TrimSpace(line))
	}
	for _, piece := range pieces {
		if len(piece) < 8 {
			continue
		}
		quoted := strconv.Quote(piece)
		for _, form := range []string{piece, quoted[1 : len(quoted)-1]} {
			if strings.Contains(text, form) {
				return form
			}
		}
		for before := range 3 {
			for _, alphabet := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
				whole := alphabet.EncodeToString(append([]byte("???")[:before], piece...))
				whole = whole[(8*before+5)/6 : 8*(before+len(piece))/6]
				const window = 10
				for i := 0; i+window <= len(whole); i++ {
					if strings.Contains(text, whole[i:i+window]) {
						return whole[i : i+window]
					}
				}
			}
		}
	}
	return ""
}

// A command may put a secret into its output, the name of a file or the target of a link. Nothing that e3 writes about
// the command shows any of it, except outputs and other objects.
func TestSecretsAreNowhere(t *testing.T) {
	seed, count := uint64(time.Now().UnixNano()), 12
	if text := os.Getenv("E3_TEST_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	if text := os.Getenv("E3_TEST_SECRETS"); text != "" {
		count, _ = strconv.Atoi(text)
	}
	t.Logf("E3_TEST_SEED=%d E3_TEST_SECRETS=%d", seed, count)
	r := rand.New(rand.NewPCG(seed, 0))
	ways := []string{
		`ln -s "/$S" d/link`, `ln -s "../../../$S" d/link`, `mkfifo "d/$N"`, `mkdir -p "d/$N"; mkfifo "d/$N/x"`, `ln -s "d/$N" out; rm -r d; mv out d`,
		`echo fine >d/file`, `exit 3`, `kill -9 $$`,
	}
	for i := range count {
		l := newLab(t)
		secret := aSecret(r)
		l.env["S"] = secret
		way := ways[r.IntN(len(ways))]
		task := script(printing + `N="$S"; if test ${#N} -gt 100; then N="${N%%$'\n'*}"; fi` + "\n" + way)
		task.Passed.Secrets = []string{"S"}
		task.Output.Entries[0] = record.OutputEntry{Name: "d", Path: "d", Kind: record.KindDir}
		req := l.request(task)
		res, err := l.Do(t.Context(), req)
		what := fmt.Sprintf("case %d, secret %q, %s", i, secret, way)
		if found := leaks(res.Message+"\n"+fmt.Sprint(err), secret); found != "" {
			t.Errorf("%s: the result is %+v, %v: it shows %q", what, res, err, found)
		}
		err = filepath.WalkDir(l.dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if e.IsDir() {
				if rel, _ := filepath.Rel(l.dir, path); rel == "objects" || rel == "tmp" {
					return filepath.SkipDir
				}
				return nil
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if found := leaks(path+"\n"+string(data), secret); found != "" {
				t.Errorf("%s: %s shows %q", what, path, found)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
