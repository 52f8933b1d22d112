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

// A start whose repository is a folder with objects in S3 goes on when its session is lost: it takes another one, and stores under
// that what it makes. Its command is begun once.
func TestFolderLosesSession(t *testing.T) {
	suite.Thorough(t)
	t.Parallel()
	p := newProjectBelow(t, inMemory(), map[string]string{"e3.yaml": `
e3: 1
name: long
tasks:
  wait: {out: out.txt, pass_env: [E2E_STATE], run: 'echo begun >>"$E2E_STATE/begun"; until [ -e "$E2E_STATE/go" ]; do sleep 0.05; done; echo done >"$out"'}
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
	x.waitLine(`"type":"run.resumed"`)
	p.write("state/go", "")
	if !x.endsIn(time.Minute) || x.result().code != 0 {
		t.Fatalf("it does not end well\n%s", x.result().text())
	}
	if begun := p.read("state/begun"); begun != "begun\n" {
		t.Errorf("the command was begun %d times, want once", strings.Count(begun, "\n"))
	}
	if r := p.e3("verify", "."); r.code != 0 {
		t.Errorf("verify: exit code %d\n%s", r.code, r.text())
	}
}
