package main

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"e3/internal/testing/testserver"
)

// queueShared compares a cold run of short tasks on a worker with one in a single process, with the same number of commands at
// a time, in repositories of other machines: DynamoDB and S3 behind a network, and PostgreSQL. The time of a start of one
// task is subtracted.
func (b *bench) queueShared() error {
	const each, network = 20, 5 * time.Millisecond
	tasks := min(b.jobs, 500)
	tb := &servers{dir: b.dir}
	defer tb.stop()
	objects := testserver.NewProxy(tb, testserver.GoFakeS3(tb))
	bucket := "&bucket=" + testserver.Name() + "&s3-endpoint=" + url.QueryEscape(objects.URL())
	// compare measures in the repositories that where returns for a name.
	compare := func(store string, where func(name string) string) error {
		var took [2][]time.Duration // with a worker, in one process
		round := func(r, how int) (err error) {
			name := strconv.Itoa(r) + "-" + strconv.Itoa(how)
			dir := filepath.Join(b.dir, "shared", store, name)
			if err := noops(dir, 1, false, ""); err != nil {
				return err
			}
			env := append(testserver.Env(), "E3_CACHE_DIR="+filepath.Join(dir, "cache"), "E3_STATE_DIR="+filepath.Join(dir, "state"))
			t, err := b.newTeam(dir, where(name), env, 0)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, t.dismiss()) }()
			args := []string{"-j", strconv.Itoa(each)}
			if how == 0 {
				args = []string{"--workers"}
				if err := t.hire(each); err != nil {
					return err
				}
			}
			one, _, err := t.start(args...)
			if err == nil {
				err = noops(dir, tasks, false, "")
			}
			if err != nil {
				return err
			}
			all, _, err := t.start(args...)
			took[how] = append(took[how], all-one)
			return err
		}
		for r := range min(b.rounds, 3) {
			for _, how := range [2]int{r % 2, 1 - r%2} {
				if err := round(r, how); err != nil {
					return err
				}
			}
		}
		row(fmt.Sprintf("queue shared, %d, %s (in-process)", tasks, store), median(took[0]), median(took[1]), 1.3,
			fmt.Sprintf("a worker -j %d; %.0f tasks a second", each, float64(tasks)/median(took[0]).Seconds()))
		return nil
	}

	postgres, missing, err := tb.try(testserver.Postgres)
	if err != nil {
		return err
	}
	if missing == nil {
		u, err := url.Parse(postgres)
		if err != nil {
			return err
		}
		err = compare("PostgreSQL", func(name string) string {
			return fmt.Sprintf("postgres://%s@%s%s/%s?%s%s", u.User, u.Host, u.Path, name, u.RawQuery, bucket)
		})
		if err != nil {
			return err
		}
	}
	records := testserver.NewProxy(tb, testserver.Minidyn(tb))
	slow := testserver.Rule{Fault: testserver.DelayBefore, Delay: network}
	records.Faults(1, slow)
	objects.Faults(1, slow)
	table := testserver.Name()
	return compare(fmt.Sprintf("DynamoDB at %v", network), func(name string) string {
		return fmt.Sprintf("dynamodb://%s/%s?lease=10m&endpoint=%s%s", table, name, url.QueryEscape(records.URL()), bucket)
	})
}
