package main

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/pflag"

	"e3/internal/format/value"
	"e3/internal/repo"
	"e3/workspace"
)

// setFlag is the flag that gives inputs values for one run.
func setFlag(f *pflag.FlagSet, set *[]string) {
	f.StringArrayVar(set, "set", nil, "name=value: give an input or parameter a value for this run only (JSON, other text is a string, @path is a file; repeatable)")
}

// overridesOf reads the arguments of --set.
func overridesOf(args []string) ([]workspace.Override, error) {
	var list []workspace.Override
	for _, arg := range args {
		name, text, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return nil, usagef("--set is name=value, as k=4 or train.rate=0.1, not %q", arg)
		}
		o := workspace.Override{Name: name, Text: text}
		if path, is := strings.CutPrefix(text, "@"); is {
			if o.Path = path; path == "" {
				return nil, usagef("--set %s: name the file after @", name)
			}
			list = append(list, o)
			continue
		}
		v, err := value.ParseJSON([]byte(text))
		switch {
		case err == nil:
			o.Value = v
		case json.Valid([]byte(text)):
			return nil, usagef("--set %s: %v", name, err)
		default:
			o.Value = text
		}
		list = append(list, o)
	}
	return list, nil
}

// branchAs makes the workspace that --as names, and returns the workspace to start.
func branchAs(ctx context.Context, a *app, r *repo.Repo, ws string, o *startOptions, settings *workspace.StartOptions) (string, error) {
	if o.as == "" {
		return ws, nil
	}
	if err := checkName("workspace", o.as); err != nil {
		return "", err
	}
	told, warnings, err := r.Workspaces.Deployer.Branch(ctx, ws, o.as, settings.Set)
	if err != nil {
		return "", unfollowed(shown(r.Location, r), err)
	}
	with := ""
	if len(told) > 0 {
		with = " with " + told.String()
	}
	a.warn(warnings)
	a.Notef("Made workspace %s from %s%s", o.as, ws, with)
	settings.Set, settings.From, settings.Given = nil, ws, told
	r.SayRoom("") // its package has the rooms already
	return o.as, nil
}
