package postgres

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5"

	"e3/refstore"
)

// Records that only show that others exist are no rows: TASKS lists the tasks that have executions, INPUTS the inputs of a
// task, RUNS the workspaces that have runs. They are read from the index, by a jump from each name to the next.

// standing is the version of such a record.
const standing = "0"

// names of partitions that are listed as records.
type virtual struct {
	partitions string // what the listed partitions begin with
	first      bool   // only the first segment behind it is listed
}

// listing returns what a partition lists, if it is one of these.
func listing(partition string) (virtual, bool) {
	kind, rest, some := strings.Cut(partition, "/")
	switch {
	case kind == "TASKS" && !some:
		return virtual{"EXECUTION/", true}, true
	case kind == "INPUTS" && some && !strings.Contains(rest, "/"):
		return virtual{"EXECUTION/" + rest + "/", false}, true
	case kind == "RUNS" && !some:
		return virtual{"DATAFLOW/", false}, true
	}
	return virtual{}, false
}

// writable refuses keys of records that are no rows, and of executions and runs that no list would name.
func writable(key refstore.Key) error {
	kind, rest, _ := strings.Cut(key.Partition, "/")
	want := 0
	switch kind {
	case "TASKS", "INPUTS", "RUNS":
		return fmt.Errorf("write %q: a record that stands for others comes and goes with them: %w", key, errors.ErrUnsupported)
	case "EXECUTION":
		want = 2
	case "DATAFLOW":
		want = 1
	default:
		return nil
	}
	segments := strings.Split(rest, "/")
	for _, segment := range segments {
		if segment == "" {
			want = -1
		}
	}
	if len(segments) != want {
		return fmt.Errorf("partition %q: %w: want EXECUTION/<task>/<inputs> or DATAFLOW/<workspace>", key.Partition, refstore.ErrInvalid)
	}
	return nil
}

// listed yields the names of partitions that have records, as q says. Their bytes order them, as long as those of tasks
// are not below "/".
func (s *Store) listed(ctx context.Context, v virtual, q refstore.Query) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if q.Descending {
			var all []string
			for name, err := range s.listed(ctx, v, refstore.Query{Prefix: q.Prefix}) {
				if err != nil {
					yield("", err)
					return
				}
				all = append(all, name)
			}
			for i, name := range q.Select(all) {
				if q.Limit > 0 && i == q.Limit || !yield(name, nil) {
					return
				}
			}
			return
		}
		after, n := q.After, 0
		for {
			from := v.partitions + max(after, q.Prefix)
			if after != "" && after >= q.Prefix {
				from += v.behind()
			}
			size := pages[len(pages)-1]
			if q.Limit > 0 {
				size = min(q.Limit-n, size)
			}
			found, err := s.partitions(ctx, "e3.records", from, beyond(v.partitions+q.Prefix), v, size)
			if err != nil {
				yield("", err)
				return
			}
			for _, partition := range found {
				name := strings.TrimPrefix(partition, v.partitions)
				if v.first {
					name, _, _ = strings.Cut(name, "/")
				}
				if !yield(name, nil) {
					return
				}
				after = name
				n++
			}
			if len(found) < size || n == q.Limit {
				return
			}
		}
	}
}

// behind is what makes a name greater than all partitions that it lists.
func (v virtual) behind() string {
	if v.first {
		return "0" // the next of "/"
	}
	return "\x00"
}

// partitions returns the partitions of a table from one on and below another, in order, at most limit: of those that a
// virtual record lists, one.
func (s *Store) partitions(ctx context.Context, table, from, to string, v virtual, limit int) ([]string, error) {
	next := `t.p || '\x00'::bytea`
	if v.first {
		next = fmt.Sprintf(`substring(t.p FOR position('/'::bytea IN substring(t.p FROM %d)) + %d) || '0'::bytea`, len(v.partitions)+1, len(v.partitions)-1)
	}
	step := func(from string) string {
		return "(SELECT partition FROM " + table + " WHERE repository = $1 AND partition >= " + from + " AND partition < $3 ORDER BY partition LIMIT 1)"
	}
	return rows(ctx, s, "list", `WITH RECURSIVE t(p) AS (
		SELECT `+step("$2")+` UNION ALL SELECT `+step(next)+` FROM t WHERE t.p IS NOT NULL
	) SELECT p FROM t WHERE p IS NOT NULL LIMIT $4`, []any{s.o.Repository, []byte(from), []byte(to), limit}, textRow)
}

func textRow(r pgx.CollectableRow) (string, error) {
	var b []byte
	err := r.Scan(&b)
	return string(b), err
}

// executions is what all partitions of executions begin with.
const executions = "EXECUTION/"

// FindExecutions yields the keys of the executions whose ids begin with prefix, which is in lower case.
func (s *Store) FindExecutions(ctx context.Context, prefix string) iter.Seq2[refstore.Key, error] {
	return s.executions(ctx, executions, "sort >= $4 AND ($5 = ''::bytea OR sort < $5)", []byte(prefix), []byte(beyond(prefix)))
}

// ExecutionsAfter yields the keys of a task's executions with ids greater than id, in no order.
func (s *Store) ExecutionsAfter(ctx context.Context, task, id string) iter.Seq2[refstore.Key, error] {
	return s.executions(ctx, executions+task+"/", "sort > $4", []byte(id))
}

// executions yields the keys of executions in partitions with a prefix. The names of $1 to $3 are those of the repository and of the
// first partition, and of what is behind the last.
func (s *Store) executions(ctx context.Context, partitions, where string, args ...any) iter.Seq2[refstore.Key, error] {
	return func(yield func(refstore.Key, error) bool) {
		args := append([]any{s.o.Repository, []byte(partitions), []byte(beyond(partitions))}, args...)
		keys, err := rows(ctx, s, "list", `SELECT partition, sort FROM e3.records WHERE repository = $1 AND partition >= 'EXECUTION/'::bytea AND partition < 'EXECUTION0'::bytea
			AND partition >= $2 AND partition < $3 AND `+where, args, func(r pgx.CollectableRow) (refstore.Key, error) {
			var partition, sort []byte
			err := r.Scan(&partition, &sort)
			return refstore.Key{Partition: string(partition), Sort: string(sort)}, err
		})
		if err != nil {
			yield(refstore.Key{}, fmt.Errorf("find executions: %w", err))
			return
		}
		for _, key := range keys {
			if !yield(key, nil) {
				return
			}
		}
	}
}
