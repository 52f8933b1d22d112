package main

import (
	"runtime"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/repo"
)

// A program is what is known of this e3.
type program struct {
	Arch    string `json:"arch"`
	Format  int    `json:"format"` // of repositories that it makes
	Go      string `json:"go"`     // that built it
	OS      string `json:"os"`
	Version string `json:"version"` // a release, or dev- and a revision
}

func newVersion(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   "version",
		Short: "Print the version of e3",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			p := program{runtime.GOARCH, repo.FormatVersion, runtime.Version(), runtime.GOOS, a.version()}
			return a.Reply(p, func(w *render.Sheet) { w.Line("e3 %s (%s, %s/%s)", p.Version, p.Go, p.OS, p.Arch) })
		},
	}, program{})
}
