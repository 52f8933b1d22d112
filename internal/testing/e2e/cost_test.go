//go:build linux

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"e3/executions"
	"e3/internal/jobs/queue"
	"e3/internal/repo"
	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

var updateCosts = flag.Bool("update-costs", false, "rewrite the tables in doc/cost.md")

// costTable is the DynamoDB table, and the bucket, of these tests.
const costTable = "e3-cost"

// A count is how many requests of a kind there were, and the capacity units that they took.
type count struct {
	requests int
	units    float64
}

// counts are those of some command by kind: the operation, and the kind of item or object that it was about.
type counts map[string]count

// kindOf is what a request was about, in two words.
func kindOf(c testserver.Call) string {
	parts := strings.Split(c.Subject, "/")
	kind := parts[0]
	if kind == costTable { // an object, behind the names of the table and the repository
		kind = parts[min(2, len(parts)-1)]
	}
	if kind == queue.Kind && len(parts) > 3 { // behind the names of the repository and of the queue
		kind += "." + parts[3]
	}
	return strings.TrimSpace(c.Operation + " " + kind)
}

// A class is what requests are the same price for.
type class int

const (
	dynamoReads class = iota
	dynamoWrites
	s3Reads
	s3Writes
	free
	classes
)

// classOf tells what a kind of request is charged as.
func classOf(kind string) class {
	operation, _, _ := strings.Cut(kind, " ")
	switch operation {
	case "GetItem", "BatchGetItem", "Query", "Scan":
		return dynamoReads
	case "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem":
		return dynamoWrites
	case "GetObject", "HeadObject", "HeadBucket":
		return s3Reads
	case "DeleteObject", "DeleteObjects", "AbortMultipartUpload", "DescribeTable":
		return free
	}
	return s3Writes
}

// requests is the number of requests of each class.
func (c counts) requests() (sum [classes]int) {
	for kind, n := range c {
		sum[classOf(kind)] += n.requests
	}
	return sum
}

func (c counts) total() (sum int) {
	for _, n := range c {
		sum += n.requests
	}
	return sum
}

// units are those of a class. A server for tests takes none for what finds nothing or fails on its condition; AWS
// does, so each request counts as one at least.
func (c counts) units(of class) (sum float64) {
	for kind, n := range c {
		if classOf(kind) == of {
			sum += max(n.units, float64(n.requests))
		}
	}
	return sum
}

func (c counts) String() string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%6d %-30s %g units\n", c[kind].requests, kind, c[kind].units)
	}
	return b.String()
}

// costs is a project with a shared repository, whose servers count.
type costs struct {
	*project
	location string
	exact    bool   // the server says what capacity requests take
	direct   string // the location past the proxies, where it is taken for a copy
	s3       string // where the objects are, with the proxy in front
	machines int
	names    int
	idle     map[int]string // workspaces by their number of tasks

	mu  sync.Mutex
	now counts
}

// needs is a test that something is missing for.
type needs struct{ testing.TB }

type missing string

func (needs) Skipf(format string, args ...any) { panic(missing(fmt.Sprintf(format, args...))) }

// dynamoServer starts the server that says what capacity requests take or, where it cannot be had, the other one.
func dynamoServer(t testing.TB) (endpoint string, exact bool) {
	defer func() {
		switch why := recover().(type) {
		case nil:
		case missing:
			t.Logf("capacity units are not looked at: %s", why)
			endpoint, exact = testserver.Minidyn(t), false
		default:
			panic(why)
		}
	}()
	return testserver.Dynalite(needs{t}), true
}

