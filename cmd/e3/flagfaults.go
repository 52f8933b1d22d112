package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"e3/internal/format/notation"
	"e3/internal/human"
)

// flagFault says of an error in the flags of a command what to write instead.
func flagFault(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); len(words) > 0 && cmd.HasAvailableSubCommands() && !strings.Contains(cmd.Use, " ") { // a mistyped command, before its flags
		return noCommand(cmd, words[0], commandNames(cmd))
	}
	var (
		unknown *pflag.NotExistError
		lacking *pflag.ValueRequiredError
	)
	switch {
	case errors.As(err, &unknown):
		if shorts := unknown.GetSpecifiedShortnames(); shorts != "" {
			return unknownShort(cmd, unknown.GetSpecifiedName(), shorts)
		}
		return unknownFlag(cmd, unknown.GetSpecifiedName())
	case errors.As(err, &lacking):
		f := lacking.GetFlag()
		_, about := pflag.UnquoteUsage(f)
		for _, word := range cmd.Flags().Args() {
			if f.Name == "file" && isPackageFile(word) {
				return usagef("-f comes before its file: %s -f %s", cmd.CommandPath(), human.Quoted(word))
			}
		}
		return usagef("%s needs a value after it: %s", flagNames(f), about)
	}
	return usagef("%w; see: %s --help", valueFault(err), cmd.CommandPath())
}

// valueFault says what a flag takes, of the error of a value that it does not take.
func valueFault(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	f, text := invalid.GetFlag(), invalid.GetValue()
	switch kind := f.Value.Type(); {
	case kind == "bool":
		return fmt.Errorf("%s takes no value, or true or false, not %q", flagNames(f), text)
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return fmt.Errorf("%s takes a whole number, not %q", flagNames(f), text)
	case kind == "duration":
		return fmt.Errorf("%s takes a duration, as 5s, 10m or 1h30m, not %q%s", flagNames(f), text, likelyDuration(text))
	}
	return fmt.Errorf("%s does not take %q: %w", flagNames(f), text, errors.Unwrap(invalid))
}

// likelyDuration ends a message with what the text of a duration probably means.
func likelyDuration(text string) string {
	if likely := notation.LikelyDuration(text); likely != "" {
		return " (did you mean " + likely + "?)"
	}
	return ""
}

// flagNames are the names of a flag as they are typed.
func flagNames(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand + ", --" + f.Name
	}
	return "--" + f.Name
}

// unknownFlag is the error for a flag that a command does not have.
func unknownFlag(cmd *cobra.Command, name string) error {
	fault := "unknown flag: --" + name
	plain := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	own, err := flagsOf(cmd), strings.TrimPrefix(plain, "no-")
	switch {
	case slices.Contains(own, plain):
		return usagef("%s; did you mean --%s?", fault, plain)
	case err != plain && slices.Contains(own, err):
		return usagef("%s; leave --%s out, or write --%[2]s=false", fault, err)
	}
	if same := sameRoot(plain, own); same != "" {
		return usagef("%s; did you mean --%s?", fault, same)
	}
	if of := flagWith(cmd, plain); of != "" {
		return usagef("%s; did you mean --%s %s?", fault, of, plain)
	}
	if ours := peerAnswer(cmd, plain); ours != "" {
		return usagef("%s; %s", fault, ours)
	}
	if others := commandsWith(cmd.Root(), plain); others != "" {
		return usagef("%s; %s has it; see: %s --help", fault, others, cmd.CommandPath())
	}
	return usagef("%s; see: %s --help", fault, cmd.CommandPath())
}

