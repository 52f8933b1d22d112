package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"e3/internal/format/manifest"
	"e3/internal/human"
	"e3/internal/images"
	"e3/internal/repo"
)

func newImage(a *app) *cobra.Command {
	cmd := family(&cobra.Command{
		Use:   "image",
		Short: "Fetch the images in which tasks run, and pin their names",
		Long: `A task with image: in the package file runs with the files of an image. The first start fetches the image and pins its name in
e3.lock, beside the package file: until e3 image update, the name means that image. Commit e3.lock.`,
	})
	cmd.AddCommand(newImagePull(a), newImageList(a), newImageUpdate(a))
	return cmd
}

// imageJSON is an image, for programs.
type imageJSON struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest,omitempty"` // of the manifest for this platform
	Was       string `json:"was,omitempty"`    // before an update
	Here      bool   `json:"here"`             // the repository has all of it
	Layers    int    `json:"layers,omitempty"`
	Size      int64  `json:"size,omitempty"`
	Fault     string `json:"fault,omitempty"`
}

func newImagePull(a *app) *cobra.Command {
	return imageCommand(a, &cobra.Command{
		Use:   "pull [repo] [image]",
		Short: "Fetch images into the repository",
		Long: `Fetch the images of a package file that the repository lacks, or one image by its name, and pin new names in e3.lock. A start does the
same. Credentials are those of docker login or podman login.`,
		Example: `  e3 image pull
  e3 image pull . registry.example/python:3.12
  e3 image pull -f other.yaml`,
	}, a.open, (*images.Resolver).Fetch)
}

func newImageList(a *app) *cobra.Command {
	return imageCommand(a, &cobra.Command{
		Use:   "list [repo] [image]",
		Short: "List the images of a package file",
		Long: `List the images of a package file, with the digest that each name is pinned to, and whether the repository has them. Nothing is
fetched.`,
		Example: `  e3 image list
  e3 image list --json`,
	}, a.openToRead, (*images.Resolver).List)
}

func newImageUpdate(a *app) *cobra.Command {
	return imageCommand(a, &cobra.Command{
		Use:   "update [repo] [image]",
		Short: "Find out what the names of images mean now, and pin that",
		Long: `Ask the registries what the names with tags in a package file mean now, fetch those images, and pin them in e3.lock. Tasks whose image
is another one run at the next start.`,
		Example: `  e3 image update
  e3 image update . registry.example/python:3.12`,
	}, a.open, (*images.Resolver).Update)
}

// imageCommand completes a command that does something with the images of a package file.
func imageCommand(a *app, cmd *cobra.Command, open func(context.Context, string) (*repo.Repo, error), do func(*images.Resolver, context.Context, string, []string) ([]images.Listed, error)) *cobra.Command {
	var file string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		location, rest, err := a.positional(cmd, args, 1, "<image>")
		if err != nil {
			return err
		}
		refs := []string{rest[0]}
		if rest[0] == "" {
			def, err := manifest.ParseFile(file)
			if err != nil {
				return err
			}
			refs = def.ImageReferences()
		}
		base, err := filepath.Abs(filepath.Dir(file))
		if err != nil {
			return err
		}
		r, err := open(cmd.Context(), location)
		if err != nil {
			return err
		}
		defer r.Close()
		list, err := do(repo.ImagesOf(r), cmd.Context(), base, refs)
		if err != nil {
			return err
		}
		return a.Reply(imageDocument(list), func(w io.Writer) { imageText(w, list) })
	}
	cmd.Flags().StringVarP(&file, "file", "f", manifest.FileName, "the package file; e3.lock is beside it")
	return cmd
}

func imageDocument(list []images.Listed) []imageJSON {
	doc := make([]imageJSON, 0, len(list))
	for _, l := range list {
		doc = append(doc, imageJSON{Reference: l.Reference, Digest: digestText(l.Manifest), Was: digestText(l.Was), Here: l.Whole, Layers: l.Layers, Size: l.Size, Fault: l.Fault})
	}
	return doc
}

func digestText(hash string) string {
	if hash == "" {
		return ""
	}
	return "sha256:" + hash
}

func imageText(w io.Writer, list []images.Listed) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no images")
	}
	for _, l := range list {
		fmt.Fprintln(w, human.Line(l.Reference))
		switch {
		case l.Fault != "":
			fmt.Fprintf(w, "  not here: %s\n", human.Line(l.Fault))
			continue
		case l.Was != "" && l.Was == l.Manifest:
			fmt.Fprintf(w, "  %s, as before", digestText(l.Manifest))
		case l.Was != "":
			fmt.Fprintf(w, "  %s, was sha256:%s", digestText(l.Manifest), l.Was[:12])
		default:
			fmt.Fprintf(w, "  %s", digestText(l.Manifest))
		}
		if l.Whole {
			fmt.Fprintf(w, ", %s, %s\n", human.Count(l.Layers, "layer"), human.Bytes(l.Size))
		} else {
			fmt.Fprintln(w, ", not here: e3 image pull")
		}
	}
}
