package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/human"
	"e3/internal/images"
	"e3/internal/repo"
	"e3/workspace"
)

// imageUserJSON is a workspace or a registered package whose tasks run in an image.
type imageUserJSON struct {
	Workspace string   `json:"workspace,omitempty"` // none: the package is registered
	Package   string   `json:"package"`
	Tasks     []string `json:"tasks"`
}

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
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		location, rest, err := a.positional(cmd, args, 1, "<image>")
		if err != nil {
			return err
		}
		refs, base, err := imagesNamed(file, rest[0])
		if errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("file") { // those of the repository, then
			refs, base, err = nil, ".", nil
		}
		if err != nil {
			return err
		}
		r, err := a.openToRead(cmd.Context(), location)
		if err != nil {
			return err
		}
		defer r.Close()
		list, err := listImages(cmd.Context(), a, r, base, refs, rest[0] == "")
		if err != nil {
			return err
		}
		doc := make([]imageJSON, 0, len(list))
		for i := range list {
			item := imageDocument([]images.Listed{list[i].Listed})[0]
			item.UsedBy = list[i].users
			doc = append(doc, item)
		}
		return a.Reply(doc, func(w *render.Sheet) { usedImagesText(w, list) })
	}
	imageFile(cmd, &file)
	return cmd
}

// A usedImage is an image with what uses it.
type usedImage struct {
	images.Listed
	users []imageUserJSON
}

// listImages lists the images of references and, with others, those that the repository's workspaces and packages use beside them.
func listImages(ctx context.Context, a *app, r *repo.Repo, base string, refs []string, others bool) ([]usedImage, error) {
	users, faults, err := r.Workspaces.Planner.ImageUsers(ctx)
	if err != nil {
		return nil, err
	}
	if faults != nil {
		a.Warnf("what uses images is not known in full: %v", faults)
	}
	resolver := repo.ImagesOf(r)
	list, err := resolver.List(ctx, base, refs)
	if err != nil {
		return nil, err
	}
	if others {
		var more []string
		for _, u := range users {
			ref := digestText(u.Image)
			if !slices.Contains(more, ref) && !slices.ContainsFunc(list, func(l images.Listed) bool { return l.Manifest == u.Image }) {
				more = append(more, ref)
			}
		}
		slices.Sort(more)
		rest, err := resolver.List(ctx, base, more)
		if err != nil {
			return nil, err
		}
		list = append(list, rest...)
	}
	used := make([]usedImage, 0, len(list))
	for _, l := range list {
		used = append(used, usedImage{l, usersOf(users, &l)})
	}
	return used, nil
}

func usersOf(users []workspace.ImageUser, l *images.Listed) (list []imageUserJSON) {
	for _, u := range users {
		if u.Image == l.Manifest || digestText(u.Image) == l.Reference {
			list = append(list, imageUserJSON{Workspace: u.Workspace, Package: u.Package.String(), Tasks: u.Tasks})
		}
	}
	return list
}

func usedImagesText(w io.Writer, list []usedImage) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no images")
	}
	for i := range list {
		oneImageText(w, &list[i].Listed)
		for _, u := range list[i].users {
			user := "workspace " + u.Workspace
			if u.Workspace == "" {
				user = "package " + u.Package
			}
			fmt.Fprintf(w, "  used by %s: %s\n", human.Line(user), human.Line(human.Few(u.Tasks)))
		}
	}
}
