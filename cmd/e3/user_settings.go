package main

import (
	"fmt"

	"e3/cmd/e3/internal/render"
	"e3/internal/human"
	"e3/internal/repo"
)

// safeRepository is the one setting of a user.
const safeRepository = "safe-repository"

// trustedRepository is a repository of another user, and whether it is used without being named.
type trustedRepository struct {
	Repository string `json:"repository"`
	Trusted    bool   `json:"trusted"`
}

// trustedRepositories are those that are used without being named.
type trustedRepositories struct {
	Safe []string `json:"safe-repository"`
}

// userSettings shows or changes the settings of this user, which apply to all repositories.
func userSettings(a *app, args []string, unset bool) error {
	if len(args) > 0 && args[0] != safeRepository {
		return usagef("there is no setting %q of a user; there is %s", args[0], safeRepository)
	}
	switch {
	case len(args) > 2:
		return usagef("e3 settings --user takes at most a name and a value, got %q", args[2])
	case len(args) == 2:
		root, err := repo.Trust(args[1], !unset)
		if err != nil {
			return err
		}
		text := "You trust %s\n"
		if unset {
			text = "You do not trust %s any more\n"
		}
		return a.Reply(trustedRepository{root, !unset}, func(w *render.Sheet) { fmt.Fprintf(w, text, human.Line(root)) })
	case unset:
		return usagef("--unset needs the repository: e3 settings --user --unset %s <folder>", safeRepository)
	}
	list, err := repo.TrustedRepositories()
	if err != nil {
		return err
	}
	return a.Reply(trustedRepositories{append([]string{}, list...)}, func(w *render.Sheet) {
		for _, root := range list {
			fmt.Fprintf(w, "%s  %s\n", safeRepository, human.Line(root))
		}
	})
}
