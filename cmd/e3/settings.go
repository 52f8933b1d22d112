package main

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"e3/internal/format/notation"
	"e3/internal/human"
)

// environment is the annotation of a flag that holds the name of its environment variable.
const environment = "e3_environment"

// fromEnvironment lets flags be given by E3_<NAME> as well. The command line wins.
func fromEnvironment(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		variable := "E3_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		f := flags.Lookup(name)
		f.Usage += " [" + variable + "]"
		if err := flags.SetAnnotation(name, environment, []string{variable}); err != nil {
			panic(err) // the flag exists
		}
	}
}

// whyFlags adds the flag for a reason, under the command's usual name and under a second one.
func whyFlags(flags *pflag.FlagSet, why *string, name, other, at string) {
	flags.StringVar(why, name, "", "the reason, shown by "+at)
	flags.StringVar(why, other, "", "the same as --"+name)
}

// flagsFromEnvironment sets the flags that are not on the command line from their variables.
func (a *app) flagsFromEnvironment(cmd *cobra.Command) error {
	var fault error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names := f.Annotations[environment]
		if len(names) == 0 || f.Changed {
			return
		}
		text := a.Getenv(names[0])
		if text == "" {
			return
		}
		if err := cmd.Flags().Set(f.Name, text); err != nil && fault == nil {
			fault = usagef("%s=%q: %w", names[0], text, valueFault(err))
		}
	})
	return fault
}

// checkVariables warns of variables that look like one of e3's and are none.
func (a *app) checkVariables(environ []string) {
	var known []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		short, ours := strings.CutPrefix(name, "E3_")
		if !ours {
			continue
		}
		if known == nil {
			for _, topic := range topics() {
				for _, m := range regexp.MustCompile(`\bE3_([A-Z_]+)`).FindAllStringSubmatch(topic.Long, -1) {
					known = append(known, m[1])
				}
			}
		}
		if guess := notation.Nearest(short, slices.Values(known)); guess != "" && !slices.Contains(known, short) {
			a.Warnf("no command reads the variable %s; did you mean E3_%s?", human.Line(name), guess)
		}
	}
}

// choices is the annotation of a flag that holds the few words that it takes.
const choices = "e3_choices"

// fixedValues completes a flag that takes one of a few words, and has others refused.
func fixedValues(cmd *cobra.Command, flag string, words ...string) {
	completeFlag(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	if f := cmd.Flag(flag); f.Value.Type() == "string" { // not a list of them
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[choices] = words
	}
}

// refuseOthers refuses other values of flags than the words that they take.
func refuseOthers(cmd *cobra.Command) error {
	var faults []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if words := f.Annotations[choices]; words != nil && f.Value.String() != f.DefValue {
			faults = append(faults, oneOf(f.Name, f.Value.String(), words...))
		}
	})
	return errors.Join(faults...)
}

// oneOf refuses a value that is not among the given words.
func oneOf(flag, word string, words ...string) error {
	if slices.Contains(words, word) {
		return nil
	}
	last := len(words) - 1
	return usagef("--%s is %s, not %q%s", flag, fmt.Sprintf("%s or %s", strings.Join(words[:last], ", "), words[last]), word, didYouMean(word, words))
}

// filled makes a check that flags, where they are given, are not empty. The message names the flag.
func filled(message string, flags ...string) runFunc {
	return func(cmd *cobra.Command, _ []string) error {
		for _, name := range flags {
			if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
				return usagef(message, name)
			}
		}
		return nil
	}
}

// noArguments refuses arguments; it is for commands that take none.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// alternatives refuses flags that exclude each other.
func alternatives(cmd *cobra.Command, names ...string) error {
	given := ""
	for _, name := range names {
		switch f := cmd.Flags().Lookup(name); {
		case !f.Changed:
		case given != "":
			return usagef("--%s and --%s exclude each other", given, name)
		default:
			given = name
		}
	}
	return nil
}
