package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"e3/internal/manifest"
	"e3/internal/repo"
	"e3/internal/settings"
)

// A repoSetting is one thing that a repository can be told.
type repoSetting struct {
	name  string
	about string
	get   func(*settings.Settings) any // for programs; its usual text is for people
	set   func(*settings.Settings, string) error
}

// repoSettings are in the order in which they are listed.
func repoSettings() []repoSetting {
	return []repoSetting{{
		name:  "require-signed",
		about: "only exports that a trusted key has signed may come in",
		get:   func(s *settings.Settings) any { return s.RequireSigned },
		set:   func(s *settings.Settings, text string) error { return parseBool(text, &s.RequireSigned) },
	}, {
		name:  "events-retention",
		about: "how long the events of runs are kept: a length of time like 90d, or never to remove none",
		get:   func(s *settings.Settings) any { return cmp.Or(s.EventsRetention, settings.DefaultRetention) },
		set: func(s *settings.Settings, text string) error {
			if _, err := settings.ParseRetention(text); err != nil {
				return err
			}
			s.EventsRetention = text
			return nil
		},
	}}
}

func parseBool(text string, v *bool) error {
	if text != "true" && text != "false" {
		return fmt.Errorf("want true or false, not %q", text)
	}
	*v = text == "true"
	return nil
}

func newSettings(a *app) *cobra.Command {
	all := repoSettings()
	var about strings.Builder
	t := &table{}
	for _, s := range all {
		t.row(s.name, s.about)
	}
	t.write(&about, "  ")
	return &cobra.Command{
		Use:   "settings [repo] [name [value]]",
		Short: "Show or change the settings of a repository",
		Long:  "Show the settings of a repository, show one, or change it. Whoever works with the repository is bound by them.\n\nSettings:\n" + strings.TrimRight(about.String(), "\n"),
		Example: `  e3 settings .
  e3 settings . require-signed true
  e3 settings . events-retention 30d`,
		RunE: func(cmd *cobra.Command, args []string) error {
			location, rest, err := a.positional(cmd, args, 2, "<name>", "<value>")
			if err != nil {
				return err
			}
			return a.settings(cmd.Context(), location, rest[0], rest[1], all)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return a.complete(cmd, args, word, func(_ context.Context, _ *repo.Repo, args []string, _ string) []cobra.Completion {
				if len(args) > 0 {
					return nil
				}
				return settingNames(all)
			})
		},
	}
}

func settingNames(all []repoSetting) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].name
	}
	return names
}

// settingJSON is a setting in answers for programs.
type settingJSON struct {
	Name  string `json:"name"`
	Value any    `json:"value"`
}

func (a *app) settings(ctx context.Context, location, name, value string, all []repoSetting) error {
	var one *repoSetting
	if name != "" {
		var err error
		if one, err = findSetting(name, all); err != nil {
			return err
		}
	}
	r, err := a.open(location)
	if err != nil {
		return err
	}
	defer r.Close()
	if value != "" {
		s, err := settings.Update(ctx, r.Records, func(s *settings.Settings) error {
			if err := one.set(s, value); err != nil {
				return usagef("%s: %w", name, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if name == "require-signed" {
			a.warnUnimportable(s)
		}
		return a.reply(settingJSON{name, one.get(s)}, func(w io.Writer) { fmt.Fprintf(w, "%s is %v\n", name, one.get(s)) })
	}
	s, err := settings.Get(ctx, r.Records)
	if err != nil {
		return err
	}
	if one != nil {
		return a.reply(settingJSON{name, one.get(s)}, func(w io.Writer) { fmt.Fprintln(w, one.get(s)) })
	}
	doc := struct {
		Settings []settingJSON `json:"settings"`
	}{}
	t := &table{}
	for _, one := range all {
		doc.Settings = append(doc.Settings, settingJSON{one.name, one.get(s)})
		t.row(one.name, fmt.Sprint(one.get(s)), one.about)
	}
	return a.reply(doc, func(w io.Writer) { t.write(w, "") })
}

func findSetting(name string, all []repoSetting) (*repoSetting, error) {
	for i := range all {
		if all[i].name == name {
			return &all[i], nil
		}
	}
	if guess := manifest.Nearest(name, settingNames(all)); guess != "" {
		return nil, usagef("there is no setting %q; did you mean %q?", name, guess)
	}
	return nil, usagef("there is no setting %q; see: e3 settings --help", name)
}