// unknownShort is the error for a letter that is no flag of a command; shorts are the letters that it was among.
func unknownShort(cmd *cobra.Command, letter, shorts string) error {
	fault := fmt.Sprintf("unknown flag: -%s", letter)
	first, _ := utf8.DecodeRuneInString(shorts)
	switch {
	case letter == "C": // of git and make
		return usagef("%s; for a project elsewhere name its folder first, as: e3 start ../shop prod", fault)
	case unicode.IsDigit(first):
		words := append([]string{cmd.CommandPath()}, quotedAll(cmd.Flags().Args())...)
		return usagef("-%s is no flag; a value that begins with - goes after --, as: %s -- -%[1]s, or behind the = of its flag", shorts, strings.Join(words, " "))
	case len(shorts) > 2:
		name, _, _ := strings.Cut(shorts, "=")
		if long := sameRoot(strings.ToLower(name), flagsOf(cmd)); long != "" || slices.Contains(flagsOf(cmd), name) {
			return usagef("unknown flag: -%s; did you mean --%s?", name, cmp.Or(long, name))
		}
	}
	for _, other := range []string{strings.ToLower(letter), strings.ToUpper(letter)} {
		if f := cmd.Flags().ShorthandLookup(other); f != nil && peerFlags[letter] == "" {
			return usagef("%s; did you mean -%s (--%s)?", fault, other, f.Name)
		}
	}
	if ours := peerAnswer(cmd, letter); ours != "" {
		return usagef("%s; %s", fault, ours)
	}
	if others := commandsWith(cmd.Root(), letter); others != "" {
		return usagef("%s; %s has it; see: %s --help", fault, others, cmd.CommandPath())
	}
	return usagef("%s; see: %s --help", fault, cmd.CommandPath())
}

// flagsOf are the names of the flags that a command shows.
func flagsOf(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// flagWith is the flag of a command that takes a word as its value; "" if there is none.
func flagWith(cmd *cobra.Command, word string) (name string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(f.Annotations[choices], word) {
			name = f.Name
		}
	})
	return name
}

