package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"e3/internal/format/manifest"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/workspace"
)

// isPackageFile reports whether an argument names a YAML file that is here. The usual name means one even where there
// is none.
func isPackageFile(arg string) bool {
	if ext := filepath.Ext(arg); ext != ".yaml" && ext != ".yml" {
		return false
	}
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular() || strings.TrimSuffix(filepath.Base(arg), filepath.Ext(arg)) == strings.TrimSuffix(manifest.FileName, ".yaml")
}

// noFile is the error for a package file that is not there. Another one in its folder, or its like in one above, is
// probably meant.
func noFile(file string, err error) error {
	files, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*.y*ml"))
	usual := filepath.Join(filepath.Dir(file), manifest.FileName)
	guess := notation.Nearest(file, slices.Values(files))
	if guess == "" && slices.Contains(files, usual) && filepath.Clean(file) != usual {
		guess = usual
	}
	for above, depth := "..", 0; guess == "" && !filepath.IsAbs(file) && depth < 8; above, depth = filepath.Join("..", above), depth+1 {
		if info, err := os.Stat(filepath.Join(above, file)); err == nil && info.Mode().IsRegular() {
			guess = filepath.Join(above, file)
		}
	}
	if guess != "" {
		return usagef("package file: %w; did you mean %s?", err, guess)
	}
	return usagef("package file: %w", err)
}

// refuseFiles refuses a package file among the arguments of a command that takes workspaces.
func refuseFiles(cmd *cobra.Command, args []string, names []string) error {
	if len(names) != 1 || names[0] != "[workspace]" && names[0] != "<workspace>" {
		return nil
	}
	i := slices.IndexFunc(args, isPackageFile)
	if i < 0 {
		return nil
	}
	file := human.Quoted(args[i])
	if f := cmd.Flags().Lookup("file"); f != nil {
		return usagef("%s is a package file, and the argument of %s is a workspace: for the file write: %[2]s -f %[1]s", file, cmd.CommandPath())
	}
	return usagef("%s is a package file, and the argument of %s is a workspace: see their names with: e3 list; mistakes of the file: e3 plan -f %[1]s", file, cmd.CommandPath())
}

// checkArguments refuses arguments that cannot be what the command takes at their places: more than it takes, and two
// where the first is a name, though it is the repository's place.
func (a *app) checkArguments(cmd *cobra.Command, args []string, names ...string) error {
	if err := refuseFiles(cmd, args, names); err != nil {
		return err
	}
	also := "" // more likely than what follows
	if text := loose(cmd, a.typed); text != "" {
		also = text + "; "
	}
	required := len(names)
	for required > 0 && strings.HasPrefix(names[required-1], "[") {
		required--
	}
	path := cmd.CommandPath()
	switch {
	case cmd.Flags().Lookup("set") != nil && len(args) > 1 && !isLocation(args[len(args)-1]) && strings.Contains(args[len(args)-1], "="):
		return usagef("%s is no argument of %s: a value is given with --set %[1]s", human.Quoted(args[len(args)-1]), path)
	case len(args) == len(names)+2 && isLocation(args[0]) && strings.Contains(names[0], ".") && notation.ValidName(args[1]):
		rest := append([]string{args[0], args[1] + "." + args[2]}, args[3:]...)
		return usagef("a workspace and its %s are one word, as: %s %s", strings.Trim(names[0][strings.Index(names[0], ".")+1:], "<>[]"), path, strings.Join(quotedAll(rest), " "))
	case len(args) > len(names)+1:
		return usagef("%s%s takes at most %s, got %d; see: %[2]s --help", also, path, human.Count(len(names)+1, "argument"), len(args))
	case len(args) > 0 && len(args) < required && names[len(args)] == "<value>" && strings.Contains(args[len(args)-1], "="):
		name, value, _ := strings.Cut(args[len(args)-1], "=")
		return usagef("the value is an argument of its own, as: %s %s %s", path, human.Quoted(name), human.Quoted(value))
	case len(args) < required:
		return usagef("%s%s needs %s; see: %[2]s --help", also, path, strings.Join(names[len(args):required], " and "))
	case required > 0 && len(args) == required && (strings.Trim(args[0], "./") == "" || repo.IsURL(args[0])):
		return usagef("%s%s needs %s after the repository; see: %[2]s --help", also, path, names[required-1])
	case len(args) == required || len(args) <= len(names) && !isLocation(args[0]) || !a.nameForRepository(args[0]):
		return nil
	}
	word := args[0]
	if len(args) == 1 && len(names) > 0 {
		return nil
	}
	if info, err := os.Stat(word); err == nil && !info.IsDir() && len(args) > 1 {
		return usagef("the first of %s is the repository, and %s is a file; see: %s --help", human.Count(len(args), "argument"), human.Quoted(word), path)
	}
	fault := fmt.Sprintf("the first of %s is the repository, and there is none at %q", human.Count(len(args), "argument"), word)
	if also != "" {
		return usagef("%s; see: %s --help", strings.TrimSuffix(also, "; "), path)
	}
	if len(names) == 0 {
		return fmt.Errorf("there is no repository at %q: %s takes no other argument, and that one may be left out%w", word, path, quiet{repo.ErrNoRepository})
	}
	return misplaced(fault, path, cmd, args, names)
}

