package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"e3/internal/host/modes"
	"e3/internal/human"
	"e3/internal/repo"
)

type initOptions struct {
	objects  string
	at       string
	takeOver bool
	anyName  bool
	shared   string
}

func newInit(a *app) *cobra.Command {
	o := &initOptions{}
	cmd := &cobra.Command{
		Use:   "init [location]",
		Short: "Make an empty repository",
		Long: `Make an empty repository: the folder .e3 in the given folder, by default in this one. A path that ends in
.e3 is the repository itself. It is private: nobody but you gets in. With --shared, the group of the folder can read and
write, in whatever is made there, by whoever and under whatever umask (--shared=group, or --shared alone); with
--shared=world everybody can read as well. Each of the others names the repository by its path, or trusts it once:
e3 settings --user safe-repository <folder>. That is decided when the repository is made.

A repository that a team shares is in DynamoDB, with its objects in S3, or whatever has the same interfaces:

  dynamodb://<table>/<repository>?bucket=<bucket>

Table and bucket are made if they are not there, and it says which were; a table serves many repositories, which cannot see each other.
Credentials and region are those of the AWS tools (AWS_PROFILE, AWS_REGION, …). More parameters: region, endpoint (of
DynamoDB), prefix (in the bucket), s3-region, s3-endpoint, lease (how long a machine that is not heard of keeps what it
holds; 15s), settle (for how long what it sent may still arrive, which a gc waits for; 16m). Once the repository is made,
dynamodb://<table>/<repository> is enough, with region and endpoint where need be.

With --at, the folder .e3 stands for a shared repository, so that "." means it in this project. With --objects, the
repository is a folder, and its objects are in S3. If that folder is on a network mount that hangs for more than a
quarter of an hour, a record may arrive after a gc has removed what it names; e3 verify finds that.

Objects in S3 are those of one repository. A copy of it, as a table that was restored or a folder that was copied, can be
read, and exported from, but nothing is written there: the first one's gc would remove it. Make another repository, and
import there. With --take-over the objects become those of the repository at the location, which is there already: when
the first one is given up for good, or was moved here. The first one can then be read, and nothing is written there;
end what still runs in it before. Add --any-name where the repository is no copy, but cannot be told from one: a table on a
server of your own that machines reach by several names, or a folder whose inode changes with each mount.`,
		Example: `  e3 init
  e3 init /srv/pipelines --shared
  e3 init 'dynamodb://acme/forecast?region=eu-west-1&bucket=acme-e3'
  e3 init --at 'dynamodb://acme/forecast?region=eu-west-1'
  e3 init /mnt/team/e3 --objects s3://acme-e3/forecast
  e3 init --take-over 'dynamodb://restored/forecast?region=eu-west-1'`,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			location, _, err := a.positional(cmd, args, 0)
			if err != nil {
				return err
			}
			if err := o.exclude(); err != nil {
				return err
			}
			if o.anyName && !o.takeOver {
				return usagef("--any-name is for --take-over")
			}
			if o.takeOver {
				return takeOver(cmd.Context(), a, location, o.anyName)
			}
			return runInit(cmd.Context(), a, location, o, cmd.Flags().Changed("shared"))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.objects, "objects", "", "keep the objects of a repository in a folder at `s3://bucket/prefix`, with ?region= and ?endpoint=")
	f.StringVar(&o.at, "at", "", "let the folder stand for the shared repository at `location`")
	f.StringVar(&o.shared, "shared", "", "who else gets in: `group` (the default of --shared) can write, and with world everybody can read")
	f.Lookup("shared").NoOptDefVal = string(modes.Group)
	f.BoolVar(&o.takeOver, "take-over", false, "make the objects in S3 those of this repository, which is a copy of theirs")
	f.BoolVar(&o.anyName, "any-name", false, "with --take-over: do not tell the repository from copies of it")
	return cmd
}

