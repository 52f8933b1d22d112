//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/internal/repo"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// The table and the bucket of these tests, which two repositories share.
const rightsTable, rightsBucket = "e3-rights", "e3-rights-objects"

// rights is a project with a shared repository, whose servers ask the policies of doc/rights before each request.
type rights struct {
	*project
	location string // without the name of a repository
	query    string

	bucket *testserver.Proxy
	tables string       // the URL of the server itself
	ahead  atomic.Int64 // nanoseconds that the objects' clock is ahead

	mu       sync.Mutex
	policy   *testserver.Policy // nil: the owner of the account, who may do everything
	accesses []testserver.Access
	denied   []testserver.Access
	used     map[string]bool // parts of the policy
}

// allowed is asked before each request.
func (r *rights) allowed(a testserver.Access) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accesses = append(r.accesses, a)
	if r.policy == nil {
		return true
	}
	parts := r.policy.Allowing(a)
	for _, part := range parts {
		r.used[part] = true
	}
	if parts == nil && !a.Absent {
		r.denied = append(r.denied, a)
	}
	return parts != nil
}

// under runs what follows under a policy.
func (r *rights) under(p *testserver.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.policy = p
}

// take returns what was asked, and refused, since the last time.
func (r *rights) take() (accesses, denied []testserver.Access) {
	r.mu.Lock()
	defer r.mu.Unlock()
	accesses, denied = r.accesses, r.denied
	r.accesses, r.denied = nil, nil
	return accesses, denied
}

// rightsPolicy reads policies of doc/rights as they are for the repository of that name.
func rightsPolicy(t testing.TB, repository string, roles ...string) *testserver.Policy {
	t.Helper()
	all := &testserver.Policy{}
	for _, role := range roles {
		text, err := os.ReadFile(filepath.Join("../../../doc/rights", role+".json"))
		if err != nil {
			t.Fatal(err)
		}
		filled := strings.NewReplacer("REGION", testserver.Region, "ACCOUNT", testserver.Account, "TABLE", rightsTable,
			"BUCKET", rightsBucket, "PREFIX", rightsTable+"/"+repository, "REPOSITORY", repository).Replace(string(text))
		p, err := testserver.ParsePolicy([]byte(filled))
		if err != nil {
			t.Fatalf("%s: %v", role, err)
		}
		all.Statements = append(all.Statements, p.Statements...)
	}
	return all
}

// rightsManifest makes records and logs of all sizes: an output that goes to S3 in parts, a log that does not fit
// into an item, and a run whose record does not.
func rightsManifest() string {
	var text strings.Builder
	text.WriteString(`e3: 1
name: p
version: 1.0.0
inputs:
  a: {file: a.txt}
  n: {value: 3}
tasks:
  first: {in: [a], out: o, run: "cp a.txt o"}
  big: {in: [first], out: b, run: "head -c 17000000 /dev/zero > b"}
  slow: {in: [a], out: s, run: "for i in 1 2 3; do seq 1 3000; sleep 1.1; done; echo hi > s"}
  loud: {in: [n], out: l, run: "seq 1 9000; echo hi > l"}
  gate: {in: [first], out: g, run: "cp o g", approve: true}
`)
	for i := range 400 {
		fmt.Fprintf(&text, "  a_name_that_takes_room_in_the_record_of_a_run_%d: {in: [first], out: s, run: \"cp o s\"}\n", i)
	}
	return text.String()
}

func newRights(t *testing.T) *rights {
	t.Helper()
	r := &rights{project: newProjectBelow(t, inMemory(), map[string]string{"e3.yaml": rightsManifest(), "a.txt": "one\n"}), used: map[string]bool{}}
	objects := testserver.GoFakeS3At(t, func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) })
	r.tables = testserver.Minidyn(t)
	dynamodb, s3 := testserver.NewProxy(t, r.tables), testserver.NewProxy(t, objects)
	dynamodb.Admit(r.allowed)
	s3.Admit(r.allowed)
	r.bucket = s3
	r.location = "dynamodb://" + rightsTable + "/"
	r.query = "?lease=10m&settle=1s&endpoint=" + url.QueryEscape(dynamodb.URL())
	local := r.path("machine")
	r.env = append(append(r.env, testserver.Env()...), "XDG_CONFIG_HOME="+local, repo.CacheDirVariable+"="+local+"/cache", repo.StateDirVariable+"="+local+"/state")
	for _, repository := range []string{"team", "team2"} {
		r.must(0, "init "+r.at(repository)+"&bucket="+rightsBucket+"&s3-endpoint="+url.QueryEscape(s3.URL()))
	}
	return r
}

// at is the location of a repository.
func (r *rights) at(repository string) string { return r.location + repository + r.query }

