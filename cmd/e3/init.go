package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"e3/internal/repo"
)

type initOptions struct {
	objects string
	at      string
}

func newInit(a *app) *cobra.Command {
	o := &initOptions{}
	cmd := &cobra.Command{
		Use:   "init [location]",
		Short: "Make an empty repository",
		Long: `Make an empty repository: the folder .e3 in the given folder, by default in this one. A path that ends in
.e3 is the repository itself.

A repository that a team shares is in DynamoDB, with its objects in S3, or whatever has the same interfaces:

  dynamodb://<table>/<repository>?bucket=<bucket>

Table and bucket are made if they are not there; a table serves many repositories, which cannot see each other.
Credentials and region are those of the AWS tools (AWS_PROFILE, AWS_REGION, …). More parameters: region, endpoint (of
DynamoDB), prefix (in the bucket), s3-region, s3-endpoint, lease (how long a machine that is not heard of keeps what it
holds; 15s), settle (for how long what it sent may still arrive, which a gc waits for; 15m). Once the repository is made,
dynamodb://<table>/<repository> is enough, with region and endpoint where need be.

With --at, the folder .e3 stands for a shared repository, so that "." means it in this project. With --objects, the
repository is a folder, and its objects are in S3. If that folder is on a network mount that hangs for more than a
quarter of an hour, a record may arrive after a gc has removed what it names; e3 verify finds that.`,
		Example: `  e3 init
  e3 init /srv/pipelines
  e3 init 'dynamodb://acme/forecast?region=eu-west-1&bucket=acme-e3'
  e3 init --at 'dynamodb://acme/forecast?region=eu-west-1'
  e3 init /mnt/team/e3 --objects s3://acme-e3/forecast`,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			location, _, err := a.positional(cmd, args, 0)
			if err != nil {
				return err
			}
			return a.init(cmd.Context(), location, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.objects, "objects", "", "keep the objects of a repository in a folder at `s3://bucket/prefix`, with ?region= and ?endpoint=")
	f.StringVar(&o.at, "at", "", "let the folder stand for the shared repository at `location`")
	cmd.MarkFlagsMutuallyExclusive("objects", "at")
	return cmd
}

func (a *app) init(ctx context.Context, location string, o *initOptions) error {
	if repo.IsURL(location) && o.at != "" {
		return usagef("--at is for a folder that stands for a shared repository; to make one: e3 init %s", quoted(location))
	}
	if !repo.IsURL(location) && filepath.Base(location) != repo.DirName {
		location = filepath.Join(location, repo.DirName)
	}
	var made *repo.Created
	var err error
	if o.at != "" {
		r, openErr := a.open(ctx, o.at) // what stands for nothing helps nobody
		if openErr != nil {
			return openErr
		}
		if err := r.Close(); err != nil {
			return err
		}
		made, err = repo.InitLink(location, o.at)
	} else {
		made, err = repo.Init(ctx, location, o.objects)
	}
	if err != nil {
		return err
	}
	document := struct {
		Repository string   `json:"repository"`
		At         string   `json:"at,omitempty"`
		Objects    string   `json:"objects,omitempty"`
		Advice     []string `json:"advice,omitempty"`
	}{made.Repository, o.at, made.Objects, made.Advice}
	return a.reply(document, func(w io.Writer) {
		switch {
		case o.at != "":
			fmt.Fprintf(w, "%s stands for %s\n", printable(made.Repository, false), printable(o.at, false))
		case made.Objects != "":
			fmt.Fprintf(w, "Created repository %s with its objects at %s\n", printable(made.Repository, false), printable(made.Objects, false))
		default:
			fmt.Fprintf(w, "Created repository %s\n", printable(made.Repository, false))
		}
		for _, advice := range made.Advice {
			fmt.Fprintf(w, "  Consider: %s\n", advice)
		}
	})
}
