package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"e3/cmd/e3/internal/render"
	"e3/internal/host/atomicfile"
	"e3/internal/human"
)

func newMan(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man",
		Short: "Write the manual pages",
		Long: `Write the manual: the page e3(1) to standard output, or with --dir a page for every command into a folder, which is
created if it does not exist.`,
		Example: `  e3 man | man -l -
  e3 man --dir /usr/local/share/man/man1`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root := cmd.Root()
			if dir == "" {
				_, err := a.Stdout.Write(manPage(a, root))
				return err
			}
			if err := os.MkdirAll(dir, 0o777); err != nil {
				return err
			}
			var files []string
			err := everyCommand(root, func(cmd *cobra.Command) error {
				name := filepath.Join(dir, pageName(cmd)+".1")
				files = append(files, name)
				return atomicfile.WriteFile(name, manPage(a, cmd), atomicfile.Options{})
			})
			if err != nil {
				return err
			}
			return a.Reply(manual{files}, func(w *render.Sheet) {
				fmt.Fprintf(w, "Wrote %s to %s\n", human.Count(len(files), "page"), human.Line(dir))
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "folder for the pages of all commands")
	return a.answers(cmd, manual{})
}

// manual is what was written with --dir.
type manual struct {
	Files []string `json:"files"`
}

// everyCommand visits a command and all available commands below it.
func everyCommand(cmd *cobra.Command, visit func(*cobra.Command) error) error {
	if err := visit(cmd); err != nil {
		return err
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			if err := everyCommand(sub, visit); err != nil {
				return err
			}
		}
	}
	return nil
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the manual page of a command in roff.
func manPage(a *app, cmd *cobra.Command) []byte {
	p := &roff{}
	p.macro("TH", strings.ToUpper(pageName(cmd)), "1", "", "e3 "+a.version(), "e3 manual")
	p.macro("SH", "NAME")
	p.text(pageName(cmd) + " - " + cmd.Short)
	topic := cmd.IsAdditionalHelpTopicCommand()
	if !topic {
		p.macro("SH", "SYNOPSIS")
		line := cmd.UseLine()
		if cmd.HasAvailableSubCommands() {
			line = cmd.CommandPath() + " <command>"
		}
		p.text(line)
	}
	p.macro("SH", "DESCRIPTION")
	if cmd.Long == "" {
		p.text(cmd.Short + ".")
	} else {
		p.text(cmd.Long)
	}
	p.flags("OPTIONS", cmd.NonInheritedFlags())
	p.flags("OPTIONS OF EVERY COMMAND", cmd.InheritedFlags())
	if cmd.HasExample() {
		p.macro("SH", "EXAMPLES")
		p.verbatim(cmd.Example)
	}
	p.related(cmd)
	return p.Bytes()
}

// roff writes the man macros.
type roff struct{ bytes.Buffer }

func (p *roff) macro(name string, args ...string) {
	p.WriteString("." + name)
	for _, arg := range args {
		fmt.Fprintf(p, ` "%s"`, strings.ReplaceAll(escapeRoff(arg), `"`, `\(dq`))
	}
	p.WriteByte('\n')
}

// text writes paragraphs; indented lines are kept unchanged.
func (p *roff) text(s string) {
	for i, paragraph := range strings.Split(s, "\n\n") {
		if i > 0 {
			p.macro("PP")
		}
		var block []string
		end := func() {
			if len(block) > 0 {
				p.verbatim(strings.Join(block, "\n"))
				block = nil
			}
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			if strings.HasPrefix(line, " ") {
				block = append(block, line)
				continue
			}
			end()
			p.line(line)
		}
		end()
	}
}

func (p *roff) line(s string) {
	s = escapeRoff(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	p.WriteString(s + "\n")
}

func (p *roff) verbatim(s string) {
	p.macro("nf")
	for line := range strings.SplitSeq(s, "\n") {
		p.line(line)
	}
	p.macro("fi")
}

func (p *roff) flags(title string, set *pflag.FlagSet) {
	if !set.HasAvailableFlags() {
		return
	}
	p.macro("SH", title)
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := `\fB` + escapeRoff("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			name = `\fB` + escapeRoff("-"+f.Shorthand) + `\fR, ` + name
		}
		if kind != "" {
			name += ` \fI` + escapeRoff(kind) + `\fR`
		}
		p.macro("TP")
		p.WriteString(name + "\n")
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "[]" {
			usage += " (default " + f.DefValue + ")"
		}
		p.line(usage)
	})
}

func (p *roff) related(cmd *cobra.Command) {
	var names []string
	if cmd.HasParent() {
		names = append(names, pageName(cmd.Parent()))
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			names = append(names, pageName(sub))
		}
	}
	if len(names) == 0 {
		return
	}
	p.macro("SH", "SEE ALSO")
	for i, name := range names {
		end := ","
		if i == len(names)-1 {
			end = ""
		}
		p.WriteString(`.BR ` + escapeRoff(name) + ` (1)` + end + "\n")
	}
}

// escapeRoff escapes characters that roff would interpret, and keeps hyphens as hyphens.
var escapeRoff = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `…`, `\[u2026]`, `’`, `\(cq`, `→`, `\(->`).Replace
