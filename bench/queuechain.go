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

// queueChain measures a step of a chain of tasks on DynamoDB and S3 servers with a millisecond of added latency: with a
// worker, and in one process. Run and worker are not notified of each other's work, so a step includes two polling
// waits.
func (b *bench) queueChain() error {
	const steps, network = 40, time.Millisecond
	tb := &servers{dir: b.dir}
	defer tb.stop()
	records, objects := testserver.NewProxy(tb, testserver.Minidyn(tb)), testserver.NewProxy(tb, testserver.GoFakeS3(tb))
	slow := testserver.Rule{Fault: testserver.DelayBefore, Delay: network}
	records.Faults(1, slow)
	objects.Faults(1, slow)
	name := testserver.Name()
	var took [2][]time.Duration // of a step: with a worker, in one process
	round := func(r, how int) error {
		kind := strconv.Itoa(r) + "-" + strconv.Itoa(how)
		dir := filepath.Join(b.dir, "chain", kind)
		if err := noops(dir, steps, true, ""); err != nil {
			return err
		}
		where := fmt.Sprintf("dynamodb://%s/%s?lease=10m&endpoint=%s&bucket=%s&s3-endpoint=%s", name, kind,
			url.QueryEscape(records.URL()), name, url.QueryEscape(objects.URL()))
		env := append(testserver.Env(), "E3_CACHE_DIR="+filepath.Join(dir, "cache"), "E3_STATE_DIR="+filepath.Join(dir, "state"))
		count, args := 1, []string{"--workers"}
		if how == 1 {
			count, args = 0, nil
		}
		t, err := b.newTeam(dir, where, env, count)
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
	row("queue chain, a step (in-process)", median(took[0]), median(took[1]), 0,
		fmt.Sprintf("target: under 30 ms at 1 ms of network; least %s and %s", show(slices.Min(took[0])), show(slices.Min(took[1]))))
	return nil
}
