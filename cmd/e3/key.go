package main

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"e3/cmd/e3/internal/render"
	"e3/internal/format/signature"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/internal/settings"
	"e3/workspace"
)

func newKey(a *app) *cobra.Command {
	cmd := family(&cobra.Command{
		Use:   "key",
		Short: "Sign exports and results, and choose the keys to trust",
		Long: `If you have a key, your exports are signed, and so is what your starts and workers make. A repository has a list of keys that it
trusts. A repository that requires signatures (e3 settings) imports only exports signed by those keys (require-signed), or
counts only results signed by them (require-signed-executions): other results are made again.

The private key is in the file key in the folder e3 of the user's configuration, or in the file that E3_KEY names.`,
	})
	cmd.AddCommand(newKeyGenerate(a), newKeyShow(a), newKeyTrust(a), newKeyDistrust(a), newKeyList(a))
	return cmd
}

// ownKey is the user's public key.
type ownKey struct {
	Key         string `json:"key"`
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	File        string `json:"file"` // the private key
}

func describeKey(k *signature.Key, path string) ownKey {
	return ownKey{Key: k.Public().String(), Name: k.Name, Fingerprint: k.Public().Fingerprint(), File: path}
}

func newKeyGenerate(a *app) *cobra.Command {
	var name string
	var force bool
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Make a key pair to sign exports with",
		Long: `Make an ed25519 key pair. Your exports are signed with it from then on. Every signature contains the name, which identifies
you to users who do not know the key yet.`,
		Example: `  e3 key generate
  e3 key generate --name "Ann, CI"`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("name") {
				name = repo.UserAtHost()
			}
			return keyGenerate(a, name, force)
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "who you are (default user@host)")
	cmd.Flags().BoolVar(&force, "force", false, "replace the existing key, which is then lost")
	return a.answers(cmd, ownKey{})
}

func keyGenerate(a *app, name string, force bool) error {
	path, err := settings.KeyPath(a.Getenv)
	if err != nil {
		return err
	}
	if err := signature.CheckName(name); err != nil {
		return usagef("--name: %v", err)
	}
	k, err := signature.Generate(name)
	if err != nil {
		return err
	}
	if err := settings.SaveKey(k, path, force); errors.Is(err, fs.ErrExist) {
		return usagef("%s exists already; if no repository trusts that key, replace it with --force", path)
	} else if err != nil {
		return err
	}
	doc := describeKey(k, path)
	return a.Reply(doc, func(w *render.Sheet) {
		w.Line("Made a key for %s; exports are signed with it from now on", k.Name)
		t := &render.Table{}
		t.Row("key", doc.Key)
		t.Row("name", doc.Name)
		t.Row("fingerprint", doc.Fingerprint)
		t.Row("file", doc.File)
		w.Table(t, "  ")
		w.Line("To trust it in a repository: e3 key trust <repo> %s", doc.Key)
	})
}

func newKeyShow(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   "show",
		Short: "Show your public key",
		Long: `Show your public key, for other users to trust. Without --json standard output has only the key; its name, its fingerprint
and its file go to standard error.`,
		Example: `  e3 key show
  e3 key trust . "$(ssh builder e3 key show)" --name builder`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			path, err := settings.KeyPath(a.Getenv)
			if err != nil {
				return err
			}
			k, err := settings.LoadKey(path)
			if err != nil {
				return err
			}
			doc := describeKey(k, path)
			if !a.JSON {
				a.Notef("name         %s", human.Line(doc.Name))
				a.Notef("fingerprint  %s", doc.Fingerprint)
				a.Notef("file         %s", human.Line(doc.File))
			}
			return a.Reply(doc, func(w *render.Sheet) { w.Line("%s", doc.Key) })
		},
	}, ownKey{})
}

func newKeyTrust(a *app) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "trust [repo] <public key>",
		Short: "Trust a key's signatures in a repository",
		Long: `Trust the signatures of a key in a repository. Make sure whose key it is: ask its owner for the fingerprint. The name is the
key's name in this repository, by default "key-" and the beginning of its fingerprint.`,
		Example: `  e3 key trust . e3pub1K5Xy… --name ann`,
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
			return keyTrust(ctx, a, r, args[0], name)
		}, "<public key>"),
	}
	cmd.Flags().StringVar(&name, "name", "", "what the key is called in this repository")
	return a.answers(cmd, settings.KeyRow{})
}

