package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/notation"
	"e3/internal/human"
	"e3/internal/pkgref"
	"e3/internal/repo"
	"e3/workspace"
)

func newPackage(a *app) *cobra.Command {
	cmd := family(&cobra.Command{
		Use:   "package",
		Short: "Build, list and remove packages",
		Long: `A package is a package file with the content that its inputs had when it was built, under a name and a version.
A package never changes, and a workspace deployed from it does not follow the file.`,
	})
	cmd.AddCommand(newPackageBuild(a), newPackageList(a), newPackageRemove(a), newPackageExport(a), newPackageImport(a))
	return cmd
}

// builtPackage is a package that was registered.
type builtPackage struct {
	workspace.PackageRef
	Tasks  int `json:"tasks,omitempty"`
	Inputs int `json:"inputs,omitempty"`
}

func newPackageBuild(a *app) *cobra.Command {
	var as string
	cmd := &cobra.Command{
		Use:   "build [repo] <file>",
		Short: "Register a package file with its inputs under its name and version",
		Long: `Register a package file, with the content of its inputs, under its name and version. "-" reads the file,
YAML or JSON, from standard input; its paths are then relative to this folder.

A registered package never changes: other content under an existing name and version is refused.`,
		Example: `  e3 package build . e3.yaml
  generate-pipeline | e3 package build . - --as nightly@2024.1`,
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
			return packageBuild(ctx, a, r, args[0], as)
		}, "<file>"),
	}
	cmd.Flags().StringVar(&as, "as", "", "another name and version than the file gives, as name@version")
	return a.answers(cmd, builtPackage{})
}

func packageBuild(ctx context.Context, a *app, r *repo.Repo, file, as string) error {
	name, version, err := splitAs(as)
	if err != nil {
		return err
	}
	def, base, err := a.definition(file)
	if err != nil {
		return err
	}
	if as != "" {
		def.Name, def.Version = name, version
	}
	collectOften()
	built, err := r.Workspaces.Deployer.BuildDefinition(ctx, def, base)
	if err != nil {
		return err
	}
	a.warn(built.Warnings)
	ref := workspace.PackageRef{Name: def.Name, Version: def.Version, Hash: built.Hash}
	err = r.Workspaces.Packages.Add(ctx, ref)
	if errors.Is(err, workspace.ErrExists) {
		return fmt.Errorf("%w; give the package another version, or --as another name", err)
	}
	if err != nil {
		return err
	}
	doc := builtPackage{ref, len(built.Package.Tasks), len(built.Package.Inputs)}
	return a.Reply(doc, func(w *render.Sheet) {
		w.Line("Built %s (%s, %s)", ref, human.Count(doc.Tasks, "task"), human.Count(doc.Inputs, "input"))
	})
}

// splitAs reads the argument of --as.
func splitAs(as string) (name, version string, err error) {
	if as == "" {
		return "", "", nil
	}
	name, version = pkgref.Split(as)
	if !notation.ValidName(name) || !notation.ValidVersion(version) {
		return "", "", usagef("--as is name@version, not %q", as)
	}
	return name, version, nil
}

func newPackageList(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   "list [repo]",
		Short: "List the registered packages",
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, _ []string) error {
			all, err := r.Workspaces.Packages.ListAll(ctx)
			if err != nil {
				return err
			}
			return a.Reply(packageList{all}, func(w *render.Sheet) {
				t := &render.Table{}
				for _, p := range all {
					note := ""
					if p.NotRunnable != "" {
						note = "not runnable here: " + p.NotRunnable
					}
					t.Row(p.String(), prefix(p.Hash, 12), note)
				}
				w.Table(t, "")
			})
		}),
	}, packageList{})
}

// packageList are the registered packages.
type packageList struct {
	Packages []workspace.ListedPackage `json:"packages"`
}

func newPackageRemove(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   "remove [repo] <name[@version]>",
		Short: "Remove a package from the register",
		Long: `Remove a package from the register. Workspaces that have it deployed keep it. The version may be left out if only one
is registered.`,
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
			name, version := pkgref.Split(args[0])
			p, err := r.Workspaces.Packages.Remove(ctx, name, version)
			if err != nil {
				return err
			}
			return a.Reply(p, func(w *render.Sheet) { w.Line("Removed %s", p) })
		}, "<name[@version]>"),
	}, workspace.PackageRef{})
}
