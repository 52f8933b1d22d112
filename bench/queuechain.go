package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"e3/internal/testing/testserver"
)

// queueChain measures a step of a chain of tasks, with a worker, and in one process. Where run and worker are not notified
// of each other's work, a step includes two polling waits.
func (b *bench) queueChain() error {
	tb := &servers{dir: b.dir}
	defer tb.stop()
	if err := b.chainOnPostgres(tb); err != nil {
		return err
	}
	return b.chainOnDynamo(tb)
}

// chainOnPostgres has no network between the servers and the programs.
func (b *bench) chainOnPostgres(tb *servers) error {
	u, err := url.Parse(testserver.Postgres(tb))
	if err != nil {
		return err
	}
	query := url.Values{"sslmode": {"disable"}, "s3-endpoint": {testserver.GoFakeS3(tb)}, "s3-region": {testserver.Region}, "bucket": {testserver.Name()}}
	return b.chain("queue chain on PostgreSQL, a step (in-process)", "target: at most 20 ms", func(kind string) string {
		return u.Scheme + "://" + u.User.String() + "@" + u.Host + u.Path + "/" + kind + "?" + query.Encode()
	})
}

// chainOnDynamo has servers with a millisecond of added latency.
func (b *bench) chainOnDynamo(tb *servers) error {
	records, objects := testserver.NewProxy(tb, testserver.Minidyn(tb)), testserver.NewProxy(tb, testserver.GoFakeS3(tb))
	slow := testserver.Rule{Fault: testserver.DelayBefore, Delay: time.Millisecond}
	records.Faults(1, slow)
	objects.Faults(1, slow)
	name := testserver.Name()
	return b.chain("queue chain, a step (in-process)", "target: under 30 ms at 1 ms of network", func(kind string) string {
		return fmt.Sprintf("dynamodb://%s/%s?lease=10m&endpoint=%s&bucket=%s&s3-endpoint=%s", name, kind,
			url.QueryEscape(records.URL()), name, url.QueryEscape(objects.URL()))
	})
}

// chain measures in repositories at the given locations.
func (b *bench) chain(what, target string, location func(kind string) string) error {
	const steps = 40
	folder, err := os.MkdirTemp(b.dir, "chain-")
	if err != nil {
		return err
	}
	var took [2][]time.Duration // of a step: with a worker, in one process
	round := func(r, how int) error {
		kind := strconv.Itoa(r) + "-" + strconv.Itoa(how)
		dir := filepath.Join(folder, kind)
		if err := noops(dir, steps, true, ""); err != nil {
			return err
		}
		env := append(testserver.Env(), "E3_CACHE_DIR="+filepath.Join(dir, "cache"), "E3_STATE_DIR="+filepath.Join(dir, "state"))
		count, args := 1, []string{"--workers"}
		if how == 1 {
			count, args = 0, nil
		}
		t, err := b.newTeam(dir, location(kind), env, count)
		if err != nil {
			return err
		}
		// The time of a start without tasks is subtracted.
		nothing, err := os.ReadFile(filepath.Join(dir, "e3.yaml"))
		if err == nil {
			err = noops(dir, 1, true, "")
		}
		var one, all time.Duration
		if err == nil {
			one, _, err = t.start(args...)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "e3.yaml"), nothing, 0o644)
		}
		if err == nil {
			all, _, err = t.start(args...)
		}
		if err = errors.Join(err, t.dismiss()); err != nil {
			return err
		}
		took[how] = append(took[how], (all-one)/(steps-1))
		return nil
	}
	for r := range min(b.rounds, 3) {
		for _, how := range [2]int{r % 2, 1 - r%2} {
			if err := round(r, how); err != nil {
				return err
			}
		}
	}
	row(what, median(took[0]), median(took[1]), 0,
		fmt.Sprintf("%s; least %s and %s", target, show(slices.Min(took[0])), show(slices.Min(took[1]))))
	return nil
}
