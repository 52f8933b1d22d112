//go:build linux

package e2e

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
	"e3/refstore"
	reffs "e3/refstore/fs"
	"e3/refstore/lease"
)

// A start whose repository is a folder with objects in S3 ends when its session is lost, and says so: what it goes on to make could
// be collected before anything names it. The locks were its own all the time, and the next start makes good what it left.
func TestFolderLosesSession(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	p := newProjectBelow(t, inMemory(), map[string]string{"e3.yaml": `
e3: 1
name: long
tasks:
  wait: {out: out.txt, pass_env: [E2E_STATE], run: 'echo begun >>"$E2E_STATE/begun"; [ -e "$E2E_STATE/go" ] || sleep 600; echo done >"$out"'}
`})
	p.env = append(p.env, testserver.Env()...)
	query := url.Values{"endpoint": {testserver.GoFakeS3(t)}, "region": {testserver.Region}}
	if r := p.e3("init", ".", "--objects", "s3://e3-team/long?"+query.Encode()); r.code != 0 {
		t.Fatal(r.text())
	}
	x := p.begin()
	records, err := reffs.Open(p.repository(), reffs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	for r, err := range records.List(t.Context(), refstore.Query{Partition: lease.Kind + "/sessions"}) {
		if err == nil {
			err = records.Delete(t.Context(), r.Key, r.Version)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !x.endsIn(20 * time.Second) {
		t.Fatalf("it goes on\n%s", x.result().text())
	}
	if r := x.result(); r.code != 11 || !strings.Contains(r.stderr, "the lease was lost") {
		t.Errorf("exit code %d, want 11 and a word about its lease\n%s", r.code, r.text())
	}
	p.write("state/go", "")
	p.start(0)
	if r := p.e3("verify", "."); r.code != 0 {
		t.Errorf("verify: exit code %d\n%s", r.code, r.text())
	}
}
