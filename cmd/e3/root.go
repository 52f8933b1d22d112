package main

import (
	"github.com/spf13/cobra"
)

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "e3",
		Short: "Run pipelines of ordinary commands and never do the same work twice",
		Long: `e3 runs pipelines of ordinary commands and never does the same work twice.

Every execution of a task on given inputs is kept, with its logs. The repository comes first on every
command line; "." means the .e3 folder here or in a folder above, and stands for a missing one unless
E3_REPO names another.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.CompletionOptions.DisableDefaultCmd = false
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", false, "write JSON for programs: one document, or one event a line where there are many")
	f.StringVar(&a.color, "color", "auto", "auto, always or never; NO_COLOR and FORCE_COLOR are heeded")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; see: %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(newStart(a))
	return root
}
