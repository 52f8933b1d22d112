package signature_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"e3/internal/signature"
)

func noEnv(string) string { return "" }

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config", "e3", "key")
	k, err := signature.Generate("Ann, CI")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := signature.Load(path); !errors.Is(err, signature.ErrNoKey) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "e3 key generate") {
		t.Errorf("Load of nothing gives %v, want ErrNoKey with advice", err)
	}
	if err := k.Save(path, false); err != nil {
		t.Fatal(err)
	}
	back, err := signature.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if *back != *k {
		t.Errorf("loaded %s %q, want %s %q", back, back.Name, k, k.Name)
	}
	if runtime.GOOS != "windows" {
		for name, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700 | fs.ModeDir} {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode() != want {
				t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
			}
		}
	}

	second, err := signature.Generate("Ann, CI")
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Save(path, false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Save over a key gives %v, want ErrExist", err)
	}
	if still, err := signature.Load(path); err != nil || *still != *k {
		t.Errorf("after a refused Save there is %v, %v, want the first key", still, err)
	}
	if err := second.Save(path, true); err != nil {
		t.Fatal(err)
	}
	if now, err := signature.Load(path); err != nil || *now != *second {
		t.Errorf("after a Save in its place there is %v, %v, want the second key", now, err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("the folder holds %v, %v, want the key alone", left, err)
	}
}

func TestLoadRefusesWhatOthersCanRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes of files say nothing on windows")
	}
	path := filepath.Join(t.TempDir(), "key")
	if err := testKey(t, "Ann").Save(path, false); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o601, 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := signature.Load(path); err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) {
			t.Errorf("mode %v gives %v, want a refusal with advice", mode, err)
		}
	}
	for _, mode := range []fs.FileMode{0o600, 0o400} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := signature.Load(path); err != nil {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := signature.Load(dir); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("a folder gives %v", err)
	}
	secret := string(testKey(t, "").Encode())
	block := secret[strings.Index(secret, "-----BEGIN"):]
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "no PEM block"},
		{"text", "hello", "no PEM block"},
		{"cut", block[:80], "no PEM block"},
		{"public key", strings.ReplaceAll(block, "PRIVATE", "PUBLIC"), "not an ed25519 key"},
		{"other algorithm", strings.Replace(block, "K2Vw", "K2Vu", 1), "not an ed25519 key"},
		{"name that cannot be shown", "Name: a\x1bb\n" + block, "cannot be shown"},
		{"large", block + strings.Repeat("\n", 16<<10), "more than 16384 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := signature.Load(path)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want an error that says %q", err, tt.want)
			}
			if strings.Contains(err.Error(), "AAECAwQF") {
				t.Errorf("the error holds the key: %v", err)
			}
		})
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("AppData", filepath.Join(dir, "config"))
	if _, err := signature.Find(noEnv); !errors.Is(err, signature.ErrNoKey) {
		t.Errorf("without a key: %v, want ErrNoKey", err)
	}
	path, err := signature.Path(noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(path) != "key" || filepath.Base(filepath.Dir(path)) != "e3" || !strings.HasPrefix(path, dir) {
		t.Errorf("the key lies at %s", path)
	}
	k := testKey(t, "Ann")
	if err := k.Save(path, false); err != nil {
		t.Fatal(err)
	}
	if found, err := signature.Find(noEnv); err != nil || *found != *k {
		t.Errorf("found %v, %v, want %s", found, err, k)
	}
	elsewhere := filepath.Join(dir, "elsewhere")
	named := func(name string) string {
		if name != signature.Variable {
			return ""
		}
		return elsewhere
	}
	if _, err := signature.Find(named); err == nil || errors.Is(err, signature.ErrNoKey) || !strings.Contains(err.Error(), "E3_KEY") {
		t.Errorf("E3_KEY that names nothing gives %v, want an error that is not ErrNoKey", err)
	}
	if err := k.Save(elsewhere, false); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if found, err := signature.Find(named); err != nil || *found != *k {
		t.Errorf("found %v, %v, want %s", found, err, k)
	}
}

// A key gets into messages by accident only as its public half.
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
