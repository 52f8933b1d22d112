package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"e3/internal/repo"
)

func newInit(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "init [dir]",
		Short: "Make an empty repository",
		Long: `Make an empty repository: the folder .e3 in the given folder, by default in this one. A path that ends in
.e3 is the repository itself.`,
		Example: `  e3 init
  e3 init /srv/pipelines`,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, _, err := a.positional(cmd, args, 0)
			if err != nil {
				return err
			}
			if filepath.Base(dir) != repo.DirName {
				dir = filepath.Join(dir, repo.DirName)
			}
			root, err := repo.Create(dir)
			if err != nil {
				return err
			}
			return a.reply(map[string]any{"repository": root}, func(w io.Writer) {
				fmt.Fprintf(w, "Created repository %s\n", printable(root, false))
			})
		},
	}
}