func newCosts(t testing.TB, files map[string]string) *costs {
	t.Helper()
	c := &costs{project: newProjectBelow(t, inMemory(), files), now: counts{}, idle: map[int]string{}}
	dynamodb, exact := dynamoServer(t)
	s3 := testserver.GoFakeS3(t)
	c.exact = exact
	proxies := [2]*testserver.Proxy{testserver.NewProxy(t, dynamodb), testserver.NewProxy(t, s3)}
	for _, p := range proxies {
		p.Watch(c.watch)
	}
	// No lease is renewed while something is counted.
	c.location = "dynamodb://" + costTable + "/team?lease=10m&endpoint=" + url.QueryEscape(proxies[0].URL())
	c.direct = "dynamodb://" + costTable + "/team?endpoint=" + url.QueryEscape(dynamodb) + "&s3-endpoint=" + url.QueryEscape(s3)
	c.s3 = "&bucket=" + costTable + "&s3-endpoint=" + url.QueryEscape(proxies[1].URL())
	c.env = append(c.env, testserver.Env()...)
	c.machine()
	c.must("init", c.location+c.s3)
	return c
}

func (c *costs) watch(call testserver.Call) {
	kind := kindOf(call)
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.now[kind]
	c.now[kind] = count{n.requests + 1, n.units + call.Units}
}

// take returns what was counted since the last time.
func (c *costs) take() counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.now
	c.now = counts{}
	return was
}

// machine has all that follows happen on a machine that knows nothing of the repository.
func (c *costs) machine() {
	c.env = slices.DeleteFunc(c.env, func(v string) bool {
		return strings.HasPrefix(v, repo.CacheDirVariable+"=") || strings.HasPrefix(v, repo.StateDirVariable+"=")
	})
	local := c.path(fmt.Sprintf("machine%d", c.machines))
	c.machines++
	c.env = append(c.env, repo.CacheDirVariable+"="+local+"/cache", repo.StateDirVariable+"="+local+"/state")
}

// outside runs in a folder without a package file, because in a clone that the workspace does not follow a warning is
// printed.
func (c *costs) outside(run func() counts) counts {
	c.t.Helper()
	dir := c.dir
	defer func() { c.dir = dir }()
	c.dir = c.t.TempDir()
	return run()
}

// must runs a command that succeeds and returns what it cost. The place of the repository stands for "@".
func (c *costs) must(args ...string) counts { return c.mustEnd(0, args...) }

func (c *costs) mustEnd(code int, args ...string) counts {
	c.t.Helper()
	args = slices.Clone(args)
	for i := range args {
		if args[i] == "@" {
			args[i] = c.location
		}
	}
	c.take()
	if r := c.e3(args...); r.code != code {
		c.t.Fatalf("e3 %s: exit code %d, want %d\n%s", strings.Join(args, " "), r.code, code, r.text())
	}
	return c.take()
}

// name is one that nothing else has.
func (c *costs) name() string {
	c.names++
	return fmt.Sprintf("w%d", c.names)
}

// manifest writes a package file with so many tasks that do the same, and that no other file has.
func (c *costs) manifest(file string, n int, run string) {
	c.t.Helper()
	c.names++
	var items []string
	for i := range n {
		items = append(items, strconv.Itoa(1_000_000*c.names+i))
	}
	c.write(file, fmt.Sprintf("e3: 1\nname: p\ninputs: {a: {file: a.txt}}\ntasks:\n  t: {matrix: {n: [%s]}, in: [a], out: o, run: %s}\n", strings.Join(items, ", "), run))
	c.write("a.txt", "a\n")
}

// sizes are two numbers of tasks whose difference tells what one costs.
type sizes struct{ few, many int }

var (
	executedSizes = sizes{10, 20}
	// Runs of more than events.Bulk tasks have one event for all that is proven.
	commandSizes = sizes{120, 220}
)

// tries is how often something is counted until it is as it should be: a machine that is busy makes some things take
// so long that more is done about them.
const tries = 8

// per is what each of the tasks adds to the counts.
func per(z sizes, a, b counts) (each counts, err error) {
	each = counts{}
	more := z.many - z.few
	for kind := range b {
		d := b[kind].requests - a[kind].requests
		if ofRun(kind) {
			continue
		}
		if kind == "PutObject streams" {
			d -= d % more // beside the logs of tasks, a piece of the run's events, in which many have ended at once
		}
		if d%more != 0 {
			return nil, fmt.Errorf("%s: %d for %d tasks, %d for %d", kind, a[kind].requests, z.few, b[kind].requests, z.many)
		}
		if d != 0 {
			each[kind] = count{d / more, (b[kind].units - a[kind].units) / float64(more)}
		}
	}
	return each, nil
}

