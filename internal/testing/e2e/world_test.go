//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"e3/internal/repo"
	"e3/internal/testing/testserver"
	"e3/objectstore/s3"
)

// A world is a repository in DynamoDB and S3, or in PostgreSQL and a folder, and the machines that share it.
//
// For root a machine has a network, processes and a host name of its own (namespaces), and reaches the servers over a
// cable that can be pulled: nothing answers any more, and no connection is closed. For others it is a folder with what
// a machine keeps for itself, and proxies before the servers that can be cut; e3 takes its processes for those of one
// machine, which they are.
type world struct {
	t            testing.TB
	dynamodb, s3 string // the servers, as this process reaches them
	postgres     string // the address of a database that has the records in place of DynamoDB; dynamodb is its server
	objects      string // the folder of the objects beside it
	table        string
	lease        time.Duration
	hub          int // the process whose network has the other end of all cables; 0: there are none
	near         [2]string
	proxied      bool // machines have proxies instead of cables
}

// hubAddress is where the servers are for machines with a network of their own.
const hubAddress = "10.33.0.1"

// A machine is a project whose repository is that of its world.
type machine struct {
	*project
	w       *world
	name    string
	first   int                  // the process that all others of the machine end with; 0: it has none
	proxies [2]*testserver.Proxy // where it has no cable
	wire    *testserver.Wire     // likewise, to PostgreSQL
	reaches string               // the repository, as the machine reaches it
	ahead   time.Duration        // of its clock, as its workers and starts see it in schedules
}

// apart tells whether machines get namespaces, which root can make where it is not confined itself.
var apart = sync.OnceValue(func() bool {
	if os.Geteuid() != 0 || os.Getenv("E3_E2E_NAMESPACES") == "0" {
		return false
	}
	for _, program := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return false
		}
	}
	return exec.Command("unshare", "--net", "--pid", "--uts", "--mount", "--fork", "--mount-proc", "true").Run() == nil
})

// newWorld makes a repository whose leases last so long.
func newWorld(t testing.TB, lease time.Duration) *world {
	t.Helper()
	w := newProxiedWorld(t, lease)
	if !apart() {
		return w
	}
	w.proxied = false
	w.hub = w.hold("unshare", "--net", "--", "sh", "-c", "echo ready; exec sleep infinity")
	w.ip(w.hub, "link set lo up", "addr add "+hubAddress+"/32 dev lo")
	for i, server := range []string{w.dynamodb, w.s3} {
		w.near[i] = w.relay(server)
	}
	return w
}

