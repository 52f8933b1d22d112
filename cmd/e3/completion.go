package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"e3/internal/format/record"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/workspace"
)

// A completer finds what an argument may be in a repository; args are those after the repository.
type completer func(ctx context.Context, r *repo.Repo, args []string, word string) []cobra.Completion

// complete completes the arguments of a command. The repository comes first or is left out, so
// the first argument may be either.
func (a *app) complete(cmd *cobra.Command, args []string, word string, find completer) ([]cobra.Completion, cobra.ShellCompDirective) {
	location := a.location()
	directive := cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 && isLocation(args[0]) {
		location, args = args[0], args[1:]
	} else if len(args) == 0 && strings.ContainsAny(word, `/\~.`) && !strings.Contains(strings.TrimLeft(word, "./~"), ".") {
		directive = cobra.ShellCompDirectiveFilterDirs
	}
	r, err := a.open(cmd.Context(), location)
	if err != nil {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	defer r.Close()
	var list []cobra.Completion
	for _, c := range find(cmd.Context(), r, args, word) {
		if strings.HasPrefix(c, word) {
			list = append(list, c)
		}
	}
	if len(list) > 0 && strings.HasSuffix(list[0], ".") {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return list, directive
}

func (a *app) completeWorkspace(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.complete(cmd, args, word, func(ctx context.Context, r *repo.Repo, args []string, _ string) []cobra.Completion {
		if len(args) > 0 {
			return nil
		}
		return workspaces(ctx, r)
	})
}

func (a *app) completeDeploy(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	list, directive := a.complete(cmd, args, word, func(ctx context.Context, r *repo.Repo, args []string, _ string) []cobra.Completion {
		if len(args) == 0 {
			return workspaces(ctx, r)
		}
		all, err := r.Workspaces.Packages.List(ctx)
		if err != nil || len(args) > 1 {
			return nil
		}
		var names []cobra.Completion
		for _, p := range all {
			names = append(names, p.String())
		}
		return names
	})
	if len(list) == 0 && len(args) > 0 {
		directive = cobra.ShellCompDirectiveDefault // a package file
	}
	return list, directive
}

// The parts of a workspace that a command can name.
func (a *app) completeDataset(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.completeIn(cmd, args, word, func(d workspace.DatasetRow) string { return d.Name })
}

func (a *app) completeTask(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.completeIn(cmd, args, word, func(d workspace.DatasetRow) string { return d.Task })
}

func (a *app) completeInput(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.completeIn(cmd, args, word, func(d workspace.DatasetRow) string {
		if _, variable := record.VariableOf(d.Name); d.Output || variable {
			return ""
		}
		return d.Name
	})
}

// completeIn completes <workspace>.<name>: first the workspace, then what is in it, by the name that it goes by.
func (a *app) completeIn(cmd *cobra.Command, args []string, word string, named func(workspace.DatasetRow) string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.complete(cmd, args, word, func(ctx context.Context, r *repo.Repo, args []string, word string) []cobra.Completion {
		if len(args) > 0 {
			return nil
		}
		ws, _, inside := strings.Cut(word, ".")
		if !inside {
			var list []cobra.Completion
			for _, name := range workspaces(ctx, r) {
				list = append(list, name+".")
			}
			return list
		}
		rows, err := r.Workspaces.Names(ctx, ws)
		if err != nil {
			return nil
		}
		var list []cobra.Completion
		for _, d := range rows {
			if name := named(d); name != "" {
				list = append(list, ws+"."+name)
			}
		}
		return list
	})
}

// offeredRuns is how many runs are offered: who wants an older one knows its id.
const offeredRuns = 100

// completeRuns makes a flag complete the ids of runs of the workspace that the arguments name, the latest first.
func (a *app) completeRuns(cmd *cobra.Command, flag string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list, _ := a.complete(cmd, args, word, func(ctx context.Context, r *repo.Repo, args []string, _ string) []cobra.Completion {
			var ids []cobra.Completion
			if len(args) == 0 {
				return ids
			}
			ws, _, _ := strings.Cut(args[0], ".")
			for run, err := range r.Workspaces.Runs(ctx, ws) {
				if err != nil || len(ids) == offeredRuns {
					break
				}
				ids = append(ids, run.RunID+"\t"+run.Status()+" "+human.Stamp(run.StartedAt))
			}
			return ids
		})
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	})
	if err != nil {
		panic(err) // the flag exists, and has no other function
	}
}

func workspaces(ctx context.Context, r *repo.Repo) []cobra.Completion {
	names, err := r.Workspaces.List(ctx)
	if err != nil {
		return nil
	}
	return names
}
