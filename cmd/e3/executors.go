package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
)

func newExecutor(a *app) *cobra.Command {
	cmd := family(&cobra.Command{
		Use:   "executor",
		Short: "Have a cluster's scheduler start workers: its profiles",
		Long: `e3 start --executor <name> has a scheduler start a worker for each task. A profile says by which commands: it is a YAML file of some
ten lines (doc/executors.md). Profiles are shipped, and your own are <name>.yaml in the folder e3/executors of your configuration, or any
file: --executor ./mine.yaml. A repository has none.`,
	})
	cmd.AddCommand(newExecutorList(a), newExecutorShow(a), newExecutorCheck(a))
	return cmd
}

// An executorRow is a scheduler that --executor can name.
type executorRow struct {
	Name  string `json:"name"`
	File  string `json:"file,omitempty"`  // of the user's own
	About string `json:"about,omitempty"` // its first comment
	Fault string `json:"fault,omitempty"` // why it cannot be used
}

func rowOf(named *namedProfile) executorRow {
	row := executorRow{Name: named.name, File: named.file}
	if about, ok := strings.CutPrefix(string(named.text), "# "); ok {
		row.About, _, _ = strings.Cut(about, "\n")
	}
	if _, err := named.decode(); err != nil {
		row.Fault = err.Error()
	}
	return row
}

func newExecutorList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the schedulers that --executor can name",
		Long:    "List the profiles of schedulers: your own, and the shipped ones. Your own counts where both have a name.",
		Example: "  e3 executor list",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			rows := []executorRow{}
			own, shipped := profileNames()
			for i, name := range append(own, shipped...) {
				named, err := findProfile(name)
				switch {
				case err != nil:
					rows = append(rows, executorRow{Name: name, Fault: err.Error()})
				case i < len(own) || named.file == "": // else it is listed already
					rows = append(rows, rowOf(named))
				}
			}
			return a.Reply(rows, func(w *render.Sheet) {
				t := &render.Table{}
				for _, r := range rows {
					about := r.About
					if r.File != "" {
						about = strings.TrimSpace(about + " (your own: " + r.File + ")")
					}
					if r.Fault != "" {
						about = "cannot be used: " + r.Fault
					}
					t.Row(r.Name, about)
				}
				w.Table(t, "")
			})
		},
	}
	return a.answers(cmd, []executorRow{})
}

// A shownProfile is a profile with its text.
type shownProfile struct {
	executorRow
	Text string `json:"text"`
}

func newExecutorShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show <profile>",
		Short: "Print a profile, as a start for one's own",
		Long:  "Print the text of a profile.",
		Example: `  e3 executor show sge
  e3 executor show kubernetes > ~/.config/e3/executors/kubernetes.yaml`,
		RunE: func(_ *cobra.Command, args []string) error {
			named, err := namedExecutor(args)
			if err != nil {
				return err
			}
			return a.Reply(shownProfile{rowOf(named), string(named.text)}, func(w *render.Sheet) { fmt.Fprint(w, string(named.text)) })
		},
		ValidArgsFunction: completeProfiles,
	}
	return a.answers(cmd, shownProfile{})
}

// namedExecutor finds the profile that is the only argument.
func namedExecutor(args []string) (*namedProfile, error) {
	if len(args) != 1 {
		return nil, usagef("name one profile: e3 executor list has them; or a file, as ./mine.yaml")
	}
	return findProfile(args[0])
}

func completeProfiles(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	own, shipped := profileNames()
	return append(own, shipped...), cobra.ShellCompDirectiveDefault
}

func newExecutorCheck(a *app) *cobra.Command {
	o, c := &runsOptions{}, &executorCheck{app: a}
	cmd := &cobra.Command{
		Use:   "check <profile>",
		Short: "Try a profile on its scheduler, and say what to mend",
		Long: `Submit a job that ends with exit code 3, follow it to its end, and submit and cancel a second one. Each command is shown as it was
filled in, with what it answered and how that was read. What must be mended is said at the end; the exit code is 1 then. No
repository is needed, and nothing is left in the scheduler.`,
		Example: `  e3 executor check sge
  e3 executor check ./mine.yaml --executor-args '-P project'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := namedExecutor(args)
			if err != nil {
				return err
			}
			return c.run(cmd.Context(), named, o)
		},
		ValidArgsFunction: completeProfiles,
	}
	o.schedulerFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.queue, "queue", "", "the scheduler's queue (default: its own)")
	f.DurationVar(&c.patience, "wait", defaultPatience, "how long a job may wait for a node, and then to be listed as ended")
	return a.answers(cmd, checkedExecutor{})
}
