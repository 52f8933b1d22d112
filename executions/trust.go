package executions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"e3/internal/format/record"
	"e3/internal/format/signature"
)

// A Demand accepts executions that one of its keys has signed. The nil Demand accepts all.
type Demand struct {
	keys map[signature.PublicKey]time.Time // since when each is trusted; zero: unknown
	sum  [32]byte                          // of the keys
}

// NewDemand returns the demand for a signature by one of the keys. Without keys it accepts nothing.
func NewDemand(keys []signature.PublicKey) *Demand {
	d := &Demand{keys: make(map[signature.PublicKey]time.Time, len(keys))}
	for _, k := range keys {
		d.keys[k] = time.Time{}
	}
	sorted := slices.SortedFunc(maps.Keys(d.keys), func(a, b signature.PublicKey) int { return cmp.Compare(a.String(), b.String()) })
	h := sha256.New()
	for _, k := range sorted {
		h.Write(k[:])
	}
	d.sum = [32]byte(h.Sum(nil))
	return d
}

// Date sets the time since when a key is trusted. It is not called once the demand is in use.
func (d *Demand) Date(key signature.PublicKey, since time.Time) { d.keys[key] = since }

// Trusts tells whether executions signed with k are accepted; nil is no key.
func (d *Demand) Trusts(k *signature.Key) bool {
	return d == nil || k != nil && d.has(k.Public())
}

func (d *Demand) has(key signature.PublicKey) bool {
	_, ok := d.keys[key]
	return ok
}

// refuses returns why an execution that has ended is not accepted; "" if it is.
func (d *Demand) refuses(e *Execution) string {
	if d == nil {
		return ""
	}
	by := "by an unknown user"
	if e.Detail != nil && e.Detail.Worker != "" {
		by = "by " + e.Detail.Worker
	}
	switch {
	case e.Signature == nil:
		return "it was made " + by + ", and is not signed by a trusted key"
	case !d.has(e.Signature.Key):
		return fmt.Sprintf("it was made %s, and is not signed by a trusted key: its key is %s", by, signature.PublicKey(e.Signature.Key))
	case e.CheckSignature() != nil:
		return "it was made " + by + ", and its signature does not hold"
	}
	return ""
}

// CheckSignature verifies the execution's signature, if it has one, with the key that the signature names. Whether that
// key is trusted is not checked. The error wraps [signature.ErrBadSignature].
func (e *Execution) CheckSignature() error {
	if e.Signature == nil {
		return nil
	}
	m := signature.Mark{Key: e.Signature.Key, Bytes: e.Signature.Bytes}
	return m.Verify(e.statement())
}

// SignedBy is the public key whose valid signature the execution has; "" if it has none.
func (e *Execution) SignedBy() string {
	if e.Signature == nil || e.CheckSignature() != nil {
		return ""
	}
	return signature.PublicKey(e.Signature.Key).String()
}

func (e *Execution) statement() signature.Statement {
	size := int64(-1)
	if e.Detail != nil {
		size = e.Detail.BytesOut
	}
	return statementOf(e.Key, &e.Status, size)
}

// statementOf is the signed statement about an execution. It covers everything that a lookup takes from the record, and
// the size of the output in its detail.
func statementOf(k Key, s *record.Status, size int64) signature.Statement {
	return signature.Execution(k.Task.String(), k.Inputs.String(), s.Encode(), size)
}

// sign returns the signature of an execution that has ended.
func sign(key *signature.Key, of signature.Statement) record.Signature {
	m := key.Mark(of)
	return record.Signature{Key: m.Key, Bytes: m.Bytes}
}

// Sign signs a proof, which counts under the same demand.
func (d *Demand) Sign(key *signature.Key, p *record.Proof) {
	s := sign(key, d.proof(p))
	p.Signature = &s
}

// Admits tells whether a trusted key has signed a proof under the same demand.
func (d *Demand) Admits(p *record.Proof) bool {
	if p.Signature == nil {
		return false
	}
	m := signature.Mark{Key: p.Signature.Key, Bytes: p.Signature.Bytes}
	return d.has(m.Key) && m.Verify(d.proof(p)) == nil
}

func (d *Demand) proof(p *record.Proof) signature.Statement {
	return signature.Proof(d.sum, p.Package, p.Inputs, p.Tasks, p.Generation, p.Partial, p.Open)
}

// Demands returns the demand of a repository; nil: all executions count. It may be called often, by several goroutines.
// On an error the demand is unknown, and no execution answers.
type Demands func(context.Context) (*Demand, error)

// Requiring returns a store over the same records whose lookups count only executions that the demand accepts. demands
// may be nil.
func (s *Store) Requiring(demands Demands) *Store {
	with := *s
	with.demands = demands
	return &with
}

// demand returns the demand of the repository.
func (s *Store) demand(ctx context.Context) (*Demand, error) {
	if s.demands == nil {
		return nil, nil
	}
	d, err := s.demands(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the trusted keys: %w", err)
	}
	return d, nil
}

// Untrusted returns why an execution that has ended lacks a trusted signature; "" if it does not.
func (s *Store) Untrusted(ctx context.Context, e *Execution) (string, error) {
	d, err := s.demand(ctx)
	if err != nil {
		return "", err
	}
	return d.refuses(e), nil
}

// TrustedSince returns when the signer's key became trusted; zero if no signature is demanded, if the key is not
// trusted, or if the time is unknown.
func (s *Store) TrustedSince(ctx context.Context, e *Execution) (time.Time, error) {
	d, err := s.demand(ctx)
	if err != nil || d == nil || e.Signature == nil {
		return time.Time{}, err
	}
	return d.keys[e.Signature.Key], nil
}

// ErrUntrusted is wrapped if a worker's execution does not count for lack of a trusted signature.
var ErrUntrusted = errors.New("it does not count here")

// accept refuses a success of an untrusted worker if this process is trusted, because its proofs and later results
// would vouch for that success.
func (x *Executor) accept(ctx context.Context, key Key, res *Result) error {
	if res.State != record.Success {
		return nil
	}
	d, err := x.demand(ctx)
	if err != nil || d == nil || !d.Trusts(x.opts.Key) {
		return err
	}
	e, err := x.Get(ctx, key, res.ExecutionID)
	if err != nil {
		return err
	}
	if why := d.refuses(e); why != "" {
		return fmt.Errorf("execution %s: %w: %s; give its worker a trusted key, or trust its key with: e3 key trust", res.ExecutionID, ErrUntrusted, why)
	}
	return nil
}
