package runner_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"e3/internal/host/runner"
)

// masked returns the masked text of pieces that are written one by one.
func masked(t *testing.T, secrets []string, pieces ...string) string {
	t.Helper()
	var out bytes.Buffer
	m := runner.NewMaskWriter(&out, secrets...)
	for _, piece := range pieces {
		if n, err := m.Write([]byte(piece)); err != nil || n != len(piece) {
			t.Fatalf("Write(%q) = %d, %v", piece, n, err)
		}
	}
	if err := m.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// modelMask is the definition: each maximal run of bytes that belong to occurrences is replaced.
func modelMask(text string, secrets []string) string {
	covered := make([]bool, len(text))
	for _, secret := range secrets {
		for at := 0; secret != "" && at+len(secret) <= len(text); at++ {
			if text[at:at+len(secret)] == secret {
				for i := range len(secret) {
					covered[at+i] = true
				}
			}
		}
	}
	var out strings.Builder
	for i := range len(text) {
		switch {
		case !covered[i]:
			out.WriteByte(text[i])
		case i == 0 || !covered[i-1]:
			out.WriteString("***")
		}
	}
	return out.String()
}

func TestMaskWriter(t *testing.T) {
	for _, test := range []struct {
		name    string
		secrets []string
		pieces  []string
		want    string
	}{
		{"none", nil, []string{"plain"}, "plain"},
		{"empty secret", []string{""}, []string{"plain"}, "plain"},
		{"one", []string{"key"}, []string{"the key is key."}, "the *** is ***."},
		{"split", []string{"secret"}, []string{"a s", "ec", "", "ret b"}, "a *** b"},
		{"byte by byte", []string{"ab"}, []string{"x", "a", "b", "y"}, "x***y"},
		{"beginning only", []string{"secret"}, []string{"a sec"}, "a sec"},
		{"false start", []string{"aab"}, []string{"aa", "ab"}, "a***"},
		{"overlap with itself", []string{"aba"}, []string{"xababax"}, "x***x"},
		{"overlap of two", []string{"abc", "bcd"}, []string{"xabcdx"}, "x***x"},
		{"one within another", []string{"b", "abcd"}, []string{"abc", "e abcd"}, "a***ce ***"},
		{"long one after its short suffix", []string{"c", "abcd"}, []string{"xabcd"}, "x***"},
		{"touching", []string{"ab", "cd"}, []string{"abcd", "ab"}, "***"},
		{"all", []string{"\n"}, []string{"\n\n"}, "***"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := masked(t, test.secrets, test.pieces...); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if model := modelMask(strings.Join(test.pieces, ""), test.secrets); model != test.want {
				t.Errorf("the model gives %q, want %q", model, test.want)
			}
		})
	}
}

// Bytes that cannot belong to a secret are written at once.
func TestMaskWriterIsPrompt(t *testing.T) {
	var out bytes.Buffer
	m := runner.NewMaskWriter(&out, "secret")
	for _, step := range []struct{ write, want string }{
		{"progress 10%", "progress 10%"},
		{" se", "progress 10% "},
		{"ven", "progress 10% seven"},
	} {
		if _, err := m.Write([]byte(step.write)); err != nil {
			t.Fatal(err)
		}
		if out.String() != step.want {
			t.Errorf("after %q: %q, want %q", step.write, out.String(), step.want)
		}
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestMaskWriterError(t *testing.T) {
	want := errors.New("disk full")
	m := runner.NewMaskWriter(failingWriter{want}, "secret")
	for range 2 {
		if _, err := m.Write([]byte("text")); !errors.Is(err, want) {
			t.Errorf("Write: %v, want %v", err, want)
		}
	}
	if err := m.Flush(); !errors.Is(err, want) {
		t.Errorf("Flush: %v, want %v", err, want)
	}
}

func FuzzMaskWriter(f *testing.F) {
	f.Add("password=hunter2 hunter2", "hunter2", "ter2 h", uint8(3))
	f.Add("ababababab", "aba", "bab", uint8(1))
	f.Add("xabcdabcabx", "abcd", "bc", uint8(2))
	f.Add("aaaaaaaaaa", "aaaa", "aa", uint8(7))
	f.Fuzz(func(t *testing.T, text, first, second string, step uint8) {
		secrets := []string{first, second}
		var pieces []string
		for chunk := range slices.Chunk([]byte(text), int(step)+1) {
			pieces = append(pieces, string(chunk))
		}
		got := masked(t, secrets, pieces...)
		if want := modelMask(text, secrets); got != want {
			t.Fatalf("secrets %q in %q, by %d: got %q, want %q", secrets, text, int(step)+1, got, want)
		}
		for _, secret := range secrets {
			// The mask itself may complete a secret with a star.
			if secret != "" && !strings.Contains(secret, "*") && strings.Contains(got, secret) {
				t.Fatalf("secret %q is left in %q", secret, got)
			}
		}
	})
}
