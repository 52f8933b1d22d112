package main

import "github.com/spf13/cobra"

// answers registers what a command shows with --json: a value of each type that it may reply with. doc/json.md is generated
// from these types, the comments on their fields included, and tests refuse a reply of another type.
func (a *app) answers(cmd *cobra.Command, of ...any) *cobra.Command {
	if a.shown == nil {
		a.shown = map[*cobra.Command][]any{}
	}
	a.shown[cmd] = append(a.shown[cmd], of...)
	return cmd
}

// lines is a registered answer of which a command writes many, one a line.
type lines struct{ of any }
