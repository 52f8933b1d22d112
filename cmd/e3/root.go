package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/notation"
)

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "e3",
		Short: "Run pipelines of ordinary commands and never do the same work twice",
		Long: `e3 runs pipelines of ordinary commands and never does the same work twice.

Every execution of a task on given inputs is kept, with its logs. The repository is the first argument
of every command; "." means the .e3 folder here or in a folder above. Without it, the repository is
the one that E3_REPO names, or else ".".`,
		Example: `  e3 start -f e3.yaml          make what is missing and run
  e3 start . prod              run a workspace
  e3 run . prod                what the latest run did
  e3 logs . prod.train         what a task printed
  e3 get . prod.report -o report.html`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRunE: a.prepare,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	f := root.PersistentFlags()
	f.BoolVar(&a.JSON, "json", false, "write JSON for programs: one document, or one object a line where there are many")
	f.StringVar(&a.Color, "color", "auto", "auto (as the output, NO_COLOR and FORCE_COLOR decide), always or never")
	fromEnvironment(f, "color")
	fixedValues(root, "color", "auto", "always", "never")
	root.SetFlagErrorFunc(flagFault)
	root.SetUsageFunc(usage)
	root.AddCommand(
		newNew(a), newInit(a), newPackage(a), newWorkspace(a),
		newStart(a), newPlan(a), newLint(a), newCancel(a), newRun(a), newGraph(a), newDiff(a), newCompare(a), newHistory(a), newStats(a), newLogs(a), newShell(a), newEvents(a), newWhy(a), newStatus(a, "status"),
		newList(a), newGet(a), newSet(a), newUnset(a),
		newWorker(a), newQueue(a), newExecutor(a),
		newImage(a), newKey(a), newSettings(a),
		newUI(a), newGC(a), newPrune(a), newVerify(a), newApprove(a), newReject(a), newPin(a),
		newConvert(a), newVersion(a), newMan(a),
	)
	root.AddCommand(topics()...)
	root.SetHelpCommand(newHelp())
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Short = "Print the completion script for a shell"
			for _, shell := range cmd.Commands() {
				if shell.Name() == "bash" {
					shell.RunE = func(cmd *cobra.Command, _ []string) error {
						plain, err := cmd.Flags().GetBool("no-descriptions")
						return errors.Join(err, bashCompletion(cmd, !plain))
					}
					shell.Long = strings.Replace(shell.Long, "This script depends on the 'bash-completion' package.\nIf it is not installed already, you can install it via your OS's package manager.\n\n", "", 1)
				}
			}
			family(cmd)
		}
	}
	return family(root)
}

// prepare runs before every command.
func (a *app) prepare(cmd *cobra.Command, args []string) error {
	a.parsed, a.running = true, cmd
	if err := checkDashes(cmd, args); err != nil {
		return err
	}
	a.checkVariables(os.Environ())
	if f := cmd.Flags().Lookup("file"); f != nil && f.Changed && f.Shorthand == "f" && cmd.Flags().Lookup("f"+f.Value.String()) != nil {
		return usagef("-f%s is -f with the package file %[1]q; did you mean --f%[1]s?", f.Value.String())
	}
	if err := a.flagsFromEnvironment(cmd); err != nil {
		return err
	}
	return refuseOthers(cmd)
}

// family makes a command with subcommands return an error when it is called without one.
func family(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		names := commandNames(cmd)
		switch {
		case len(args) > 0 && !slices.Contains(names, args[0]) && (isLocation(args[0]) || strings.Contains(args[0], ".")): // its argument
			text := fmt.Sprintf("%s needs a command first: %s", cmd.CommandPath(), strings.Join(names, ", "))
			if slices.Contains(names, "add") {
				text += fmt.Sprintf("; as: %s add %s", cmd.CommandPath(), strings.Join(quotedAll(args), " "))
			}
			return usagef("%s", text)
		case len(args) > 0:
			return noCommand(cmd, args[0], names)
		case cmd.HasParent():
			return usagef("%s needs a command: %s", cmd.CommandPath(), strings.Join(names, ", "))
		}
		return cmd.Help()
	}
	return cmd
}

func commandNames(cmd *cobra.Command) (names []string) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// noCommand is the error for an unknown subcommand; it suggests similar names.
func noCommand(cmd *cobra.Command, word string, names []string) error {
	err := fmt.Sprintf("there is no command %q", cmd.CommandPath()+" "+word)
	if begun := begunBy(word, names); len(begun) > 0 && peerCommands[word] == "" {
		return usagef("%s; did you mean %s?", err, strings.Join(begun, ", "))
	}
	if ours := peerVerbs[word]; cmd.HasParent() && slices.Contains(names, ours) {
		return usagef("%s; use: %s %s", err, cmd.CommandPath(), ours)
	}
	if guess := notation.Nearest(word, slices.Values(names)); guess != "" && peerCommands[word] == "" && placesOf(cmd, word) == "" {
		return usagef("%s; did you mean %q?", err, guess)
	}
	if ours := cmp.Or(peerCommands[word], placesOf(cmd, word)); ours != "" && !cmd.HasParent() {
		return usagef("%s; use: %s", err, ours)
	}
	if cmd.HasParent() {
		if slices.Contains(commandNames(cmd.Root()), word) {
			return usagef("%s; use: e3 %s", err, word)
		}
		return usagef("%s; there are: %s", err, strings.Join(names, ", "))
	}
	if notation.Nearest(word, slices.Values([]string{"help"})) != "" {
		return usagef("%s; did you mean %q?", err, "help")
	}
	return usagef("%s; see: %s --help", err, cmd.CommandPath())
}

// begunBy returns the names that a word of at least two letters begins, quoted.
func begunBy(word string, names []string) (list []string) {
	for _, name := range names {
		if len(word) > 1 && strings.HasPrefix(name, word) {
			list = append(list, strconv.Quote(name))
		}
	}
	return list
}

// usage prints the usage lines of a command.
func usage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	line := cmd.UseLine()
	if below := cmd.CommandPath() + " <command>"; cmd.HasAvailableSubCommands() {
		if line = below; strings.Contains(cmd.Use, " ") { // it also runs without a subcommand
			line = cmd.UseLine() + "\n  " + below
		}
	}
	fmt.Fprintf(w, "Usage:\n  %s\n", line)
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nCommands:\n")
		list(cmd, (*cobra.Command).IsAvailableCommand).Write(w, "  ")
	}
	flags(cmd, "Flags", cmd.LocalFlags())
	flags(cmd, "Flags of every command", cmd.InheritedFlags())
	if cmd.HasHelpSubCommands() {
		fmt.Fprintf(w, "\nMore help:\n")
		list(cmd, (*cobra.Command).IsAdditionalHelpTopicCommand).Write(w, "  "+cmd.Name()+" help ")
	}
	return nil
}

func list(cmd *cobra.Command, which func(*cobra.Command) bool) *render.Table {
	t := &render.Table{}
	for _, sub := range cmd.Commands() {
		if which(sub) {
			t.Row(sub.Name(), sub.Short)
		}
	}
	return t
}

func flags(cmd *cobra.Command, title string, set *pflag.FlagSet) {
	if set.HasAvailableFlags() {
		fmt.Fprintf(cmd.OutOrStderr(), "\n%s:\n%s\n", title, strings.TrimRight(set.FlagUsagesWrapped(110), "\n"))
	}
}