// ofRun tells whether how many requests there are depends on how long the run takes: it appends its events each
// second, and looks as often whether it is cancelled.
func ofRun(kind string) bool {
	return strings.HasSuffix(kind, " STREAM.EVENTS") || strings.HasSuffix(kind, " CANCEL")
}

// A costDoc is doc/cost.md.
type costDoc struct {
	path, text string
}

func openCostDoc(t *testing.T) *costDoc {
	t.Helper()
	d := &costDoc{path: "../../../doc/cost.md"}
	data, err := os.ReadFile(d.path)
	if err != nil {
		t.Fatal(err)
	}
	d.text = string(data)
	return d
}

// rows are those of the table behind a marker, cell by cell, without its head.
func (d *costDoc) rows(t *testing.T, name string) (rows [][]string) {
	t.Helper()
	_, table, ok := strings.Cut(d.text, "<!-- counted: "+name+" -->\n")
	if !ok {
		t.Fatalf("doc/cost.md has no table %q", name)
	}
	for i, line := range strings.Split(table, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if i >= 2 {
			rows = append(rows, cells(line))
		}
	}
	return rows
}

func cells(line string) (list []string) {
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		list = append(list, strings.TrimSpace(cell))
	}
	return list
}

// hold compares the table behind a marker with what was counted, or rewrites it. ignored says which cells cannot be
// compared.
func (d *costDoc) hold(t *testing.T, name string, rows [][]string, ignored func(row, cell int) bool) {
	t.Helper()
	was := d.rows(t, name)
	if *updateCosts {
		marker := "<!-- counted: " + name + " -->\n"
		before, table, _ := strings.Cut(d.text, marker)
		head := strings.SplitAfterN(table, "\n", 3)
		rest := head[2]
		for strings.HasPrefix(rest, "|") {
			_, rest, _ = strings.Cut(rest, "\n")
		}
		var b strings.Builder
		for _, row := range rows {
			b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		}
		d.text = before + marker + head[0] + head[1] + b.String() + rest
		if err := os.WriteFile(d.path, []byte(d.text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if len(was) != len(rows) {
		t.Errorf("the table %q in doc/cost.md has %d rows, %d were counted; rewrite it with: go test ./internal/testing/e2e -run Cost -update-costs", name, len(was), len(rows))
		return
	}
	for i, row := range rows {
		for k := range row {
			if (ignored == nil || !ignored(i, k)) && (k >= len(was[i]) || was[i][k] != row[k]) {
				t.Errorf("doc/cost.md, table %q: it has the row %q, and it is %q; rewrite it with: go test ./internal/testing/e2e -run Cost -update-costs", name, was[i], row)
				break
			}
		}
	}
}

// cell shows a number; none is left out.
func cell(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// A priced command is one whose cost is in the table.
type pricedCommand struct {
	name string
	// do makes things ready for n tasks, and returns what the command itself cost.
	do func(c *costs, n int) counts
}

// proven returns a workspace of n tasks whose latest two runs had nothing to do.
func (c *costs) proven(n int) string {
	ws, ok := c.idle[n]
	if !ok {
		ws = c.cached(n)
		c.idle[n] = ws
		c.must("start", "@", ws)
	}
	c.must("start", "@", ws)
	return ws
}

// cached makes a workspace of n tasks, all of which have been executed in another one.
func (c *costs) cached(n int) string {
	file := c.cachedFile(n)
	if _, err := os.Stat(c.path(file)); errors.Is(err, os.ErrNotExist) {
		c.manifest(file, n, shell("echo {n} > {out}"))
		first := c.name()
		c.must("workspace", "create", "@", first)
		c.must("workspace", "deploy", "@", first, file)
		c.must("start", "@", first)
	}
	ws := c.name()
	c.must("workspace", "create", "@", ws)
	c.must("workspace", "deploy", "@", ws, file)
	return ws
}

// unproven is cached where no proof stands, of no workspace.
func (c *costs) unproven(n int) string {
	c.t.Helper()
	ws := c.cached(n)
	r := c.open(c.location)
	end, err := executions.NewGeneration(r.Records, r.Records).Begin(c.t.Context())
	if err == nil {
		end()
	}
	if err := errors.Join(err, r.Close()); err != nil {
		c.t.Fatal(err)
	}
	return ws
}

func (c *costs) cachedFile(n int) string { return fmt.Sprintf("cached%d.yaml", n) }

// of runs a command in a workspace that is proven.
func of(args ...string) func(c *costs, n int) counts {
	return func(c *costs, n int) counts {
		ws := c.proven(n)
		list := slices.Clone(args)
		for i := range list {
			list[i] = strings.ReplaceAll(list[i], "WS", ws)
		}
		return c.must(list...)
	}
}

var pricedCommands = []pricedCommand{
	{"`e3 start`, nothing changed", of("start", "@", "WS")},
	{"… on a machine that knows nothing of the repository", func(c *costs, n int) counts {
		ws, here := c.proven(n), slices.Clone(c.env)
		defer func() { c.env = here }()
		c.machine()
		return c.outside(func() counts { return c.must("start", "@", ws) })
	}},
	{"… all cached, and proven in another workspace only", func(c *costs, n int) counts {
		c.proven(n)
		return c.must("start", "@", c.cached(n))
	}},
	{"… all cached, but nothing proven", func(c *costs, n int) counts { return c.must("start", "@", c.unproven(n)) }},
	{"… one of n tasks edited", func(c *costs, n int) counts {
		ws := c.name()
		file, text := ws+".yaml", c.read(c.cachedFile(n))
		c.write(file, text)
		c.must("workspace", "create", "@", ws)
		c.must("workspace", "deploy", "@", ws, file)
		c.must("start", "@", ws)
		c.names++
		c.write(file, strings.Replace(text, "["+c.firstItem(n)+",", "["+strconv.Itoa(1_000_000*c.names)+",", 1))
		return c.must("start", "@", ws)
	}},
	{"`e3 plan`", of("plan", "@", "WS")},
	{"… nothing proven", func(c *costs, n int) counts { return c.must("plan", "@", c.unproven(n)) }},
	{"`e3 status`", of("status", "@", "WS")},
	{"`e3 list` of the datasets", of("list", "@", "WS")},
	{"`e3 run`", of("run", "@", "WS")},
	{"`e3 logs` of a task", func(c *costs, n int) counts {
		ws := c.proven(n)
		return c.must("logs", "@", ws+".t["+c.firstItem(n)+"]")
	}},
	{"`e3 get` of an output", func(c *costs, n int) counts {
		ws := c.proven(n)
		return c.must("get", "@", ws+".t["+c.firstItem(n)+"]")
	}},
	{"`e3 set` of a file", func(c *costs, n int) counts { return c.must("set", "@", c.cached(n)+".a", "@b.txt") }},
	{"`e3 history` of 5 runs", func(c *costs, n int) counts {
		ws := c.cached(n)
		for range 5 {
			c.must("start", "@", ws)
		}
		return c.must("history", "@", ws)
	}},
	{"`e3 workspace create`", func(c *costs, n int) counts { return c.must("workspace", "create", "@", c.name()) }},
	{"`e3 workspace deploy` of a file, n new tasks", func(c *costs, n int) counts {
		ws := c.name()
		c.must("workspace", "create", "@", ws)
		c.manifest("new.yaml", n, shell("echo {n} > {out}"))
		return c.must("workspace", "deploy", "@", ws, "new.yaml")
	}},
	{"`e3 workspace export`, n executions", func(c *costs, n int) counts {
		ws := c.proven(n)
		c.must("workspace", "export", "@", ws, c.name()+".zip") // whose objects this machine has copies of from now on
		return c.must("workspace", "export", "@", ws, c.name()+".zip")
	}},
	{"`e3 workspace import`, n executions that are new here", func(c *costs, n int) counts {
		other := c.name()
		c.must("workspace", "export", "@", c.proven(n), other+".zip")
		there := strings.Replace(c.location, "/team?", "/"+other+"?", 1)
		c.must("init", there+c.s3)
		return c.must("workspace", "import", there, other+".zip")
	}},
}

// firstItem is the first item of the matrix of n tasks that are cached.
func (c *costs) firstItem(n int) string {
	return regexp.MustCompile(`\[(\d+)`).FindStringSubmatch(c.read(c.cachedFile(n)))[1]
}

// TestCostOfCommands lists how many requests commands make, whatever the workspace, and for each of its tasks.
func TestCostOfCommands(t *testing.T) {
	suite.Thorough(t)
	if raceBuild {
		t.Skip("run without -race: it makes the program so slow that what is done each second outweighs the rest")
	}
	doc := openCostDoc(t)
	c := newCosts(t, map[string]string{"b.txt": "b\n"})
	if !c.exact {
		t.Skip("needs dynalite (install npm): the other server goes over its whole table for each query, and what is done each second outweighs the rest")
	}
	want := doc.rows(t, "commands")
	var rows [][]string
	for i, command := range pricedCommands {
		var row []string
		var err error
		for range tries {
			a, b := command.do(c, commandSizes.few), command.do(c, commandSizes.many)
			if row, err = commandRow(command.name, a, b); err != nil {
				continue
			}
			if *updateCosts || i < len(want) && slices.Equal(row[:6], want[i][:6]) {
				t.Logf("%s:\n%s", command.name, a)
				break
			}
			t.Logf("%s, %d and %d tasks:\n%s\n%s", command.name, commandSizes.few, commandSizes.many, a, b)
		}
		if err != nil {
			t.Errorf("%s: %v", command.name, err)
			return
		}
		if i < len(want) && !*updateCosts { // what the units are depends on how long names are, too
			row[6] = nearly(row[6], want[i][6])
		}
		rows = append(rows, row)
	}
	doc.hold(t, "commands", rows, nil)
}

// commandRow is what a command costs, as a formula of the number of tasks.
func commandRow(name string, a, b counts) ([]string, error) {
	row, few, many := []string{name}, commandSizes.few, commandSizes.many
	x, y := a.requests(), b.requests()
	x, y = withSum(x), withSum(y)
	for _, class := range []class{dynamoReads, dynamoWrites, s3Reads, s3Writes, free} { // free holds the sum by now
		d := y[class] - x[class]
		each := d / (many - few)
		if d%(many-few) != 0 {
			return nil, fmt.Errorf("%d requests for %d tasks, %d for %d:\n%s\n%s", x[class], few, y[class], many, a, b)
		}
		row = append(row, formula(x[class]-each*few, each))
	}
	return append(row, fmt.Sprintf("%g / %g", a.units(dynamoReads), a.units(dynamoWrites))), nil
}

// withSum has the sum of all in the place of what is free.
func withSum(n [classes]int) [classes]int {
	sum := 0
	for _, k := range n {
		sum += k
	}
	n[free] = sum
	return n
}

func formula(fixed, each int) string {
	var parts []string
	if fixed != 0 {
		parts = append(parts, strconv.Itoa(fixed))
	}
	switch each {
	case 0:
	case 1:
		parts = append(parts, "n")
	default:
		parts = append(parts, strconv.Itoa(each)+"n")
	}
	return strings.Join(parts, " + ")
}

// nearly is want where got is not far from it, else got: two pairs of units.
func nearly(got, want string) string {
	var a, b, x, y float64
	if _, err := fmt.Sscanf(got, "%g / %g", &a, &b); err != nil {
		return got
	}
	if _, err := fmt.Sscanf(want, "%g / %g", &x, &y); err != nil {
		return got
	}
	if math.Abs(a-x) > max(2, x/5) || math.Abs(b-y) > max(2, y/5) {
		return got
	}
	return want
}
