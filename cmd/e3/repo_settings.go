package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/manifest"
	"e3/internal/human"
	"e3/internal/jobs/queue"
	"e3/internal/repo"
	"e3/internal/settings"
	"e3/workspace"
)

// A repoSetting is one setting of a repository.
type repoSetting struct {
	name  string
	about string
	get   func(*repo.Repo, *settings.Settings) any // for programs; its default format is the text form
	set   func(*settings.Settings, string) error
	// demand changes a setting that is stored in the repository's description; nil if set changes it.
	demand func(context.Context, *repo.Repo, string) error
	of     func(workspace string) repoSetting // the same setting of one workspace; nil if it has none
	ws     string                             // whose it is; "" where it is of all
}

// repoSettings are in the order in which they are listed.
func repoSettings() []repoSetting {
	return []repoSetting{{
		name:  "require-signed",
		about: "import only exports that a trusted key has signed",
		get:   func(_ *repo.Repo, s *settings.Settings) any { return s.RequireSigned },
		set:   func(s *settings.Settings, text string) error { return parseBool(text, &s.RequireSigned) },
	}, {
		name:  "require-signed-executions",
		about: "count only results that a trusted key has signed: others are run again",
		get:   func(r *repo.Repo, _ *settings.Settings) any { return r.SignedExecutions() },
		demand: func(ctx context.Context, r *repo.Repo, text string) error {
			var require bool
			if err := parseBool(text, &require); err != nil {
				return usagef("require-signed-executions: %w", err)
			}
			return r.RequireSignedExecutions(ctx, require)
		},
	}, {
		name:  "events-retention",
		about: "how long the events of runs are kept: a duration like 90d, or never to remove none",
		get: func(_ *repo.Repo, s *settings.Settings) any {
			return cmp.Or(s.EventsRetention, settings.DefaultRetention)
		},
		set: func(s *settings.Settings, text string) error {
			if _, err := settings.ParseRetention(text); err != nil {
				return err
			}
			s.EventsRetention = text
			return nil
		},
	}, {
		name:  "room",
		about: "where tasks run that name no room, of package files that name none: open or closed",
		get:   func(_ *repo.Repo, s *settings.Settings) any { return cmp.Or(s.Room, manifest.OpenRoom.String()) },
		set: func(s *settings.Settings, text string) error {
			room, ok := manifest.ParseRoom(text)
			if !ok {
				return fmt.Errorf("want open or closed, not %q", text)
			}
			s.Room = room.String()
			return nil
		},
	}, executorSetting(""), queueSetting("")}
}

// byDefault is the value that resets a setting of one workspace, or of all.
const byDefault = "default"

// executorSetting is the executor of a workspace's tasks, or, if ws is "", of workspaces without their own setting.
func executorSetting(ws string) repoSetting {
	return repoSetting{
		name:  "executor",
		about: "what executes tasks: local (the process of e3 start), workers (e3 worker), or a scheduler: e3 executor list",
		get:   func(_ *repo.Repo, s *settings.Settings) any { return s.RunsOf(ws).Executor },
		set: func(s *settings.Settings, text string) error {
			if err := s.SetRuns(ws, func(r *settings.Runs) { r.Executor = said(text) }); err != nil || slices.Contains(settings.Executors(), text) || said(text) == "" {
				return err
			}
			_, err := findProfile(text)
			return err
		},
		of: executorSetting,
	}
}

// queueSetting is the queue of tasks that name none.
func queueSetting(ws string) repoSetting {
	return repoSetting{
		name:  "queue",
		about: "the queue of tasks that name none",
		get:   func(_ *repo.Repo, s *settings.Settings) any { return cmp.Or(s.RunsOf(ws).Queue, queue.DefaultQueue) },
		set: func(s *settings.Settings, text string) error {
			return s.SetRuns(ws, func(r *settings.Runs) { r.Queue = said(text) })
		},
		of: queueSetting,
	}
}

func said(text string) string {
	if text == byDefault {
		return ""
	}
	return text
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
	t := &render.Table{}
	for _, s := range all {
		t.Row(s.name, s.about)
	}
	t.Write(&about, "  ")
	var user, unset bool
	cmd := &cobra.Command{
		Use:   "settings [repo] [name [value]]",
		Short: "Show or change the settings of a repository",
		Long: "Show the settings of a repository, show one, or change it. They apply to all users of the repository.\n\nSettings:\n" + strings.TrimRight(about.String(), "\n") + `

executor and queue can be said of one workspace too, as <workspace>.executor; "default" takes that back.

With --user it is about your own settings, which hold for all repositories: safe-repository lists the repositories of
other users that are used where they are found in a folder above, without being named.`,
		Example: `  e3 settings .
  e3 settings . require-signed true
  e3 settings . events-retention 30d
  e3 settings . prod.executor workers
  e3 settings --user safe-repository /srv/team`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if user {
				return userSettings(a, args, unset)
			}
			if unset {
				return usagef("--unset is for --user; a setting of the repository is given another value")
			}
			return a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
				return runSettings(ctx, a, r, args[0], args[1], all)
			}, "[name]", "[value]")(cmd, args)
		},
		ValidArgsFunction: completeFirst(a, func(context.Context, *repo.Repo, string) ([]cobra.Completion, error) { return settingNames(all), nil }),
	}
	cmd.Flags().BoolVar(&user, "user", false, "your own settings instead of the repository's")
	cmd.Flags().BoolVar(&unset, "unset", false, "with --user: remove the value")
	return a.answers(cmd, settingRow{}, settingList{}, trustedRepository{}, trustedRepositories{})
}

