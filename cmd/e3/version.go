package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/repo"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of e3",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			doc := map[string]any{
				"version": a.version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				"format": repo.FormatVersion,
			}
			return a.Reply(doc, func(w *render.Sheet) {
				fmt.Fprintf(w, "e3 %s (%s, %s/%s)\n", a.version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			})
		},
	}
}
