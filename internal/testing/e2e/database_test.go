//go:build linux

package e2e

import (
	"net/url"
	"os"
	"strings"
	"testing"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// databaseGraph has tasks that end at a sign.
const databaseGraph = `
e3: 1
name: team
inputs: {a: {value: alpha}}
tasks:
  long:
    in: [a]
    out: long.txt
    matrix: {n: [1, 2]}
    pass_env: [E2E_STATE]
    run: 'echo "long$n" >> "$E2E_STATE/ran"; while ! [ -e "$E2E_STATE/go" ]; do sleep 0.05; done; echo "$a $n" > "$out"'
  last: {in: {parts: "long[*]"}, out: last.txt, pass_env: [E2E_STATE], run: 'echo last >> "$E2E_STATE/ran"; cat "$parts"/* > "$out"'}
`

// TestDatabaseEnds: amid a run with a worker the database's server crashes and is started again, or its synchronous standby takes
// over. Tasks that end meanwhile are not run again.
func TestDatabaseEnds(t *testing.T) {
	suite.Thorough(t)
	for _, how := range []string{"restart", "failover"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var options []string
			if how == "failover" {
				options = []string{"-c", "synchronous_standby_names=*"}
			}
			server := testserver.NewPostgres(t, options...)
			standby := server
			if how == "failover" {
				standby = server.Replica(t)
			}
			u, err := url.Parse(server.Database(t))
			if err != nil {
				t.Fatal(err)
			}
			if how == "failover" {
				u.Host += "," + standby.Address()
			}
			p := newProject(t, map[string]string{"e3.yaml": databaseGraph})
			if err := os.Mkdir(p.path("objects"), 0o700); err != nil {
				t.Fatal(err)
			}
			location := u.Scheme + "://" + u.User.String() + "@" + u.Host + u.Path + "/team?" + u.RawQuery + "&lease=2s"
			p.env = append(p.env, "E3_CACHE_DIR="+p.path("cache"), "E3_STATE_DIR="+p.path("links"), "E2E_STATE="+p.path("state"))
			p.must("init", location+"&objects="+url.QueryEscape(p.path("objects")))
			p.env = append(p.env, "E3_REPO="+location)

			worker := p.spawn("worker", "--json", "-j", "2", "--grace", "200ms")
			worker.waitLine(`"type":"worker.ready"`)
			run := p.spawn("start", "-f", "e3.yaml", "--json", "--workers", "--grace", "200ms")
			eventually(t, patience, "both long tasks", func() string {
				if ran, _ := os.ReadFile(p.path("state/ran")); strings.Count(string(ran), "long") < 2 {
					return string(ran)
				}
				return ""
			})
			server.Crash()
			p.write("state/go", "") // their results have to wait
			worker.waitLine(`"type":"worker.stalled"`)
			if how == "restart" {
				server.Start(t)
			} else {
				standby.Promote(t)
			}
			if r := run.wait(); r.code != 0 {
				t.Errorf("the run ended with exit code %d\n%s", r.code, r.text())
			}
			if r := p.must("get", "team.last"); r.stdout != "alpha 1\nalpha 2\n" {
				t.Errorf("the last task has made %q", r.stdout)
			}
			if ran, err := os.ReadFile(p.path("state/ran")); err != nil || strings.Count(string(ran), "\n") != 3 {
				t.Errorf("these tasks were run: %q, %v; want each once", ran, err)
			}
			p.must("verify")
			worker.kill(false)
		})
	}
}
