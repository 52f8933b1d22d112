package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
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
	check    bool
}

func newInit(a *app) *cobra.Command {
	o := &initOptions{}
	cmd := &cobra.Command{
		Use:   "init [location]",
		Short: "Make an empty repository",
		Long: `Make an empty repository: the folder .e3 in the given folder, by default in this one. A path that ends in
.e3 is the repository itself. The repository is private: only you can read and write it. With --shared (or --shared=group),
the group of the folder can read and write all its files, under any umask; with --shared=world all users can read as well.
The other users name the repository by its path, or trust it once: e3 settings --user safe-repository <folder>. Access
is decided when the repository is made.

A repository that a team shares has its records in PostgreSQL or DynamoDB, and its objects in S3, or in services with the
same interfaces:

  postgres://[<user>@]<host>[:<port>][,<host>…]/<database>/<repository>?bucket=<bucket>
  postgres://…?objects=<folder>        (objects in a folder that all machines mount, which must exist)
  dynamodb://<table>/<repository>?bucket=<bucket>

A missing schema, table or bucket is made, and reported. A database or table holds many repositories, which cannot see each
other. Parameters of both: prefix (in the bucket), s3-region, s3-endpoint, lease (how long a silent machine keeps its locks;
15s), settle (how long a late request may still arrive, which a gc waits for; 16m). Of PostgreSQL, as its own programs take
them: sslmode, sslrootcert, sslcert, sslkey, service, target_session_attrs, connect_timeout; passwords come from ~/.pgpass,
PGPASSWORD or the service file. Of DynamoDB: region, endpoint. Credentials and region of S3 and DynamoDB are those of the AWS
tools (AWS_PROFILE, AWS_REGION, …). Once the repository exists, its location is enough, with what says how to reach it.

With --at, the folder .e3 refers to a shared repository, so that "." means it in this project. With --objects, the
repository is a folder, and its objects are in S3. If that folder is on a network mount that hangs for more than a
quarter of an hour, a record may arrive after a gc has removed its objects; e3 verify finds that.

Objects in S3 belong to one repository. A copy of the repository, such as a restored table or a copied folder, is read-only,
because the gc of the original would remove its new objects. You can read it and export from it. To continue elsewhere, make
another repository and import there. If the original is given up or was moved, --take-over makes the objects those of the
existing repository at the location. The original is read-only from then on; end its running processes before. Add
--any-name if the repository is no copy but looks like one: a table on a server of your own with several names, or a folder
whose inode changes with each mount.

With --check, nothing stays: in a folder, a table and below a prefix of their own, which go again, the cases run that
the stores of e3 are tested with. It takes a minute or two, and some thousand requests. doc/team.md names servers that pass.`,
		Example: `  e3 init
  e3 init /srv/pipelines --shared
  e3 init 'postgres://db.acme.example/e3/forecast?sslmode=verify-full&bucket=acme-e3'
  e3 init 'dynamodb://acme/forecast?region=eu-west-1&bucket=acme-e3'
  e3 init --at 'dynamodb://acme/forecast?region=eu-west-1'
  e3 init /mnt/team/e3 --objects s3://acme-e3/forecast
  e3 init --check 'dynamodb://acme/forecast?endpoint=http://store.acme.example:8000&bucket=acme-e3'
  e3 init --take-over 'dynamodb://restored/forecast?region=eu-west-1'`,
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs),
		RunE: func(cmd *cobra.Command, args []string) error {
			location := a.location()
			if len(args) == 1 { // of a repository that is not there yet
				location = args[0]
			} else if _, _, err := a.positional(cmd, args); err != nil {
				return err
			}
			if err := alternatives(cmd, "objects", "at", "take-over"); err != nil {
				return err
			}
			if err := alternatives(cmd, "check", "at", "take-over", "shared"); err != nil {
				return err
			}
			if o.check {
				return checkPlace(cmd.Context(), a, location, repo.InitOptions{Objects: o.objects})
			}
			if o.anyName && !o.takeOver {
				return usagef("--any-name is for --take-over")
			}
			if o.takeOver {
				return a.within(cmd.Context(), a.open, location, func(r *repo.Repo) error { return takeOver(cmd.Context(), a, r, o.anyName) })
			}
			return runInit(cmd.Context(), a, location, o, cmd.Flags().Changed("shared"))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.objects, "objects", "", "keep the objects of a repository in a folder at `s3://bucket/prefix`, with ?region= and ?endpoint=")
	f.StringVar(&o.at, "at", "", "make the folder refer to the shared repository at `location`")
	f.StringVar(&o.shared, "shared", "", "access for other users: `group` (the default of --shared) can write, and with world all can read")
	f.Lookup("shared").NoOptDefVal = string(modes.Group)
	f.BoolVar(&o.takeOver, "take-over", false, "make the objects in S3 those of this repository, a copy of their present one")
	f.BoolVar(&o.anyName, "any-name", false, "with --take-over: do not distinguish the repository from copies of it")
	f.BoolVar(&o.check, "check", false, "make nothing: ask of the file system or the servers at the location what e3 needs, and say what they lack")
	return a.answers(cmd, created{}, takenOver{}, checkedPlace{})
}

