package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
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

func newImagePull(a *app) *cobra.Command {
	return imageCommand(a, &cobra.Command{
		Use:   "pull [repo] [image]",
		Short: "Fetch images into the repository",
		Long: `Fetch the images of a package file that the repository lacks, or one image by its name, and pin new names in e3.lock. A start does the
same. Credentials are those of docker login or podman login.`,
		Example: `  e3 image pull
  e3 image pull . registry.example/python:3.12
  e3 image pull -f other.yaml`,
	}, (*images.Resolver).Fetch)
}

func newImageUpdate(a *app) *cobra.Command {
	return imageCommand(a, &cobra.Command{
		Use:   "update [repo] [image]",
		Short: "Find out what the names of images mean now, and pin that",
		Long: `Ask the registries what the names with tags in a package file mean now, fetch those images, and pin them in e3.lock. Tasks whose image
is another one run at the next start.`,
		Example: `  e3 image update
  e3 image update . registry.example/python:3.12`,
	}, (*images.Resolver).Update)
}

// imageCommand completes a command that brings images of a package file into the repository.
func imageCommand(a *app, cmd *cobra.Command, do func(*images.Resolver, context.Context, string, []string) ([]images.Image, error)) *cobra.Command {
	var file string
	cmd.RunE = a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
		refs, base, err := imagesNamed(file, args[0])
		if err != nil {
			return err
		}
		list, err := do(repo.ImagesOf(r), ctx, base, refs)
		if err != nil {
			return err
		}
		return a.Reply(list, func(w *render.Sheet) {
			if len(list) == 0 {
				w.Line("no images")
			}
			for i := range list {
				writeListed(w, &list[i])
			}
		})
	}, "[image]")
	imageFile(cmd, &file)
	return a.answers(cmd, []images.Image{})
}

func imageFile(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", manifest.FileName, "the package file; e3.lock is beside it")
}

// imagesNamed are the references of a package file, or the one that is given, and the folder of the file.
func imagesNamed(file, given string) (refs []string, base string, err error) {
	refs = []string{given}
	if given == "" {
		def, err := manifest.ParseFile(file)
		if err != nil {
			return nil, "", err
		}
		refs = def.ImageReferences()
	}
	base, err = filepath.Abs(filepath.Dir(file))
	return refs, base, err
}

// fetching tells that an image of a registry is fetched, and shows on a terminal how far its layers have come. It is an images.Watch.
func (a *app) fetching(reference string, remote bool) (progress func(images.Progress), end func()) {
	if remote {
		a.Notef("Fetching image %s", human.Line(reference))
	}
	live, began := a.Live(), a.Now()
	live.Unit = human.Bytes
	return func(p images.Progress) {
		live.Phase(fmt.Sprintf("layer %d of %d of image %s", p.Layer, p.Layers, human.Line(reference)), began)
		live.Progress(p.Bytes, p.Total)
	}, live.Close
}

func writeListed(w *render.Sheet, l *images.Image) {
	w.Line("%s", l.Reference)
	if l.Fault != "" {
		w.Line("  not here: %s", l.Fault)
		return
	}
	var parts []string
	if l.Digest != l.Reference {
		parts = append(parts, l.Digest)
	}
	switch {
	case l.Was != "" && l.Was == l.Digest:
		parts = append(parts, "as before")
	case l.Was != "":
		parts = append(parts, "was "+prefix(l.Was, len("sha256:")+12))
	}
	if l.Whole {
		parts = append(parts, human.Count(l.Layers, "layer"), human.Bytes(l.Size))
	} else {
		parts = append(parts, "not here: e3 image pull")
	}
	w.Line("  %s", strings.Join(parts, ", "))
}