// commandsWith names up to three commands that have a flag, by its name or its letter; "" if none has.
func commandsWith(root *cobra.Command, name string) string {
	var list []string
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		local := cmd.LocalNonPersistentFlags()
		if cmd.Runnable() && (len(name) > 1 && local.Lookup(name) != nil || len(name) == 1 && local.ShorthandLookup(name) != nil) {
			list = append(list, cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	if len(list) == 0 || len(list) > 3 {
		return ""
	}
	return strings.Join(list, " or ")
}

// sameRoot returns the only name that a word begins or ends, or is a misspelling of; "" if there is none.
func sameRoot(word string, names []string) string {
	var found []string
	for _, name := range names {
		if len(word) > 2 && name != word && strings.HasPrefix(name, word) {
			found = append(found, name)
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return notation.Nearest(word, slices.Values(names))
}

// didYouMean is the end of a message about a word that is none of some names: the one that is probably meant, or "".
func didYouMean(word string, names []string) string {
	if guess := sameRoot(word, names); guess != "" {
		return fmt.Sprintf("; did you mean %q?", guess)
	}
	return ""
}

// checkDashes refuses a flag that begins with another dash than the hyphen, as word processors and web pages write it.
func checkDashes(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		first, size := utf8.DecodeRuneInString(arg)
		if first < utf8.RuneSelf || !unicode.Is(unicode.Pd, first) && first != '−' {
			continue
		}
		name := strings.TrimLeftFunc(arg[size:], func(r rune) bool { return unicode.Is(unicode.Pd, r) })
		word, _, _ := strings.Cut(name, "=")
		switch {
		case len(word) == 1 && cmd.Flags().ShorthandLookup(word) != nil:
			return usagef("%q begins with the character %U, not with a hyphen: write -%s", arg, first, name)
		case len(word) > 1 && cmd.Flags().Lookup(word) != nil:
			return usagef("%q begins with the character %U, not with two hyphens: write --%s", arg, first, name)
		}
	}
	return nil
}

// loose names a flag without a value that an argument follows which looks like one, as in --workers 3; "" if there is
// none. typed is the command line.
func loose(cmd *cobra.Command, typed []string) string {
	for i, word := range typed[:max(len(typed)-1, 0)] {
		f := cmd.Flags().Lookup(strings.TrimPrefix(word, "--"))
		if f == nil || !strings.HasPrefix(word, "--") || f.NoOptDefVal == "" {
			continue
		}
		next := typed[i+1]
		if _, err := strconv.ParseFloat(next, 64); err != nil && !slices.Contains([]string{"true", "false", "yes", "no", "on", "off"}, next) {
			continue
		}
		if f.Value.Type() == "bool" {
			return fmt.Sprintf("%s takes no value: %s is read as an argument", word, next)
		}
		return fmt.Sprintf("%s takes a value only with an equals sign: %[1]s=%s", word, next)
	}
	return ""
}

// peerFlags are flags of other tools, with ours as "--name", or advice. They only serve as hints for unknown flags.
var peerFlags = map[string]string{
	"dry-run": plansIt, "dryrun": plansIt, "just-print": plansIt, "n": plansIt,
	"jobs": "--concurrency", "cores": "--concurrency", "threads": "--concurrency", "parallel": "--concurrency", "max-workers": "--concurrency", "cpus": "--concurrency",
	"keep-going": goesOn, "k": goesOn, "ignore-errors": goesOn,
	"exit-first": "--fail-fast", "stop-on-error": "--fail-fast", "x": "--fail-fast",
	"only": "--filter", "target": "--filter", "targets": "--filter", "task": "--filter", "tasks": "--filter", "until": "--filter", "select": "--filter", "t": "--filter", "single-item": "--filter",
	"rerun": "--force", "forceall": "--force", "forcerun": "--force", "no-cache": "--force", "always-make": "--force", "B": "--force", "F": "--force", "a": "--force",
	"param": "--set", "params": "--set", "set-param": "--set", "config": "--set", "p": "--set", "P": "--set", "S": "--set", "var": "--set", "e": "--set",
	"profile": "--executor", "cluster": "--executor", "slurm": "--executor", "kubernetes": "--executor",
	"limit": "--last", "tail": "--last", "lines": "--last", "max-count": "--last", "num": "--last",
	"quiet": "--progress none", "silent": "--progress none", "q": "--progress none", "s": "--progress none",
	"version": "use: e3 version", "V": "use: e3 version", "v": "use: e3 version",
	"all": allOfIt, "fix": "--repair", "format": "--json", "output-format": "--json",
	"debug": "E3_DEBUG of e3 help environment",
	"yaml":  "--json", "out": "--output", "outdir": "--output", "output-dir": "--output", "dest": "--output", "o": "--output", "snakefile": "--file", "makefile": "--file",
	"repo": repositoryFirst, "repository": repositoryFirst, "directory": repositoryFirst, "cd": repositoryFirst, "r": repositoryFirst,
	"workspace": "a workspace is an argument, as: e3 start prod", "w": "a workspace is an argument, as: e3 start prod",
}

const (
	plansIt         = "to see what would run: e3 plan"
	goesOn          = "leave it out: what does not need a failed task runs anyway, unless there is --fail-fast"
	allOfIt         = "leave it out: all tasks run that have no result yet, and with --force the others too"
	repositoryFirst = "the repository is the first argument, as: e3 status ../shop"
)

// peerAnswer is the hint of peerFlags for a command: a flag only where the command, or another one, has it. "": none.
func peerAnswer(cmd *cobra.Command, theirs string) string {
	ours := peerFlags[theirs]
	if (theirs == "f" || theirs == "file") && cmd.Name() == "lint" {
		return "its argument is a workspace; mistakes of a package file: e3 plan -f <file>"
	}
	if runs := cmd.Flags().Lookup("filter") != nil; !runs && (ours == plansIt || ours == goesOn || ours == allOfIt) {
		return ""
	}
	if ours == peerFlags["version"] && cmd.HasParent() && cmd.Parent().HasParent() {
		return ""
	}
	name, isFlag := strings.CutPrefix(ours, "--")
	if !isFlag {
		return ours
	}
	name, _, _ = strings.Cut(name, " ")
	if f := cmd.Flags().Lookup(name); f != nil {
		if f.Shorthand != "" {
			return fmt.Sprintf("use: %s, or -%s", ours, f.Shorthand)
		}
		return "use: " + ours
	}
	if others := commandsWith(cmd.Root(), name); others != "" {
		return fmt.Sprintf("that is %s of %s; see: %s --help", ours, others, cmd.CommandPath())
	}
	return ""
}
