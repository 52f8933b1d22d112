package settings_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/format/signature"
	"e3/internal/settings"
)

func testKey(t *testing.T, name string) *signature.Key {
	t.Helper()
	text := "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----\n"
	k, err := signature.Parse([]byte("Name: " + name + "\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func noEnv(string) string { return "" }

func TestSaveAndLoadKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config", "e3", "key")
	k, err := signature.Generate("Ann, CI")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := settings.LoadKey(path); !errors.Is(err, settings.ErrNoKey) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "e3 key generate") {
		t.Errorf("Load of nothing gives %v, want ErrNoKey with advice", err)
	}
	if err := settings.SaveKey(k, path, false); err != nil {
		t.Fatal(err)
	}
	back, err := settings.LoadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if *back != *k {
		t.Errorf("loaded %s %q, want %s %q", back, back.Name, k, k.Name)
	}
	for name, want := range map[string]fs.FileMode{path: 0o600, filepath.Dir(path): 0o700 | fs.ModeDir} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), want)
		}
	}

	second, err := signature.Generate("Ann, CI")
	if err != nil {
		t.Fatal(err)
	}
	if err := settings.SaveKey(second, path, false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Save over a key gives %v, want ErrExist", err)
	}
	if still, err := settings.LoadKey(path); err != nil || *still != *k {
		t.Errorf("after a refused Save there is %v, %v, want the first key", still, err)
	}
	if err := settings.SaveKey(second, path, true); err != nil {
		t.Fatal(err)
	}
	if now, err := settings.LoadKey(path); err != nil || *now != *second {
		t.Errorf("after a Save in its place there is %v, %v, want the second key", now, err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("the folder holds %v, %v, want the key alone", left, err)
	}
}

func TestLoadKeyRefusesWhatOthersCanRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := settings.SaveKey(testKey(t, "Ann"), path, false); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o601, 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := settings.LoadKey(path); err == nil || !strings.Contains(err.Error(), "chmod 600 "+path) {
			t.Errorf("mode %v gives %v, want a refusal with advice", mode, err)
		}
	}
	for _, mode := range []fs.FileMode{0o600, 0o400} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := settings.LoadKey(path); err != nil {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

func TestLoadKeyRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := settings.LoadKey(dir); err == nil || !strings.Contains(err.Error(), "is not a file") {
		t.Errorf("a folder gives %v", err)
	}
	secret := string(testKey(t, "Ann").Encode())
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
			_, err := settings.LoadKey(path)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want an error that says %q", err, tt.want)
			}
			if strings.Contains(err.Error(), "AAECAwQF") {
				t.Errorf("the error holds the key: %v", err)
			}
		})
	}
}

func TestFindKey(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("AppData", filepath.Join(dir, "config"))
	if _, err := settings.FindKey(noEnv); !errors.Is(err, settings.ErrNoKey) {
		t.Errorf("without a key: %v, want ErrNoKey", err)
	}
	path, err := settings.KeyPath(noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(path) != "key" || filepath.Base(filepath.Dir(path)) != "e3" || !strings.HasPrefix(path, dir) {
		t.Errorf("the key lies at %s", path)
	}
	k := testKey(t, "Ann")
	if err := settings.SaveKey(k, path, false); err != nil {
		t.Fatal(err)
	}
	if found, err := settings.FindKey(noEnv); err != nil || *found != *k {
		t.Errorf("found %v, %v, want %s", found, err, k)
	}
	elsewhere := filepath.Join(dir, "elsewhere")
	named := func(name string) string {
		if name != settings.KeyVariable {
			return ""
		}
		return elsewhere
	}
	if _, err := settings.FindKey(named); err == nil || errors.Is(err, settings.ErrNoKey) || !strings.Contains(err.Error(), "E3_KEY") {
		t.Errorf("E3_KEY that names nothing gives %v, want an error that is not ErrNoKey", err)
	}
	if err := settings.SaveKey(k, elsewhere, false); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if found, err := settings.FindKey(named); err != nil || *found != *k {
		t.Errorf("found %v, %v, want %s", found, err, k)
	}
}
