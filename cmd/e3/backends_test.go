package main

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"e3/internal/host/cgroup"
	"e3/internal/human"
	"e3/internal/repo"
	"e3/internal/testing/testserver"
)

// A backend is a kind of repository for which the scripts are run.
type backend struct {
	name string
	t    testing.TB // its servers stop at its end
	// locate returns the place of a script's repository, by its name; "" is the script's own.
	locate func(s *stage, name string) place
}

// A stage is the environment of one script.
type stage struct {
	script       string
	work         string
	dynamodb, s3 string       // endpoints; "" where there is none
	postgres     string       // the address of a database; "" where there is none
	ahead        atomic.Int64 // nanoseconds by which the clock of S3 is ahead
}

// stageKey is the key under which a script's values hold its stage.
type stageKey struct{}

// A place is the location of a script's repository.
type place struct {
	location string   // the argument that commands take
	init     []string // the arguments of e3 init
	shown    string   // the location in advice
	root     string   // the repository's own name
	objects  string   // URL of the objects if they are not in files
}

// allBackends are the kinds of repositories of doc/design.md §15, by the conditions of scripts.
var allBackends = []string{"folder", "shared", "objects", "postgres"}

// backends returns the backends in E3_TEST_BACKENDS, or else all; with -short only folders.
func backends(t *testing.T) []*backend {
	names := allBackends
	if list := os.Getenv("E3_TEST_BACKENDS"); list != "" {
		names = strings.Split(list, ",")
	} else if testing.Short() {
		names = allBackends[:1]
	}
	var list []*backend
	for _, name := range names {
		b := &backend{name: name, t: t}
		switch name {
		case "folder":
			b.locate = folder
		case "shared":
			b.locate = shared
		case "postgres":
			b.locate = inPostgres
		case "objects":
			b.locate = folderWithBucket
		default:
			t.Fatalf("E3_TEST_BACKENDS has %q; there are %s", name, strings.Join(allBackends, ", "))
		}
		list = append(list, b)
	}
	return list
}

// folder is a repository in the folder of its name.
func folder(s *stage, name string) place {
	location := cmp.Or(name, ".")
	return place{location: location, init: []string{location}, shown: location, root: filepath.Join(s.work, name, repo.DirName)}
}

// folderWithBucket is a repository in a folder whose objects are in S3.
func folderWithBucket(s *stage, name string) place {
	p := folder(s, name)
	prefix := "scripts/" + cmp.Or(name, "main")
	query := url.Values{"endpoint": {s.s3}, "region": {testserver.Region}}
	p.init = append(p.init, "--objects", "s3://e3-objects/"+prefix+"?"+query.Encode())
	p.objects = s.s3 + "/e3-objects/" + prefix + "/objects"
	return p
}

// shared is a repository in DynamoDB and S3. Each script has its own servers, because minidyn handles one request at a
// time. Each repository of a script has its own table, because minidyn scans the whole table for each query.
func shared(s *stage, name string) place {
	path := "e3-" + s.script + "/" + cmp.Or(name, "main")
	// The lease is long, because many scripts run at a time. The end of a process on this machine is detected without
	// the lease.
	query := url.Values{"endpoint": {s.dynamodb}, "region": {testserver.Region}, "lease": {"2m"}}
	p := place{root: "dynamodb://" + path, objects: s.s3 + "/e3-shared/" + path + "/objects"}
	p.location = p.root + "?" + query.Encode()
	p.shown = human.Quoted(p.location)
	query.Set("bucket", "e3-shared")
	query.Set("s3-endpoint", s.s3)
	p.init = []string{p.root + "?" + query.Encode()}
	return p
}

// inPostgres is a repository in the script's database and in S3.
func inPostgres(s *stage, name string) place {
	at, _, _ := strings.Cut(s.postgres, "?")
	name = cmp.Or(name, "main")
	p := place{root: strings.Replace(at, "postgres@", "", 1) + "/" + name, objects: s.s3 + "/e3-shared/" + s.script + "/" + name + "/objects"}
	query := url.Values{"sslmode": {"disable"}, "lease": {"2m"}}
	p.location = at + "/" + name + "?" + query.Encode()
	p.shown = human.Quoted(p.location)
	for key, value := range map[string]string{"bucket": "e3-shared", "prefix": s.script + "/" + name, "s3-endpoint": s.s3, "s3-region": testserver.Region} {
		query.Set(key, value)
	}
	p.init = []string{at + "/" + name + "?" + query.Encode()}
	return p
}

// setup prepares the environment of a script: the variables of its repository, and the default repository of commands.
func (b *backend) setup(env *testscript.Env) error {
	s := &stage{work: env.WorkDir, script: strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")}
	env.Values[stageKey{}] = s
	if b.name != "folder" {
		s.s3 = testserver.GoFakeS3At(b.t, func() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) })
		for _, v := range testserver.Env() {
			name, value, _ := strings.Cut(v, "=")
			env.Setenv(name, value)
		}
	}
	if b.name == "shared" {
		s.dynamodb = testserver.Minidyn(b.t)
	}
	if b.name == "postgres" {
		s.postgres = testserver.Postgres(b.t)
	}
	p := b.locate(s, "")
	env.Setenv(repo.CacheDirVariable, filepath.Join(s.work, ".cache"))
	env.Setenv(repo.StateDirVariable, filepath.Join(s.work, ".state"))
	env.Setenv("E3_REPO", "")
	if b.shared() {
		env.Setenv("E3_REPO", p.location)
	}
	p.describe(env.Setenv, "REPO", "SHOWN", "PLACE")
	env.Setenv("OBJECTS", p.objects)
	return nil
}

// describe sets the variables by which scripts refer to a repository; all but the first are regular expressions.
func (p place) describe(set func(name, value string), location, shown, root string) {
	set(location, p.location)
	set(shown, regexp.QuoteMeta(p.shown))
	set(root, regexp.QuoteMeta(p.root))
}

// newRepo is the command newrepo: e3 init, with the arguments that the backend needs.
func (b *backend) newRepo(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) > 1 {
		ts.Fatalf("usage: newrepo [name]")
	}
	s := ts.Value(stageKey{}).(*stage)
	p := b.locate(s, "")
	if len(args) == 1 {
		p = b.locate(s, args[0])
		p.describe(ts.Setenv, args[0], args[0]+"_shown", args[0]+"_place")
	}
	if err := ts.Exec("e3", append([]string{"init"}, p.init...)...); (err != nil) != neg {
		ts.Fatalf("e3 init %s: %v", strings.Join(p.init, " "), err)
	}
}

// elapse is the command elapse.
func elapse(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: elapse <duration>")
	}
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	ts.Value(stageKey{}).(*stage).ahead.Add(int64(d))
}

// is evaluates the conditions of scripts.
func (b *backend) is(condition string) (bool, error) {
	switch condition {
	case "root":
		return os.Geteuid() == 0, nil
	case "limits": // this machine can hold all limits
		return cgroup.Check() == nil, nil
	}
	if !slices.Contains(allBackends, condition) {
		return false, fmt.Errorf("unknown condition %q", condition)
	}
	return condition == b.name || condition == "shared" && b.shared(), nil
}

// shared reports whether the records are in a database.
func (b *backend) shared() bool { return b.name == "shared" || b.name == "postgres" }