// args are the words of a command line, in which @ is the repository.
func (r *rights) args(line string) []string {
	args := strings.Fields(line)
	for i := range args {
		switch args[i] {
		case "@":
			args[i] = r.at("team")
		case "@2":
			args[i] = r.at("team2")
		}
	}
	return args
}

// must runs a command line that ends with an exit code.
func (r *rights) must(code int, line string) result {
	r.t.Helper()
	res := r.e3(r.args(line)...)
	if res.code != code {
		_, denied := r.take()
		r.t.Fatalf("e3 %s: exit code %d, want %d; denied: %v\n%s", line, res.code, code, denied, res.text())
	}
	return res
}

// may runs commands that nothing is denied to, apart from a session to readers: they go on without.
func (r *rights) may(lines ...string) {
	r.t.Helper()
	for _, line := range lines {
		r.take()
		r.must(0, line)
		_, denied := r.take()
		for _, a := range denied {
			if keys := a.Context["dynamodb:LeadingKeys"]; len(keys) != 1 || !strings.HasPrefix(keys[0], "LEASE/") {
				r.t.Errorf("e3 %s: denied %s", line, a)
			}
		}
	}
}

// mayNot runs commands that are denied something, say what and which role may do it, and do not try again.
func (r *rights) mayNot(role string, lines ...string) {
	r.t.Helper()
	for _, line := range lines {
		r.take()
		res := r.must(13, line)
		_, denied := r.take()
		if len(denied) == 0 || len(denied) > 32 { // a collection has 16 removals under way, and begins others before it hears of the first
			r.t.Errorf("e3 %s: %d requests were denied: %v", line, len(denied), denied)
			continue
		}
		for _, want := range []string{denied[len(denied)-1].Action, "the policy of a " + role} {
			if !strings.Contains(res.stderr, want) {
				r.t.Errorf("e3 %s does not say %q:\n%s", line, want, res.stderr)
			}
		}
	}
}

// damageFormat removes the copy of the repository's description, as an interrupted init leaves it.
func (r *rights) damageFormat() {
	r.t.Helper()
	client := dynamodb.NewFromConfig(testserver.Config(), func(o *dynamodb.Options) { o.BaseEndpoint = &r.tables })
	_, err := client.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{TableName: aws.String(rightsTable), Key: map[string]types.AttributeValue{
		"PK": &types.AttributeValueMemberS{Value: "FORMAT/team"}, "SK": &types.AttributeValueMemberS{Value: "copy"},
	}})
	if err != nil {
		r.t.Fatal(err)
	}
}

// interruptUpload interrupts a command while it puts a large object: it takes back what it has sent.
func (r *rights) interruptUpload() {
	r.t.Helper()
	r.write("large", strings.Repeat("0123456789abcdef", 1_100_000))
	r.bucket.Faults(1, testserver.Rule{Op: "UploadPart", Fault: testserver.Hang, Times: 1})
	set := r.spawn(r.args("set @ dev.a @large")...)
	for r.bucket.Struck()[testserver.Hang] == 0 {
		select {
		case <-set.ended:
			r.t.Fatalf("set: %s", set.result().text())
		case <-time.After(time.Millisecond):
		}
	}
	if err := set.cmd.Process.Signal(os.Interrupt); err != nil {
		r.t.Fatal(err)
	}
	set.wait()
	r.bucket.Faults(1)
	if n := r.bucket.Calls()["AbortMultipartUpload"]; n != 1 {
		r.t.Fatalf("%d uploads were taken back", n)
	}
}

// readerStarts starts as a reader: on hits of the repository, and on misses that stay on this machine.
func (r *rights) readerStarts() {
	r.t.Helper()
	start := func(want string) {
		r.t.Helper()
		r.take()
		res := r.must(0, "start @ dev --filter first")
		if !strings.Contains(res.stdout, want) || !strings.Contains(res.stderr, "you may not write there (dynamodb:PutItem is missing)") {
			r.t.Fatalf("a reader's start, want %q:\n%s", want, res.text())
		}
		if _, denied := r.take(); len(denied) != 1 {
			r.t.Errorf("a reader's start was denied %v", denied)
		}
	}
	start("1 cached, 0 executed")
	r.write("a.txt", "three\n")
	start("0 cached, 1 executed")
	start("1 cached, 0 executed")
	r.may("status @ dev", "logs @ dev.first", "why @ dev.first", "run @ dev", "events @ dev")
	if res := r.must(0, "get @ dev.first"); res.stdout != "three\n" {
		r.t.Errorf("a reader gets %q of its own", res.stdout)
	}
	r.must(2, "start @ dev --workers")
	r.write("a.txt", "two\n")
}

