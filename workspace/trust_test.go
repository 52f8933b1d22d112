package workspace_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/repo"
	"e3/internal/settings"
	"e3/refstore"
)

// by opens the place's repository again as a user with a key, or with nil without one. The place's processes then have
// this name.
func (p *place) by(name string, k *signature.Key) *place {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), name) // without a key the file does not exist
	if k != nil {
		if err := settings.SaveKey(k, file, false); err != nil {
			p.t.Fatal(err)
		}
	}
	r, err := repo.Open(p.ctx, p.repo.Root, repo.Options{Version: "test", Getenv: func(variable string) string {
		if variable == settings.KeyVariable && k != nil {
			return file
		}
		if variable == "XDG_CONFIG_HOME" || variable == "HOME" {
			return filepath.Dir(file)
		}
		return ""
	}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { r.Close() })
	q := placeIn(r)
	q.t, q.ctx, q.dir, q.run = p.t, p.ctx, p.dir, p.run
	q.executor = executions.NewExecutor(r.Executions, r.Objects, r.Records, q, executions.Options{
		Worker: name + "@here", Version: "test", Path: "/bin", Getenv: os.LookupEnv, Scratch: r.Scratch, Now: time.Now, Key: k,
	})
	return q
}

// A proof that an untrusted writer could have made does not count: it needs the signature of a trusted key, under the
// present list of keys.
func TestForgedProofs(t *testing.T) {
	ci, dev := newKey(t, "ci"), newKey(t, "dev")
	proofKey := refstore.Key{Partition: "INDEX/proofs", Sort: "w"}
	for _, test := range []struct {
		name  string
		forge func(p *place, proof *record.Proof) []byte
		count bool
	}{
		{"as it was", func(_ *place, proof *record.Proof) []byte { return proof.Encode() }, true},
		{"without a signature", func(_ *place, proof *record.Proof) []byte {
			proof.Signature = nil
			return proof.Encode()
		}, false},
		{"of other outputs", func(_ *place, proof *record.Proof) []byte {
			proof.Tasks = proof.Inputs
			return proof.Encode()
		}, false},
		{"of other inputs", func(_ *place, proof *record.Proof) []byte {
			proof.Inputs = proof.Tasks
			return proof.Encode()
		}, false},
		{"of a task that is not open", func(_ *place, proof *record.Proof) []byte {
			proof.Open = append(proof.Open, "one")
			return proof.Encode()
		}, false},
		{"of a part", func(_ *place, proof *record.Proof) []byte {
			proof.Partial = true
			return proof.Encode()
		}, false},
		{"signed by another key", func(p *place, proof *record.Proof) []byte {
			d, err := p.repo.Demand(p.ctx)
			if err != nil {
				p.t.Fatal(err)
			}
			d.Sign(dev, proof)
			return proof.Encode()
		}, false},
		{"signed by another key in the name of a trusted one", func(p *place, proof *record.Proof) []byte {
			d, err := p.repo.Demand(p.ctx)
			if err != nil {
				p.t.Fatal(err)
			}
			d.Sign(dev, proof)
			proof.Signature.Key = ci.Public()
			return proof.Encode()
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlace(t)
			p.write("a.txt", "a")
			p.deploy(`
inputs: {a: {file: a.txt}}
tasks: {one: {in: [a], out: o, run: cat a.txt}}
`)
			if err := p.repo.RequireSignedExecutions(p.ctx, true); err != nil {
				t.Fatal(err)
			}
			if _, err := p.repo.UpdateKeys(p.ctx, func(s *settings.Settings) error {
				return s.Trust(settings.TrustedKey{Name: "ci", Key: ci.Public(), AddedAt: time.Now()})
			}); err != nil {
				t.Fatal(err)
			}
			c := p.by("ci", ci)
			c.start()
			if !c.current() {
				t.Fatal("a trusted run has made no proof")
			}
			rec, err := c.repo.Records.Get(c.ctx, proofKey)
			if err != nil {
				t.Fatal(err)
			}
			proof, err := record.DecodeProof(rec.Value)
			if err != nil {
				t.Fatal(err)
			}
			c.overwrite(proofKey, test.forge(c, proof))
			d := p.by("dev", nil)
			if got := d.current(); got != test.count {
				t.Errorf("the proof counts: %t, want %t", got, test.count)
			}
			// A run without a key and with nothing to do leaves the proof valid.
			if res := d.start(); res.Run.Summary.Cached != 1 {
				t.Errorf("the run: %+v", res.Run.Summary)
			}
			if got := d.current(); got != test.count {
				t.Errorf("after a run the proof counts: %t, want %t", got, test.count)
			}
			// The signature covers the list of keys.
			if _, err := d.repo.UpdateKeys(d.ctx, func(s *settings.Settings) error {
				return s.Trust(settings.TrustedKey{Name: "dev", Key: dev.Public(), AddedAt: time.Now()})
			}); err != nil {
				t.Fatal(err)
			}
			if p.by("other", nil).current() {
				t.Error("the proof counts under another list of keys")
			}
		})
	}
}

func newKey(t *testing.T, name string) *signature.Key {
	t.Helper()
	k, err := signature.Generate(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