// newProxiedWorld makes a repository whose machines reach the servers through proxies.
func newProxiedWorld(t testing.TB, lease time.Duration) *world {
	t.Helper()
	w := &world{t: t, dynamodb: testserver.Minidyn(t), s3: testserver.GoFakeS3(t), table: testserver.Name(), lease: lease, proxied: true}
	query := url.Values{"endpoint": {w.dynamodb}, "s3-endpoint": {w.s3}, "region": {testserver.Region}, "bucket": {"e3-team"}}
	if _, err := repo.Init(context.Background(), "dynamodb://"+w.table+"/team?"+query.Encode(), repo.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	// Each machine has another name for the servers, by which the table cannot be told from a copy.
	bucket := s3.Open(s3.Options{Config: testserver.Config(), Endpoint: w.s3, Bucket: "e3-team", Prefix: w.table + "/team", PathStyle: true})
	r, err := bucket.OpenBlob(context.Background(), "repository.json", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var owner map[string]string
	if err := json.NewDecoder(r).Decode(&owner); err != nil {
		t.Fatal(err)
	}
	delete(owner, "table")
	text, err := json.Marshal(owner)
	if err == nil {
		err = bucket.PutBlob(context.Background(), "repository.json", text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// newPostgresWorld makes a repository in PostgreSQL and a folder, whose machines reach the server through wires.
func newPostgresWorld(t testing.TB, lease time.Duration) *world {
	t.Helper()
	w := &world{t: t, postgres: testserver.Postgres(t), objects: newProject(t, nil).dir, lease: lease, proxied: true}
	u, err := url.Parse(w.postgres)
	if err != nil {
		t.Fatal(err)
	}
	w.dynamodb = u.Host
	if _, err := repo.Init(context.Background(), w.location(w.dynamodb, "")+"&objects="+url.QueryEscape(w.objects), repo.InitOptions{}); err != nil {
		t.Fatal(err)
	}
	return w
}

// location is the repository, with the servers at the given URLs, or the database at an address.
func (w *world) location(dynamodb, s3 string) string {
	if w.postgres != "" {
		u, err := url.Parse(w.postgres)
		if err != nil {
			w.t.Fatal(err)
		}
		u.Host, u.Path = dynamodb, u.Path+"/team"
		u.RawQuery += "&lease=" + w.lease.String()
		return u.String()
	}
	query := url.Values{"endpoint": {dynamodb}, "s3-endpoint": {s3}, "region": {testserver.Region}, "lease": {w.lease.String()}}
	return "dynamodb://" + w.table + "/team?" + query.Encode()
}

// machine adds a machine with a project in it.
func (w *world) machine(name string, files map[string]string) *machine {
	w.t.Helper()
	m := &machine{project: newProject(w.t, files), w: w, name: name}
	m.env = append(m.env, testserver.Env()...)
	m.env = append(m.env, "E3_CACHE_DIR="+m.path("cache"), "E3_STATE_DIR="+m.path("links"))
	m.location = w.location(w.dynamodb, w.s3)
	m.outside = w.t.TempDir()
	there := w.near
	if apart() {
		m.boot()
	}
	switch {
	case w.postgres != "":
		m.wire = testserver.NewWire(w.t, w.dynamodb)
		there[0] = m.wire.Address()
	case w.proxied:
		for i, server := range []string{w.dynamodb, w.s3} {
			m.proxies[i] = testserver.NewProxy(w.t, server)
			there[i] = m.proxies[i].URL()
		}
	}
	m.reaches = w.location(there[0], there[1])
	m.env = append(m.env, "E3_REPO="+m.reaches)
	return m
}

// boot gives a machine namespaces of its own, and a cable to the hub where there is one.
func (m *machine) boot() {
	m.w.t.Helper()
	namespaces := []string{"--pid", "--uts", "--ipc", "--mount"}
	if !m.w.proxied {
		namespaces = append(namespaces, "--net")
	}
	keeper := m.w.hold(slices.Concat([]string{"unshare"}, namespaces, []string{"--fork", "--kill-child", "--mount-proc", "--",
		"sh", "-c", "hostname " + m.name + " && echo ready && exec sleep infinity"})...)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", keeper, keeper))
	if err == nil {
		_, err = fmt.Sscan(string(children), &m.first)
	}
	if err != nil {
		m.w.t.Fatalf("the first process of machine %s: %v", m.name, err)
	}
	m.enter = slices.Concat([]string{"nsenter", "--target", fmt.Sprint(m.first)}, namespaces, []string{"--", "env", "-C", m.dir})
	if m.w.proxied {
		return
	}
	net := fmt.Sprintf("10.33.%d", 1+m.name[len(m.name)-1])
	m.w.ip(m.w.hub, fmt.Sprintf("link add %s type veth peer name wire netns %d", m.cable(), m.first),
		fmt.Sprintf("addr add %s.1/30 dev %s", net, m.cable()), "link set "+m.cable()+" up")
	m.w.ip(m.first, "link set lo up", "addr add "+net+".2/30 dev wire", "link set wire up", "route add "+hubAddress+" via "+net+".1")
}

// cable is the name of its end in the hub.
func (m *machine) cable() string { return "to-" + m.name[len(m.name)-1:] }

// cut pulls the cable: nothing gets through in either direction, and neither side is told.
func (m *machine) cut() {
	m.w.t.Helper()
	if !m.w.proxied {
		m.w.ip(m.w.hub, "link set "+m.cable()+" down")
		return
	}
	if m.wire != nil {
		m.wire.Stall()
		return
	}
	for _, p := range m.proxies {
		p.Cut()
	}
}

// plug puts the cable back.
func (m *machine) plug() {
	m.w.t.Helper()
	if !m.w.proxied {
		m.w.ip(m.w.hub, "link set "+m.cable()+" up")
		return
	}
	if m.wire != nil {
		m.wire.Release()
		return
	}
	for _, p := range m.proxies {
		p.Restore()
	}
}

// stop has e3 itself not run, while all it has started goes on.
func (m *machine) stop(x *process) { syscall.Kill(x.pid(), syscall.SIGSTOP) }

// wake ends that. A process that waits for e3 may have been stopped with it.
func (m *machine) wake(x *process) {
	syscall.Kill(x.pid(), syscall.SIGCONT)
	if x.inner {
		syscall.Kill(x.cmd.Process.Pid, syscall.SIGCONT)
	}
}

// hold starts a command that says that it is ready and then lasts as long as the test, and returns its process id.
func (w *world) hold(args ...string) int {
	w.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		w.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return cmd.Process.Pid
}

// ip runs commands of ip in the network of a process.
func (w *world) ip(pid int, commands ...string) {
	w.t.Helper()
	cmd := exec.Command("nsenter", "--target", fmt.Sprint(pid), "--net", "--", "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("ip %s: %v\n%s", strings.Join(commands, "; "), err, out)
	}
}

// relay listens in the network of the hub for connections to a server of this process, and returns its URL there.
func (w *world) relay(server string) string {
	w.t.Helper()
	target := strings.TrimPrefix(server, "http://")
	l, err := listenIn(w.hub, hubAddress+":0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(func() {
		cancel()
		l.Close()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go forward(ctx, c, target)
		}
	}()
	return "http://" + l.Addr().String()
}

func forward(ctx context.Context, near net.Conn, target string) {
	defer near.Close()
	far, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		return
	}
	defer far.Close()
	end := context.AfterFunc(ctx, func() { near.Close(); far.Close() })
	defer end()
	go func() {
		io.Copy(far, near)
		far.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(near, far)
}

// listenIn listens in the network of a process. A socket stays in the network that it was made in.
func listenIn(pid int, address string) (net.Listener, error) {
	runtime.LockOSThread()
	home, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer home.Close()
	away, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err == nil {
		defer away.Close()
		err = unix.Setns(int(away.Fd()), unix.CLONE_NEWNET)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	l, err := net.Listen("tcp4", address)
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(back) // the thread must not serve others
	}
	runtime.UnlockOSThread()
	return l, err
}

// open opens the repository as this process reaches it.
func (w *world) open(t testing.TB) *repo.Repo {
	t.Helper()
	dir := t.TempDir()
	r, err := repo.Open(context.Background(), w.location(w.dynamodb, w.s3), repo.Options{Getenv: func(name string) string {
		switch name {
		case repo.CacheDirVariable, repo.StateDirVariable:
			return filepath.Join(dir, name)
		}
		return os.Getenv(name)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// scan asks the server for all keys of the table, and for the names of what is stored under each.
func (w *world) scan(visit func(pk, sk string, attributes []string) error) error {
	if w.postgres != "" {
		return w.scanRows(visit)
	}
	var after any
	for {
		request := map[string]any{"TableName": w.table, "ConsistentRead": true}
		if after != nil {
			request["ExclusiveStartKey"] = after
		}
		var page struct {
			Items            []map[string]struct{ S string }
			LastEvaluatedKey map[string]any
		}
		if err := w.ask("Scan", request, &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			var names []string
			for name := range item {
				names = append(names, name)
			}
			if err := visit(item["PK"].S, item["SK"].S, names); err != nil {
				return err
			}
		}
		if len(page.LastEvaluatedKey) == 0 {
			return nil
		}
		after = page.LastEvaluatedKey
	}
}

// scanRows is scan of a database, whose rows it names as the items of a table.
func (w *world) scanRows(visit func(pk, sk string, attributes []string) error) error {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, w.postgres)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	rows, err := c.Query(ctx, "SELECT '', partition, sort, names FROM e3.records UNION ALL SELECT 'STREAM.', partition, sort, '{}' FROM e3.streams")
	if err != nil {
		return err
	}
	type row struct {
		prefix          string
		partition, sort []byte
		names           [][]byte
	}
	all, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (got row, err error) {
		return got, r.Scan(&got.prefix, &got.partition, &got.sort, &got.names)
	})
	if err != nil {
		return err
	}
	for _, r := range all {
		kind, rest, more := strings.Cut(string(r.partition), "/")
		pk := r.prefix + kind + "/team"
		if more {
			pk += "/" + rest
		}
		var attributes []string
		for _, name := range r.names {
			attributes = append(attributes, "f:"+string(name))
		}
		if err := visit(pk, string(r.sort), attributes); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a request to the DynamoDB server.
func (w *world) ask(operation string, request, answer any) error {
	body, err := jsonOf(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequest(http.MethodPost, w.dynamodb, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.0")
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+operation)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", operation, resp.Status, text)
	}
	return decodeJSON(text, answer)
}