// TestRights runs the commands of each role under the policies of doc/rights, which name one repository of two in a
// table and a bucket. Every command does what it is for, and is denied what is not its role's; no policy grants
// anything that no command uses, or anything of the other repository.
func TestRights(t *testing.T) {
	suite.Thorough(t)
	r := newRights(t)
	reader, writer, administrator := rightsPolicy(t, "team", "reader"), rightsPolicy(t, "team", "reader", "writer"), rightsPolicy(t, "team", "reader", "writer", "administrator")

	// The other repository has names that a careless pattern takes for this one's.
	r.write("other.yaml", "e3: 1\nname: team\nversion: 1.0.0\ntasks:\n  team: {out: o, run: \"seq 1 9000; echo other > o\"}\n")
	r.take()
	r.must(0, "start @2 -f other.yaml team")
	r.must(0, "workspace export @2 team other.zip")
	r.must(0, "gc @2")
	others, _ := r.take()

	r.under(writer)
	gated := r.spawn(r.args("start @ -f e3.yaml dev")...)
	gated.waitLine("waits for approval")
	r.may("approve @ dev.gate", "status @ dev")
	if res := gated.wait(); res.code != 0 {
		t.Fatalf("start: %s", res.text())
	}
	r.write("a.txt", "two\n")
	workers := r.spawn(r.args("start @ dev --workers")...)
	r.may("worker @ --idle 1s")
	workers.waitLine("waits for approval")
	r.may("cancel @ dev")
	workers.wait()
	r.interruptUpload()
	writes := []string{
		"set @ dev.n 4", "start @ dev --filter loud", "unset @ dev.n", "start @ dev --filter loud", "queue @",
		"package build @ e3.yaml", "package export @ p p.zip", "package remove @ p", "package import @ p.zip", "workspace create @ w2", "workspace deploy @ w2 e3.yaml", "start @ w2 --filter loud",
		"workspace export @ dev ws.zip", "workspace import @ ws.zip w3",
		"pin add @ dev.loud", "workspace remove @ w3", "workspace remove @ w2", "events clean @ --older-than 1s --workspace dev",
	}
	r.may(writes...)
	pinned := regexp.MustCompile(`[0-9a-f-]{36}`).FindString(r.must(0, "pin list @").stdout)
	r.may("pin remove @ " + pinned)

	r.under(reader)
	r.may("list @", "list @ dev", "status @", "status @ dev", "logs @ dev.loud", "logs @ dev.loud --list", "events @", "events @ dev",
		"events @ dev.first", "why @ dev.first", "plan @ dev", "run @ dev", "run @ dev --report report.html", "graph @ dev",
		"history @ dev", "history @ dev.first", "get @ dev.first -o first.out", "get @ dev.big -o big.out", "package list @",
		"package export @ p p2.zip", "workspace list @", "workspace export @ dev ws2.zip", "settings @", "key list @", "queue @",
		"pin list @", "verify @", "diff @ dev", "diff @ dev dev")
	r.mayNot("writer", "set @ dev.n 5", "workspace create @ w4", "workspace deploy @ dev e3.yaml", "workspace import @ ws.zip w4",
		"worker @ --idle 1s", "pin add @ dev.loud")
	r.mayNot("reader", "list @2", "workspace export @2 team other2.zip")
	r.readerStarts()

	r.under(writer)
	r.mayNot("administrator", "settings @ events-retention 1d", "prune @ --keep-last 1", "gc @")
	r.mayNot("reader", "list @2")

	r.under(administrator)
	r.mayNot("reader", "list @2")
	r.may("key generate", "settings @ events-retention 1d", "prune @ --keep-last 1", "workspace remove @ dev", "events clean @ --older-than 1s", "prune @ --older-than 1s")
	// What stands for nothing goes a day after it was seen: the executions of a task, the task, the runs of a workspace.
	for range 3 {
		r.may("gc @")
		r.ahead.Add(int64(25 * time.Hour))
	}
	r.damageFormat()
	r.may("verify @ --repair")
	r.must(0, "init --take-over "+r.at("team"))

	for _, role := range []string{"reader", "writer", "administrator"} {
		p := rightsPolicy(t, "team", role)
		for _, part := range p.Parts() {
			// Blocks of an older e3 are removed.
			if !r.used[part] && part != "RemoveRecords BLOCK/team/*" {
				t.Errorf("%s.json grants what no command uses: %s", role, part)
			}
		}
	}
	if len(others) < 100 {
		t.Fatalf("%d requests of the other repository", len(others))
	}
	for _, a := range others {
		if administrator.Allowing(a) != nil && a.Action != "dynamodb:DescribeTable" && a.Action != "s3:ListBucketMultipartUploads" {
			t.Errorf("of another repository is allowed: %s", a)
		}
	}
}
