//go:build linux

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
)

// An executed case is a way for a task to run.
type executedCase struct {
	name string
	run  string
	code int // of the start
}

// shell is the command of a task that takes less to start than a script.
func shell(script string) string { return `[sh, -c, "` + script + `"]` }

var executedCases = []executedCase{
	{"short", shell("echo {n} > {out}"), 0},
	{"prints", shell("echo hello; echo {n} > {out}"), 0},
	{"fails", shell("exit 3"), 1},
	{"long", shell("sleep 0.5; echo {n} > {out}"), 0},
	{"long, prints", shell("echo hello; sleep 0.5; echo {n} > {out}"), 0},
	{"prints 1 MB", shell("head -c 1000000 /dev/zero; echo {n} > {out}"), 0},
}

// executedKinds are the requests of executed tasks, in the order of the table, and what they are for.
var executedKinds = [][2]string{
	{"Query EXECUTION", "what is known of the key: when it is looked up, under the claim, and after the record"},
	{"PutItem LEASE", "the claim of the key; of a long one, that of the execution"},
	{"DeleteItem LEASE", "their ends"},
	{"BatchWriteItem TASKS", "the task and its inputs have executions, and under which key this one is: three items"},
	{"PutItem EXECUTION", "the record, with up to 64 KiB of each log: of a long one that it runs, else its outcome"},
	{"UpdateItem EXECUTION", "the outcome of a long one"},
	{"PutItem PARTITION.LOG", "it has logs of their own"},
	{"PutItem STREAM.LOG", "a log, each second while it grows; its end"},
	{"PutObject streams", "a piece of a log"},
	{"GetObject objects", "the task object, unless there is a copy on this machine"},
	{"PutObject objects", "the output, unless it was put before"},
}

// TestCostOfExecutedTasks lists the requests of one executed task, on a machine that has no copies of objects.
func TestCostOfExecutedTasks(t *testing.T) {
	doc := openCostDoc(t)
	c := newCosts(t, nil)
	rows, each := c.perTask(t, doc.rows(t, "executed"), executedKinds, executedCases, func(test executedCase, ws string) counts {
		return c.outside(func() counts {
			c.machine()
			return c.mustEnd(test.code, "start", "@", ws, "--publish=final", "-j", "20")
		})
	})
	reads, writes := []string{"read units", ""}, []string{"write units", ""}
	for _, e := range each {
		reads, writes = append(reads, fmt.Sprint(e.units(dynamoReads))), append(writes, fmt.Sprint(e.units(dynamoWrites)))
	}
	was := doc.rows(t, "executed")
	doc.hold(t, "executed", append(rows, reads, writes), func(row, k int) bool {
		return row >= len(executedKinds) && (!c.exact || row == len(executedKinds)+1 && k < len(was[row]) && oneMore(writes[k], was[row][k]))
	})
	holdPrices(t, c, doc)
}

// oneMore tells whether a number of units is one more than is written: the record of a long task is nearly 1 KiB, and longer where the machine's names are.
func oneMore(units, written string) bool {
	n, err := strconv.Atoi(units)
	return err == nil && strconv.Itoa(n-1) == written
}

// perTask returns the rows of a table: how many requests of each of these kinds, and no other, one task makes that is executed in each of these ways by
// run; and all that each makes. On a busy machine things are looked at again: what the table says is right if it is so at one time, or is the least of several.
func (c *costs) perTask(t *testing.T, table [][]string, kinds [][2]string, cases []executedCase, run func(test executedCase, ws string) counts) (rows [][]string, each []counts) {
	t.Helper()
	rows = make([][]string, len(kinds))
	for i, kind := range kinds {
		rows[i] = []string{"`" + kind[0] + "`", kind[1]}
	}
	for k, test := range cases {
		agrees := func(task counts) bool {
			for i, kind := range kinds {
				if i >= len(table) || k+2 >= len(table[i]) || table[i][k+2] != cell(task[kind[0]].requests) {
					return false
				}
			}
			return true
		}
		var task counts
		var err error
		var lowest [2]counts
	counting:
		for range tries {
			var now [2]counts
			for i, n := range []int{executedSizes.few, executedSizes.many} {
				ws := c.name()
				c.manifest("e3.yaml", n, test.run)
				c.must("workspace", "create", "@", ws)
				c.must("workspace", "deploy", "@", ws, "e3.yaml")
				now[i] = run(test, ws)
				lowest[i] = least(lowest[i], now[i])
			}
			for _, two := range [][2]counts{now, lowest} {
				if task, err = per(executedSizes, two[0], two[1]); err == nil && (*updateCosts || agrees(task)) {
					break counting
				}
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		t.Logf("%s:\n%s", test.name, task)
		for kind := range task {
			if !slices.ContainsFunc(kinds, func(k [2]string) bool { return k[0] == kind }) {
				t.Errorf("%s: the table has no row for %s", test.name, kind)
			}
		}
		for i, kind := range kinds {
			rows[i] = append(rows[i], cell(task[kind[0]].requests))
		}
		each = append(each, task)
	}
	return rows, each
}

// least is what was asked at any rate, of each kind.
func least(a, b counts) counts {
	if a == nil {
		return b
	}
	both := counts{}
	for kind, n := range a {
		if b[kind].requests < n.requests {
			n = b[kind]
		}
		if n.requests > 0 {
			both[kind] = n
		}
	}
	return both
}

// The prices are those that doc/cost.md states, in dollars for a million.
const (
	priceWrite = 0.625 // units
	priceRead  = 0.125 // units
	pricePut   = 5.0
	priceGet   = 0.4
)

// holdPrices has the table of prices follow from that of requests.
func holdPrices(t *testing.T, c *costs, doc *costDoc) {
	t.Helper()
	if !c.exact && *updateCosts {
		return
	}
	counted := doc.rows(t, "executed")
	number := func(row []string, k int) float64 {
		n, err := strconv.ParseFloat(row[k+2], 64)
		if err != nil && row[k+2] != "" {
			t.Fatalf("doc/cost.md: %q is no number", row[k+2])
		}
		return n
	}
	var rows [][]string
	add := func(what string, reads, writes, gets, puts float64) {
		sum := 0.0
		row := []string{what}
		for _, dollars := range []float64{reads * priceRead, writes * priceWrite, gets * priceGet, puts * pricePut} {
			sum += dollars
			row = append(row, dollarsOf(dollars))
		}
		rows = append(rows, append(row, "**"+dollarsOf(sum)+"**"))
	}
	add("looked up and found", 1, 0, 0, 0)
	for k, test := range executedCases {
		var sum [classes]float64
		for i, kind := range executedKinds {
			sum[classOf(kind[0])] += number(counted[i], k)
		}
		n := len(executedKinds)
		add(test.name, number(counted[n], k), number(counted[n+1], k), sum[s3Reads], sum[s3Writes])
	}
	doc.hold(t, "prices", rows, nil)
}

func dollarsOf(v float64) string {
	if v == 0 {
		return ""
	}
	return "$" + strconv.FormatFloat(v, 'f', 2, 64)
}
