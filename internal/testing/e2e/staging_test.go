//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"e3/internal/testing/suite"
	"e3/internal/testing/testserver"
)

// TestStagingOverlaps shows that a machine fetches the inputs of tasks that wait for their turn while others run: tasks
// of 0.2 s that read 500 kB each take little longer than the same tasks on small inputs, or than tasks that only
// read these inputs, whichever is more. The servers are 20 ms away, and S3 sends 10 MB a second: as long as 5 MB take at
// 100 MB a second, without the work of a large server on this machine.
func TestStagingOverlaps(t *testing.T) {
	suite.Thorough(t)
	if raceBuild {
		t.Skip("run without -race: it measures time")
	}
	const (
		tasks   = 40
		size    = 500_000
		latency = 20 * time.Millisecond
		rate    = 10_000_000
		most    = 1.2
	)
	random := rand.NewChaCha8([32]byte{})
	files := map[string]string{}
	manifest := func(kind, run string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "e3: 1\nname: p%s\ninputs:\n", kind)
		for i := range tasks {
			fmt.Fprintf(&b, "  i%d: {file: %s%[1]d.bin}\n", i, kind)
		}
		b.WriteString("tasks:\n")
		for i := range tasks {
			fmt.Fprintf(&b, "  t%d: {in: [i%[1]d], out: out.txt, run: '%s'}\n", i, run)
		}
		return b.String()
	}
	for i := range tasks {
		content := make([]byte, size)
		if _, err := random.Read(content); err != nil {
			t.Fatal(err)
		}
		files[fmt.Sprintf("large%d.bin", i)], files[fmt.Sprintf("small%d.bin", i)] = string(content), fmt.Sprint(i)
	}
	files["both.yaml"] = manifest("large", `sleep 0.2; echo > "$out"`)
	files["running.yaml"] = manifest("small", `sleep 0.2; echo > "$out"`)
	files["staging.yaml"] = manifest("large", `echo > "$out"`)
	c := &costs{project: newProjectBelow(t, inMemory(), files), now: counts{}, idle: map[int]string{}}
	dynamodb := testserver.NewProxy(t, testserver.Minidyn(t))
	s3 := testserver.NewProxy(t, testserver.GoFakeS3(t))
	c.location = "dynamodb://" + costTable + "/team?lease=10m&endpoint=" + url.QueryEscape(dynamodb.URL())
	c.env = append(c.env, testserver.Env()...)
	c.machine()
	c.must("init", c.location+"&bucket="+costTable+"&s3-endpoint="+url.QueryEscape(s3.URL()))
	for _, ws := range []string{"both", "running", "staging"} {
		c.must("workspace", "create", "@", ws)
		c.must("workspace", "deploy", "@", ws, ws+".yaml")
	}
	for _, p := range []*testserver.Proxy{dynamodb, s3} {
		p.Faults(1, testserver.Rule{Fault: testserver.DelayBefore, Delay: latency})
	}
	s3.Bandwidth(rate)
	measure := func() (ratio float64) {
		took := map[string]time.Duration{}
		for _, ws := range []string{"running", "staging", "both"} {
			c.machine()
			began := time.Now()
			c.outside(func() counts { return c.must("start", "@", ws, "-j", "4", "--force") })
			took[ws] = time.Since(began)
		}
		greater := max(took["running"], took["staging"])
		ratio = took["both"].Seconds() / greater.Seconds()
		t.Logf("%d tasks of 0.2 s, 4 at a time, that read 500 kB each at 10 MB/s: %v; running alone %v, staging alone %v: %.2f × the greater", tasks,
			took["both"].Round(time.Millisecond), took["running"].Round(time.Millisecond), took["staging"].Round(time.Millisecond), ratio)
		return ratio
	}
	const tries = 3 // what else this machine does disturbs one of them
	ratio := measure()
	for n := 1; n < tries && ratio > most; n++ {
		ratio = min(ratio, measure())
	}
	if ratio > most {
		t.Errorf("staging and running together take %.2f × the greater of both, want at most %.1f", ratio, most)
	}
}
