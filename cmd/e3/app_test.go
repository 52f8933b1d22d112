package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/cobra"

	"e3/internal/repo"
)

// The repository comes first or is left out.
func TestPositional(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("there", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Create(filepath.Join("there", repo.DirName)); err != nil {
		t.Fatal(err)
	}
	two, one, optional := []string{"<ws>", "<file>"}, []string{"<ws>"}, []string{"[ws]"}
	for _, test := range []struct {
		args     []string
		names    []string
		location string
		rest     []string // nil: refused
	}{
		{[]string{"prod"}, one, "default", []string{"prod"}},
		{[]string{".", "prod"}, one, ".", []string{"prod"}},
		{[]string{"there"}, one, "default", []string{"there"}},
		{nil, one, "", nil},
		{[]string{"a", "b", "c"}, one, "", nil},
		{[]string{"prod", "x/e3.yaml"}, two, "default", []string{"prod", "x/e3.yaml"}},
		{[]string{"r", "prod", "e3.yaml"}, two, "r", []string{"prod", "e3.yaml"}},
		{nil, nil, "default", []string{}},
		{[]string{"r"}, nil, "r", []string{}},

		{nil, optional, "default", []string{""}},
		{[]string{"prod"}, optional, "default", []string{"prod"}},
		{[]string{"there"}, optional, "there", []string{""}},
		{[]string{"."}, optional, ".", []string{""}},
		{[]string{".."}, optional, "..", []string{""}},
		{[]string{"../x"}, optional, "../x", []string{""}},
		{[]string{"/x"}, optional, "/x", []string{""}},
		{[]string{"x/y"}, optional, "x/y", []string{""}},
		{[]string{"prod.images/2024"}, optional, "default", []string{"prod.images/2024"}},
		{[]string{"anything", "prod"}, optional, "anything", []string{"prod"}},
	} {
		a := newApp()
		a.Getenv = func(name string) string { return map[string]string{"E3_REPO": "default"}[name] }
		location, rest, err := a.positional(&cobra.Command{Use: "x"}, test.args, test.names...)
		if (err != nil) != (test.rest == nil) || location != test.location || !slices.Equal(rest, test.rest) {
			t.Errorf("%q for %q: %q, %q, %v; want %q, %q", test.args, test.names, location, rest, err, test.location, test.rest)
		}
	}
}

func TestLocation(t *testing.T) {
	for repository, want := range map[string]string{"": ".", "/srv/e3": "/srv/e3"} {
		a := newApp()
		a.Getenv = func(string) string { return repository }
		if got := a.location(); got != want {
			t.Errorf("with E3_REPO=%q: %q, want %q", repository, got, want)
		}
	}
}
