package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/human"
	"e3/internal/repo"
)

func newImageList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [repo] [image]",
		Short: "List the images of a package file and of the repository, and what uses them",
		Long: `List the images of a package file, with the digest that each name is pinned to, and whether the repository has them. Further images
of the repository's workspaces and registered packages follow, by their digests. For each image the list names the workspaces and
packages whose tasks run in it. Nothing is fetched.`,
		Example: `  e3 image list
  e3 image list --json`,
	}
	var file string
	cmd.RunE = a.on(a.openToRead, func(ctx context.Context, r *repo.Repo, args []string) error {
		refs, base, err := imagesNamed(file, args[0])
		if errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("file") { // those of the repository, then
			refs, base, err = nil, ".", nil
		}
		if err != nil {
			return err
		}
		list, unread, err := repo.ListImages(ctx, r, base, refs, args[0] == "")
		if err != nil {
			return err
		}
		if unread != nil {
			a.Warnf("what uses images is not known in full: %v", unread)
		}
		return a.Reply(list, func(w *render.Sheet) { writeUsedImages(w, list) })
	}, "[image]")
	imageFile(cmd, &file)
	return a.answers(cmd, []repo.UsedImage{})
}

func writeUsedImages(w *render.Sheet, list []repo.UsedImage) {
	if len(list) == 0 {
		w.Line("no images")
	}
	for i := range list {
		writeListed(w, &list[i].Image)
		for _, u := range list[i].UsedBy {
			user := "workspace " + u.Workspace
			if u.Workspace == "" {
				user = "package " + u.Package
			}
			w.Line("  used by %s: %s", user, human.Few(u.Tasks))
		}
	}
}