func runInit(ctx context.Context, a *app, location string, o *initOptions, shared bool) error {
	if repo.IsURL(location) && shared {
		return usagef("--shared is for a folder; access to a repository in a database, and to its objects, is decided there")
	}
	access, err := repo.ParseAccess(o.shared)
	if err == nil && shared && o.shared == "" {
		err = errors.New("it needs group or world")
	}
	if err != nil {
		return usagef("--shared: %v", err)
	}
	if repo.IsURL(location) && o.at != "" {
		return usagef("--at is for a folder that refers to a shared repository; to make one: e3 init %s", human.Quoted(location))
	}
	if err := repo.CheckFolder(location); err != nil { // before .e3 is added
		return err
	}
	if info, err := os.Stat(location); err == nil && !info.IsDir() && !repo.IsURL(location) {
		return usagef("there is a file at %s; a repository is a folder: name another place", human.Quoted(location))
	}
	if o.at != "" && !repo.IsURL(o.at) {
		if err := repo.CheckFolder(o.at); err != nil { // a URL that is misspelt
			return err
		}
		return usagef("--at is for a repository in a database; name one in a folder with E3_REPO=%s, or as the first argument of a command", human.Quoted(o.at))
	}
	if !repo.IsURL(location) && filepath.Base(location) != repo.DirName {
		location = filepath.Join(location, repo.DirName)
	}
	var made *repo.Created
	if o.at != "" {
		if err := a.within(ctx, a.open, o.at, func(*repo.Repo) error { return nil }); err != nil {
			return err // a reference to no repository would be useless
		}
		made, err = repo.InitLink(location, o.at, access)
	} else {
		made, err = repo.Init(ctx, location, repo.InitOptions{Objects: o.objects, Access: access})
	}
	if err != nil {
		return err
	}
	document := created{made.Repository, o.at, made.Objects, string(made.Access), made.Table, made.Schema, made.Bucket, made.Advice}
	return a.Reply(document, func(w *render.Sheet) {
		switch {
		case o.at != "":
			fmt.Fprintf(w, "%s refers to %s\n", human.Line(made.Repository), human.Line(o.at))
		case made.Objects != "":
			fmt.Fprintf(w, "Created repository %s with its objects at %s\n", human.Line(made.Repository), human.Line(made.Objects))
		default:
			fmt.Fprintf(w, "Created repository %s\n", human.Line(made.Repository))
		}
		switch {
		case made.Group != "":
			fmt.Fprintf(w, "  The group %s can read and write\n", human.Line(made.Group))
			if access == modes.World {
				fmt.Fprintln(w, "  All users can read")
			}
		case made.Access != "" && o.at == "":
			fmt.Fprintln(w, "  Only you can read and write it; to let a group: e3 init --shared")
		}
		if also := made.Extras(); also != "" {
			fmt.Fprintf(w, "  Created %s for it\n", human.Line(also))
		}
		for _, advice := range made.Advice {
			fmt.Fprintf(w, "  Consider: %s\n", advice)
		}
	})
}

// created is a repository that was made, or a folder that refers to one.
type created struct {
	Repository string   `json:"repository"`
	At         string   `json:"at,omitempty"`            // that the folder refers to
	Objects    string   `json:"objects,omitempty"`       // location of the objects, if elsewhere
	Access     string   `json:"access,omitempty"`        // who can use it
	Table      string   `json:"createdTable,omitempty"`  // of DynamoDB
	Schema     string   `json:"createdSchema,omitempty"` // of PostgreSQL
	Bucket     string   `json:"createdBucket,omitempty"`
	Advice     []string `json:"advice,omitempty"`
}

// takenOver is a repository that owns its objects from now on.
type takenOver struct {
	Repository string `json:"repository"`
	Objects    string `json:"objects"`
	From       string `json:"from,omitempty"` // the owner before
}

// takeOver makes the repository at a location the owner of its objects in S3.
func takeOver(ctx context.Context, a *app, r *repo.Repo, anyName bool) error {
	objects, from, err := r.TakeObjects(ctx, anyName)
	if err != nil {
		return fmt.Errorf("take over the objects of %s: %w", r.Root, err)
	}
	document := takenOver{r.Root, objects, from}
	return a.Reply(document, func(w *render.Sheet) {
		fmt.Fprintf(w, "The objects at %s now belong to %s", human.Line(objects), human.Line(r.Root))
		if from != "" {
			fmt.Fprintf(w, "; they belonged to %s", human.Line(from))
		}
		fmt.Fprintln(w)
	})
}