// misplaced says what is probably meant by arguments of which the first is a name in the place of the repository.
func misplaced(fault, path string, cmd *cobra.Command, args, names []string) error {
	word := args[0]
	_, inside, joined := strings.Cut(names[0], ".")
	switch {
	case isLocation(args[1]):
		return usagef("%s: the repository comes first, as: %s %s %s", fault, path, human.Quoted(args[1]), human.Quoted(word))
	case joined && len(args) > 2 && slices.Contains(names, "<value>") && !manifest.ValidInputName(args[1]):
		return usagef("%s: a value with spaces is quoted, as: %s %s %s", fault, path, human.Quoted(word), human.Quoted(strings.Join(args[1:], " ")))
	case joined && !strings.Contains(word, "."):
		rest := strings.Join(append([]string{human.Quoted(word + "." + args[1])}, quotedAll(args[2:])...), " ")
		return usagef("%s: a workspace and its %s are one word, as: %s %s", fault, strings.Trim(inside, "<>[]"), path, rest)
	case cmd.Flags().Lookup("filter") != nil:
		return usagef("%s: %s takes one workspace; for some of its tasks: %[2]s %s --filter %s", fault, path, human.Quoted(word), human.Quoted(args[1]))
	case cmd.Flags().Lookup("run") != nil && strings.Trim(args[1], "0123456789abcdef-") == "":
		return usagef("%s: %s takes one workspace; for one of its runs: %[2]s %s --run %s", fault, path, human.Quoted(word), human.Quoted(args[1]))
	case names[0] == "[workspace]" && !joined && notation.ValidName(word):
		return usagef("%s: %s takes one workspace; for one of its tasks: e3 logs %s", fault, path, human.Quoted(word+"."+args[1]))
	}
	return usagef("%s: %s takes only %s beside it; see: %[2]s --help", fault, path, strings.Join(names, " and "))
}

func quotedAll(args []string) []string {
	list := make([]string, len(args))
	for i, arg := range args {
		list[i] = human.Quoted(arg)
	}
	return list
}

