package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"e3/executions"
	"e3/internal/format/signature"
	"e3/internal/settings"
)

// signing says whose signatures answers need in this repository, and with which key this process signs.
type signing struct {
	required bool // the repository's description demands signatures
	mu       sync.Mutex
	demand   *executions.Demand // nil: not read yet
	key      func() (*signature.Key, error)
}

// findKey returns the user's key, nil if there is none. A key that cannot be used is an error where executions must
// be signed. Elsewhere it is a warning, and counts as no key.
func (r *Repo) findKey() (*signature.Key, error) {
	k, err := settings.FindKey(r.opts.Getenv)
	switch {
	case err == nil:
		return k, nil
	case errors.Is(err, settings.ErrNoKey):
		return nil, nil
	case r.signing.required:
		return nil, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		r.warn(fmt.Errorf("what is made here is not signed: %w", err))
	}
	return nil, nil
}

// Signer returns the key with which this process signs; nil: its user has none. Where executions must be signed, a
// key file that E3_KEY names must exist.
func (r *Repo) Signer() (*signature.Key, error) { return r.signing.key() }

// SignedExecutions tells whether the repository counts only executions that a trusted key has signed.
func (r *Repo) SignedExecutions() bool { return r.signing.required }

// Demand returns which signatures an execution needs to be an answer here; nil: none. It reads the trusted keys once:
// a process goes by the keys of its first question.
func (r *Repo) Demand(ctx context.Context) (*executions.Demand, error) {
	if !r.signing.required {
		return nil, nil
	}
	r.signing.mu.Lock()
	defer r.signing.mu.Unlock()
	if r.signing.demand != nil {
		return r.signing.demand, nil
	}
	s, err := settings.Get(ctx, r.Records)
	if err != nil {
		return nil, err
	}
	keys := make([]signature.PublicKey, len(s.TrustedKeys))
	for i := range s.TrustedKeys {
		keys[i] = s.TrustedKeys[i].Key
	}
	r.signing.demand = executions.NewDemand(keys)
	for i := range s.TrustedKeys {
		r.signing.demand.Date(s.TrustedKeys[i].Key, s.TrustedKeys[i].AddedAt)
	}
	return r.signing.demand, nil
}

// RequireSignedExecutions makes the repository count only executions that a trusted key has signed, or all executions
// again. It ends all proofs. The demand is part of the repository's description, which every process reads first, so
// a repository without the demand spends no request on it.
func (r *Repo) RequireSignedExecutions(ctx context.Context, require bool) error {
	texts := r.formats[len(r.formats)-1]
	f, err := texts.load(ctx, r.warn)
	if err != nil {
		return err
	}
	f.SignedExecutions = require
	text, err := f.encode()
	if err != nil {
		return err
	}
	end, err := executions.NewGeneration(r.Records, r.Records).Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for i := range texts.where { // a crash between the two leaves the first, which counts
		if err := texts.write(ctx, i, text); err != nil {
			return fmt.Errorf("change what %s demands: %w", texts.where[i], err)
		}
	}
	r.signing.mu.Lock()
	defer r.signing.mu.Unlock()
	r.signing.required, r.signing.demand = require, nil
	return nil
}

// UpdateKeys changes the keys that the repository trusts. If the keys decide which executions answer, proofs end.
func (r *Repo) UpdateKeys(ctx context.Context, change func(*settings.Settings) error) (*settings.Settings, error) {
	if r.signing.required {
		end, err := executions.NewGeneration(r.Records, r.Records).Begin(ctx)
		if err != nil {
			return nil, err
		}
		defer end()
	}
	return settings.Update(ctx, r.Records, change)
}