func settingNames(all []repoSetting) []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].name
	}
	return names
}

// A settingRow is a setting with its value.
type settingRow struct {
	Name  string `json:"name"`
	Value any    `json:"value"` // boolean or string
}

// settingList are the settings of a repository.
type settingList struct {
	Settings []settingRow `json:"settings"`
}

func runSettings(ctx context.Context, a *app, r *repo.Repo, name, value string, all []repoSetting) error {
	var one *repoSetting
	if name != "" {
		var err error
		if one, err = findSetting(name, all); err != nil {
			return err
		}
	}
	if one != nil && one.ws != "" {
		if err := checkSettable(ctx, a, r, one, value); err != nil {
			return err
		}
	}
	s, err := one.changed(ctx, r, value)
	if err != nil {
		return err
	}
	if value != "" && name == "require-signed" {
		warnUnimportable(a, s)
	} else if value != "" && one.demand != nil {
		warnUnanswered(a, r, s)
	}
	if one != nil {
		row := settingRow{name, one.get(r, s)}
		return a.Reply(row, func(w *render.Sheet) {
			if value == "" {
				fmt.Fprintln(w, row.Value)
			} else {
				fmt.Fprintf(w, "%s is %v\n", name, row.Value)
			}
		})
	}
	all = append(all, ofWorkspaces(s)...)
	doc := settingList{}
	t := &render.Table{}
	for _, one := range all {
		doc.Settings = append(doc.Settings, settingRow{one.name, one.get(r, s)})
		t.Row(one.name, fmt.Sprint(one.get(r, s)), one.about)
	}
	return a.Reply(doc, func(w *render.Sheet) { t.Write(w, "") })
}

// changed gives the setting a value, unless that is "", and returns all settings.
func (one *repoSetting) changed(ctx context.Context, r *repo.Repo, value string) (*settings.Settings, error) {
	if value != "" && one.demand == nil {
		return settings.Update(ctx, r.Records, func(s *settings.Settings) error {
			if err := one.set(s, value); err != nil {
				return usagef("%s: %w", one.name, err)
			}
			return nil
		})
	}
	if value != "" {
		if err := one.demand(ctx, r, value); err != nil {
			return nil, err
		}
	}
	return settings.Get(ctx, r.Records)
}

// checkSettable refuses a setting of a workspace that is not here: it would apply to a later one of that name. Settings
// of a removed workspace can be read and reset.
func checkSettable(ctx context.Context, a *app, r *repo.Repo, one *repoSetting, value string) error {
	names, err := r.Workspaces.List(ctx)
	if err != nil || slices.Contains(names, one.ws) {
		return err
	}
	s, err := settings.Get(ctx, r.Records)
	if err != nil {
		return err
	}
	if _, said := s.Workspaces[one.ws]; said && (value == "" || value == byDefault) {
		return nil
	}
	return &workspace.UnknownError{What: "workspace", Name: one.ws, Known: names}
}

// ofWorkspaces returns the settings that single workspaces have.
func ofWorkspaces(s *settings.Settings) []repoSetting {
	var list []repoSetting
	for _, ws := range slices.Sorted(maps.Keys(s.Workspaces)) {
		own := s.Workspaces[ws]
		add := func(one repoSetting, said string) {
			if said != "" {
				one.name, one.about = ws+"."+one.name, ""
				list = append(list, one)
			}
		}
		add(executorSetting(ws), own.Executor)
		add(queueSetting(ws), own.Queue)
	}
	return list
}

func findSetting(name string, all []repoSetting) (*repoSetting, error) {
	ws, rest, ofOne := strings.Cut(name, ".")
	for i := range all {
		one := &all[i]
		switch {
		case one.name == name:
			return one, nil
		case ofOne && one.name == rest && one.of != nil:
			if err := checkName("workspace", ws); err != nil {
				return nil, err
			}
			of := one.of(ws)
			of.name, of.ws = name, ws
			return &of, nil
		case ofOne && one.name == rest:
			return nil, usagef("%s is a setting of the repository, not of a workspace: e3 settings <repo> %[1]s", rest)
		}
	}
	if setting, value, given := strings.Cut(name, "="); given {
		return nil, usagef("there is no setting %q; a value is an argument of its own: e3 settings <repo> %s %s", name, human.Quoted(setting), human.Quoted(value))
	}
	if slices.Contains([]string{"get", "set", "list", "show", "unset"}, name) {
		return nil, usagef("there is no setting %q; e3 settings lists all, e3 settings queue shows one, e3 settings queue gpu changes it", name)
	}
	if guess := didYouMean(name, settingNames(all)); guess != "" {
		return nil, usagef("there is no setting %q%s", name, guess)
	}
	return nil, usagef("there is no setting %q; see: e3 settings --help", name)
}
