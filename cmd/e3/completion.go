package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
)

// A completer finds the possible values of an argument in a repository; args are the arguments after the repository. If
// it fails, nothing is offered.
type completer func(ctx context.Context, r *repo.Repo, args []string, word string) ([]cobra.Completion, error)

// completion completes the arguments of a command. The repository comes first or is left out, so
// the first argument may be either.
func completion(a *app, find completer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		location := a.location()
		directive := cobra.ShellCompDirectiveNoFileComp
		if len(args) > 0 && isLocation(args[0]) {
			location, args = args[0], args[1:]
		} else if len(args) == 0 && strings.ContainsAny(word, `/\~.`) && !strings.Contains(strings.TrimLeft(word, "./~"), ".") {
			directive = cobra.ShellCompDirectiveFilterDirs
		}
		r, err := a.openToRead(cmd.Context(), location)
		if err != nil {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
		defer r.Close()
		found, err := find(cmd.Context(), r, args, word)
		if err != nil {
			found = nil
		}
		list := slices.DeleteFunc(found, func(c cobra.Completion) bool { return !strings.HasPrefix(c, word) })
		if len(list) > 0 && strings.HasSuffix(list[0], ".") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return list, directive
	}
}

// completeFirst completes the first argument after the repository.
func completeFirst(a *app, names func(ctx context.Context, r *repo.Repo, word string) ([]cobra.Completion, error)) cobra.CompletionFunc {
	return completion(a, func(ctx context.Context, r *repo.Repo, args []string, word string) ([]cobra.Completion, error) {
		if len(args) > 0 {
			return nil, nil
		}
		return names(ctx, r, word)
	})
}

func completeWorkspace(a *app) cobra.CompletionFunc {
	return completeFirst(a, func(ctx context.Context, r *repo.Repo, _ string) ([]cobra.Completion, error) {
		return r.Workspaces.List(ctx)
	})
}

func completeQueue(a *app) cobra.CompletionFunc {
	return completeFirst(a, func(ctx context.Context, r *repo.Repo, _ string) ([]cobra.Completion, error) {
		return r.Queue().Queues(ctx)
	})
}

// completeDeploy completes a workspace, then a package.
func completeDeploy(a *app) cobra.CompletionFunc {
	find := completion(a, func(ctx context.Context, r *repo.Repo, args []string, _ string) (names []cobra.Completion, err error) {
		switch len(args) {
		case 0:
			return r.Workspaces.List(ctx)
		case 1:
			all, err := r.Workspaces.Packages.List(ctx)
			for _, p := range all {
				names = append(names, p.String())
			}
			return names, err
		}
		return nil, nil
	})
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list, directive := find(cmd, args, word)
		if len(list) == 0 && len(args) > 0 {
			directive = cobra.ShellCompDirectiveDefault // a package file
		}
		return list, directive
	}
}

// The parts of a workspace that a command can name.
func completeDataset(a *app) cobra.CompletionFunc {
	return completeIn(a, func(d workspace.DatasetRow) string { return d.Name })
}

func completeTask(a *app) cobra.CompletionFunc {
	return completeIn(a, func(d workspace.DatasetRow) string { return d.Task })
}

func completeInput(a *app) cobra.CompletionFunc {
	return completeIn(a, func(d workspace.DatasetRow) string {
		if d.Output {
			return ""
		}
		return d.Name
	})
}

// completeIn completes <workspace>.<name>: first the workspace, then the names in it. The names in the workspace that need
// not be named are offered without it, too.
func completeIn(a *app, named func(workspace.DatasetRow) string) cobra.CompletionFunc {
	return completeFirst(a, func(ctx context.Context, r *repo.Repo, word string) ([]cobra.Completion, error) {
		var list []cobra.Completion
		ws, prefix, all, err := meant(ctx, r, word)
		if ws != "" {
			var rows []workspace.DatasetRow
			rows, err = r.Workspaces.Datasets.Names(ctx, ws)
			for _, d := range rows {
				if name := named(d); name != "" {
					list = append(list, prefix+name)
				}
			}
		}
		if prefix != "" {
			return list, err
		}
		for _, name := range all {
			list = append(list, name+".")
		}
		return list, nil
	})
}

// meant returns the workspace that a word names, with the prefix that does, or the one that need not be named; "" if there is
// none. all are the workspaces.
func meant(ctx context.Context, r *repo.Repo, word string) (ws, prefix string, all []string, err error) {
	all, err = r.Workspaces.List(ctx)
	if err != nil || len(all) == 0 {
		return "", "", nil, err
	}
	if head, _, inside := strings.Cut(word, "."); inside && slices.Contains(all, head) {
		return head, head + ".", all, nil
	}
	if len(all) == 1 {
		return all[0], "", all, nil
	}
	ws, err = r.Workspaces.Deployer.Main(ctx, all)
	return ws, "", all, err
}

// offeredRuns is the number of runs that are offered: the id of an older one has to be typed.
const offeredRuns = 100

// completeRuns makes a flag complete the ids of runs of the workspace that the arguments name, the latest first.
func completeRuns(a *app, cmd *cobra.Command, flag string) {
	find := completion(a, func(ctx context.Context, r *repo.Repo, args []string, _ string) (ids []cobra.Completion, err error) {
		word := "."
		if len(args) > 0 {
			word = args[0] + "."
		}
		ws, _, _, err := meant(ctx, r, word)
		if err != nil || ws == "" {
			return nil, err
		}
		for run, err := range r.Workspaces.Runs.List(ctx, ws) {
			if err != nil || len(ids) == offeredRuns {
				break
			}
			ids = append(ids, run.RunID+"\t"+run.Status()+" "+human.Stamp(run.StartedAt))
		}
		return ids, nil
	})
	completeFlag(cmd, flag, func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list, _ := find(cmd, args, word)
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	})
}

// completeQueues makes a flag complete the names of queues.
func completeQueues(a *app, cmd *cobra.Command, flag string) {
	find := completion(a, func(ctx context.Context, r *repo.Repo, _ []string, _ string) ([]cobra.Completion, error) {
		return r.Queue().Queues(ctx)
	})
	completeFlag(cmd, flag, func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list, _ := find(cmd, args[:min(len(args), 1)], word)
		return list, cobra.ShellCompDirectiveNoFileComp
	})
}

// completeFlag gives a flag the function that completes its value.
func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag exists, and has no other function
	}
}