// exclude refuses flags that ask for different things.
func (o *initOptions) exclude() error {
	var given []string
	if o.objects != "" {
		given = append(given, "--objects")
	}
	if o.at != "" {
		given = append(given, "--at")
	}
	if o.takeOver {
		given = append(given, "--take-over")
	}
	if len(given) > 1 {
		return usagef("%s exclude each other", strings.Join(given, " and "))
	}
	return nil
}

func runInit(ctx context.Context, a *app, location string, o *initOptions, shared bool) error {
	if repo.IsURL(location) && shared {
		return usagef("--shared is for a folder; who can use a repository in DynamoDB and S3 is decided there")
	}
	access, err := repo.ParseAccess(o.shared)
	if err == nil && shared && o.shared == "" {
		err = errors.New("it needs group or world")
	}
	if err != nil {
		return usagef("--shared: %v", err)
	}
	if repo.IsURL(location) && o.at != "" {
		return usagef("--at is for a folder that stands for a shared repository; to make one: e3 init %s", human.Quoted(location))
	}
	if err := repo.CheckFolder(location); err != nil { // before .e3 is added
		return err
	}
	if !repo.IsURL(location) && filepath.Base(location) != repo.DirName {
		location = filepath.Join(location, repo.DirName)
	}
	var made *repo.Created
	if o.at != "" {
		r, openErr := a.open(ctx, o.at) // what stands for nothing helps nobody
		if openErr != nil {
			return openErr
		}
		if err := r.Close(); err != nil {
			return err
		}
		made, err = repo.InitLink(location, o.at, access)
	} else {
		made, err = repo.Init(ctx, location, repo.InitOptions{Objects: o.objects, Access: access})
	}
	if err != nil {
		return err
	}
	document := struct {
		Repository string   `json:"repository"`
		At         string   `json:"at,omitempty"`
		Objects    string   `json:"objects,omitempty"`
		Access     string   `json:"access,omitempty"`
		Table      string   `json:"createdTable,omitempty"`
		Bucket     string   `json:"createdBucket,omitempty"`
		Advice     []string `json:"advice,omitempty"`
	}{made.Repository, o.at, made.Objects, string(made.Access), made.Table, made.Bucket, made.Advice}
	return a.Reply(document, func(w io.Writer) {
		switch {
		case o.at != "":
			fmt.Fprintf(w, "%s stands for %s\n", human.Line(made.Repository), human.Line(o.at))
		case made.Objects != "":
			fmt.Fprintf(w, "Created repository %s with its objects at %s\n", human.Line(made.Repository), human.Line(made.Objects))
		default:
			fmt.Fprintf(w, "Created repository %s\n", human.Line(made.Repository))
		}
		switch {
		case made.Group != "":
			fmt.Fprintf(w, "  The group %s can read and write\n", human.Line(made.Group))
			if access == modes.World {
				fmt.Fprintln(w, "  Everybody can read")
			}
		case made.Access != "" && o.at == "":
			fmt.Fprintln(w, "  Nobody else gets in; a group does with e3 init --shared")
		}
		if also := made.Made(); also != "" {
			fmt.Fprintf(w, "  Created %s for it\n", human.Line(also))
		}
		for _, advice := range made.Advice {
			fmt.Fprintf(w, "  Consider: %s\n", advice)
		}
	})
}

// takeOver makes objects in S3 those of the repository at a location.
func takeOver(ctx context.Context, a *app, location string, anyName bool) error {
	r, err := a.open(ctx, location)
	if err != nil {
		return err
	}
	defer r.Close()
	objects, from, err := r.TakeObjects(ctx, anyName)
	if err != nil {
		return fmt.Errorf("take over the objects of %s: %w", r.Root, err)
	}
	document := struct {
		Repository string `json:"repository"`
		Objects    string `json:"objects"`
		From       string `json:"from,omitempty"`
	}{r.Root, objects, from}
	return a.Reply(document, func(w io.Writer) {
		fmt.Fprintf(w, "The objects at %s are those of %s now", human.Line(objects), human.Line(r.Root))
		if from != "" {
			fmt.Fprintf(w, "; they were those of %s", human.Line(from))
		}
		fmt.Fprintln(w)
	})
}