func keyTrust(ctx context.Context, a *app, r *repo.Repo, text, name string) error {
	public, err := signature.ParsePublicKey(text)
	if err != nil {
		return usagef("%v; its owner sees it with: e3 key show", err)
	}
	k := settings.TrustedKey{Name: name, Key: public, AddedBy: repo.UserAtHost(), AddedAt: a.Now().UTC().Truncate(time.Second)}
	if name != "" {
		if err := settings.CheckKeyName(name); err != nil {
			return usagef("--name: %v", err)
		}
	}
	s, err := r.UpdateKeys(ctx, func(s *settings.Settings) error {
		if old, ok := s.Trusted(public); ok && (name == "" || name == old.Name) {
			k = old
			return nil
		}
		if name == "" {
			k.Name = s.NameFor(public)
		}
		return s.Trust(k)
	})
	switch {
	case errors.Is(err, settings.ErrTrusted):
		return usagef("%w; to give it another name, first remove it: e3 key distrust <repo> %s", err, text)
	case errors.Is(err, settings.ErrNameTaken):
		return usagef("%w; give this one another --name", err)
	case err != nil:
		return err
	}
	return a.Reply(k.Row(), func(w *render.Sheet) {
		w.Line("Trusted: %s  %s  (%s)", k.Name, k.Key, k.Key.Fingerprint())
		if !s.RequireSigned {
			w.Line("Exports without a trusted signature may still come in; refuse them with: e3 settings <repo> require-signed true")
		}
	})
}

func newKeyDistrust(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   "distrust [repo] <name or public key>",
		Short: "Stop trusting a key's signatures in a repository",
		Long:  `Take a key off the list of those that a repository trusts. What was imported with its signature stays and keeps it.`,
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, args []string) error {
			return keyDistrust(ctx, a, r, args[0])
		}, "<name or public key>"),
		ValidArgsFunction: completeTrusted(a),
	}, settings.KeyRow{})
}

func keyDistrust(ctx context.Context, a *app, r *repo.Repo, nameOrKey string) error {
	var k settings.TrustedKey
	s, err := r.UpdateKeys(ctx, func(s *settings.Settings) error {
		var found bool
		if k, found = s.Distrust(nameOrKey); !found {
			return &workspace.UnknownError{What: "trusted key", Name: nameOrKey, Known: trustedNames(s)}
		}
		return nil
	})
	if err != nil {
		return err
	}
	warnUnimportable(a, s)
	warnUnanswered(a, r, s)
	return a.Reply(k.Row(), func(w *render.Sheet) {
		w.Line("No longer trusted: %s  %s", k.Name, k.Key)
	})
}

// warnUnimportable warns that no import is possible, which is seldom intended.
func warnUnimportable(a *app, s *settings.Settings) {
	if s.RequireSigned && len(s.TrustedKeys) == 0 {
		a.Notef("Signatures of trusted keys are required and no key is trusted: no export can come in")
	}
}

// warnUnanswered warns that nothing can answer, which is seldom intended.
func warnUnanswered(a *app, r *repo.Repo, s *settings.Settings) {
	if r.SignedExecutions() && len(s.TrustedKeys) == 0 {
		a.Notef("Results count only with the signature of a trusted key, and no key is trusted: every start runs every task. Trust one with: e3 key trust")
	}
}

// sayUntrusted tells, where a repository counts only what trusted keys have signed, that what this process makes does not count.
func sayUntrusted(ctx context.Context, a *app, r *repo.Repo, so string) {
	demand, err := r.Demand(ctx)
	if err != nil || demand == nil {
		return // without the demand nothing can be looked up, which says why
	}
	key, err := r.Signer()
	if err != nil || demand.Trusts(key) {
		return
	}
	why := "you have no key"
	if key != nil {
		why = "your key is not one of them"
	}
	a.Notef("Results count here only with the signature of a trusted key, and %s: %s. See: e3 key --help", why, so)
}

func trustedNames(s *settings.Settings) []string {
	names := make([]string, len(s.TrustedKeys))
	for i := range s.TrustedKeys {
		names[i] = s.TrustedKeys[i].Name
	}
	return names
}

func newKeyList(a *app) *cobra.Command {
	return a.answers(&cobra.Command{
		Use:   "list [repo]",
		Short: "List the keys that a repository trusts",
		RunE: a.on(a.open, func(ctx context.Context, r *repo.Repo, _ []string) error {
			s, err := settings.Get(ctx, r.Records)
			if err != nil {
				return err
			}
			rows := s.KeyRows()
			return a.Reply(rows, func(w *render.Sheet) {
				t := &render.Table{}
				for _, k := range rows.TrustedKeys {
					t.Row(k.Name, k.Key, "by "+k.AddedBy, human.Stamp(k.AddedAt.Time))
				}
				w.Table(t, "")
			})
		}),
	}, settings.KeyRows{})
}

func completeTrusted(a *app) cobra.CompletionFunc {
	return completeFirst(a, func(ctx context.Context, r *repo.Repo, _ string) ([]cobra.Completion, error) {
		s, err := settings.Get(ctx, r.Records)
		if err != nil {
			return nil, err
		}
		return trustedNames(s), nil
	})
}
