package repo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"e3/internal/host/modes"
)

// One byte that is damaged, wherever it is and whatever it becomes, never makes of a text one that says something else.
func TestDamagedFormat(t *testing.T) {
	for _, f := range []*format{
		{Access: modes.Private, SignedExecutions: true}, {Location: "dynamodb://table/repository"},
		{ID: "0123456789abcdef", Objects: &bucketLocation{Bucket: "bucket", Prefix: "prefix", Region: "eu-west-1"}},
	} {
		text, err := f.encode()
		if err != nil {
			t.Fatal(err)
		}
		want, err := decodeFormat(text, "here")
		if err != nil {
			t.Fatal(err)
		}
		for at := range text {
			for x := 1; x < 256; x++ {
				worse := bytes.Clone(text)
				worse[at] ^= byte(x)
				if got, err := decodeFormat(worse, "here"); err == nil && !reflect.DeepEqual(got, want) || errors.Is(err, ErrOtherFormat) {
					t.Fatalf("%s is read as %+v, %v; want %+v, or that it is damaged", worse, got, err, want)
				}
			}
			if got, err := decodeFormat(text[:at], "here"); err == nil {
				t.Fatalf("%s is read as %+v, want an error", text[:at], got)
			}
		}
	}
}

// A repository of which one of the two texts is damaged or gone is opened by the other one; what is wrong is told, and mended.
func TestFormatCopy(t *testing.T) {
	damages := map[string]func(path string) error{
		"gone":  os.Remove,
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"another": func(path string) error {
			return os.WriteFile(path, []byte(`{"e3":"repository","version":9,"sum":"00000000"}`), 0o600)
		},
	}
	for what, do := range damages {
		for _, name := range []string{formatFile, formatCopy} {
			t.Run(fmt.Sprintf("%s %s", name, what), func(t *testing.T) {
				root, err := Create(filepath.Join(t.TempDir(), DirName))
				if err != nil {
					t.Fatal(err)
				}
				whole, err := os.ReadFile(filepath.Join(root, name))
				if err != nil {
					t.Fatal(err)
				}
				if err := do(filepath.Join(root, name)); err != nil {
					t.Fatal(err)
				}
				var warned []error
				r, err := Open(t.Context(), root, Options{Warn: func(err error) { warned = append(warned, err) }})
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				if (len(warned) > 0) != (name == formatFile) {
					t.Errorf("it warns of %v", warned)
				}
				faults, err := r.FormatFaults(t.Context())
				if err != nil || len(faults) != 1 || faults[0].Where != filepath.Join(root, name) || faults[0].Missing != (what == "gone" && name == formatCopy) {
					t.Fatalf("got the faults %+v, %v, want one of %s", faults, err, name)
				}
				if err := faults[0].Mend(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || !slices.Equal(got, whole) {
					t.Errorf("mended it is %q, %v, want %q", got, err, whole)
				}
			})
		}
	}
}