// nameForRepository reports whether an argument in the repository's place is something else: a file that is here, or a
// name that is not, while there is a repository without it.
func (a *app) nameForRepository(arg string) bool {
	head, _, _ := strings.Cut(arg, ".")
	if head, _, _ = strings.Cut(head, "["); !notation.ValidName(head) || repo.IsURL(arg) {
		return false
	}
	if strings.ContainsAny(arg, `/\`) {
		return false
	}
	if info, err := os.Stat(arg); err == nil {
		return !info.IsDir()
	}
	location := a.location()
	if repo.IsURL(location) {
		return true
	}
	_, err := repo.Find(location)
	return err == nil
}

// placesOf names the commands below others that have a name: "e3 workspace export, or e3 package export"; "" if none has.
func placesOf(root *cobra.Command, word string) string {
	var list []string
	for _, family := range root.Commands() {
		for _, sub := range family.Commands() {
			if sub.IsAvailableCommand() && sub.Name() == word && family.Name() != "completion" {
				list = append(list, sub.CommandPath())
			}
		}
	}
	slices.SortFunc(list, func(a, b string) int { // that of workspaces is used most
		return strings.Compare(b, a)
	})
	return strings.Join(list, ", or ")
}

// checkHere refuses to work in a folder that is gone: every relative name means nothing.
func checkHere() error {
	if _, err := os.Getwd(); errors.Is(err, fs.ErrNotExist) {
		return usagef("the folder that this command was called in is gone: it was removed, or moved and made anew; cd to one that exists")
	}
	return nil
}

// pathHint says of a file that is not there why its name may be wrong: "~" in quotes, an input that has the name of
// another tool's way to give it.
func pathHint(err error) string {
	var gone *fs.PathError
	path := ""
	if errors.As(err, &gone) {
		path = gone.Path
	} else if text := err.Error(); strings.Contains(text, " ~/") {
		path = "~/"
	}
	switch {
	case strings.HasPrefix(path, "~"), strings.Contains(path, "/~/"):
		return "a shell replaces ~ only at the beginning of a word, without quotes; elsewhere write $HOME"
	case path == "-":
		return "it is not read from standard input: name a file"
	case repo.IsURL(path):
		return "it is read from this machine alone: download it first"
	}
	return ""
}

// unknownHint says what may be meant by a name that is not there.
func unknownHint(unknown *workspace.UnknownError) string {
	name, known := unknown.Name, slices.Values(unknown.Known)
	if guess := notation.Nearest(name, known); guess != "" {
		return fmt.Sprintf("did you mean %q?", guess)
	}
	switch head, rest, ok := strings.Cut(name, "."); {
	case !ok:
	case unknown.What == "workspace" && slices.Contains(unknown.Known, head) && !strings.Contains(rest, "."):
		return fmt.Sprintf("%s is a workspace, and this takes one as a whole; for some of its tasks see --filter of e3 start and e3 plan, for one: e3 logs, e3 why, e3 history", head)
	case unknown.What == "input" && slices.Contains(unknown.Known, rest):
		return fmt.Sprintf("did you mean %q?", rest)
	}
	if text := familyHint(unknown); text != "" {
		return text
	}
	if ours := peerVerbs[name]; slices.Contains(unknown.Known, ours) {
		return fmt.Sprintf("did you mean %q?", ours)
	}
	if _, rest, cut := cutAny(name, "/:"); cut && slices.Contains(unknown.Known, rest) {
		return fmt.Sprintf("did you mean %q?", rest)
	}
	if strings.Contains(name, ",") && !strings.Contains(name, "[") && len(unknown.Known) > 0 {
		return "this is one name or pattern, with * and ?, and no list with commas; there are: " + human.Few(unknown.Known)
	}
	if unknown.What == "workspace" && (strings.HasSuffix(name, ".zip") || strings.HasSuffix(name, ".yaml")) {
		return fmt.Sprintf("%s looks like a file, and this is the place of a workspace; there are: %s", name, human.Few(unknown.Known))
	}
	for _, word := range unknown.Known {
		if len(name) > 2 && strings.HasPrefix(word, name) && unknown.What != "run" {
			return fmt.Sprintf("did you mean %q?", word)
		}
	}
	return ""
}

// familyHint says which matrix, or which tasks before a pattern's *, may be meant by the name of a task; "" if none is like it.
func familyHint(unknown *workspace.UnknownError) string {
	if unknown.What != "task" {
		return ""
	}
	families := map[string]bool{}
	for _, task := range unknown.Known {
		families[runview.FamilyOf(task)] = true
	}
	word, rest := unknown.Name, ""
	if i := strings.IndexAny(word, "[*?"); i > 0 {
		word, rest = word[:i], word[i:]
	}
	if guess := notation.Nearest(word, maps.Keys(families)); guess != "" {
		return fmt.Sprintf("did you mean %q?", guess+rest)
	}
	return ""
}
