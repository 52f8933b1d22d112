package testserver

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// startLimit is how long a server may take until it answers.
const startLimit = 30 * time.Second

// quick tells whether the program is a test with -short. A program that measures has no such flag.
func quick() bool {
	short := flag.Lookup("test.short")
	return short != nil && short.Value.String() == "true"
}

// Dynalite starts a DynamoDB server that enforces the service's limits, and returns its URL. It is the program
// $E3_TEST_DYNALITE, or dynalite on the PATH, or what npm installs. It has no transactions. The quick suite does without.
func Dynalite(tb TB) string {
	tb.Helper()
	if quick() {
		tb.Skipf("no dynalite in the quick suite; ./run-tests --all starts it")
	}
	program, err := find("E3_TEST_DYNALITE", "dynalite", npmDynalite)
	if err != nil {
		tb.Skipf("no dynalite: %v (get it with: npm install --global %s)", err, dynalitePackage)
	}
	patch := filepath.Join(tb.TempDir(), "patch.cjs")
	if err := os.WriteFile(patch, []byte(survive), 0o644); err != nil {
		tb.Fatalf("start dynalite: %v", err)
	}
	// A port that reads as 0 is the kernel's choice; a plain 0 would mean the default.
	p, err := start([]string{fmt.Sprintf("NODE_OPTIONS=--require=%q", patch)}, program, "--host", "127.0.0.1", "--port", " 0", "--createTableMs", "0", "--deleteTableMs", "0", "--updateTableMs", "0")
	if err != nil {
		tb.Fatalf("start dynalite: %v", err)
	}
	tb.Cleanup(func() {
		select {
		case <-p.ended:
			tb.Logf("dynalite has ended during the test: %s", p.text())
		default:
			p.stop()
		}
	})
	url, err := p.said(dynaliteListens)
	if err != nil {
		tb.Fatalf("start dynalite (%s): %v", program, err)
	}
	return url
}

// survive keeps dynalite from ending itself when a client breaks off a request.
const survive = `process.on('uncaughtException', e => {
	if (e.code === 'ECONNRESET') return
	console.error(e)
	process.exit(1)
})
`

var dynaliteListens = regexp.MustCompile(`listening at: (http://\S+)`)

// VersityGW starts an S3 server over a folder of the test's, and returns its URL. It is the program $E3_TEST_VERSITYGW,
// or versitygw on the PATH, or what go installs where $CI or $E3_TEST_INSTALL is set. It verifies signatures. A large put whose condition does not hold it refuses
// before it has read the body, and breaks the connection: now and then the client sees only that. The quick suite does without.
func VersityGW(tb TB) string {
	tb.Helper()
	if quick() {
		tb.Skipf("no versitygw in the quick suite; ./run-tests --all starts it")
	}
	program, err := find("E3_TEST_VERSITYGW", "versitygw", goVersityGW)
	if err != nil {
		tb.Skipf("no versitygw: %v (get it with: go install %s, or set E3_TEST_INSTALL=1)", err, versitygwPackage)
	}
	dir := tb.TempDir()
	// It does not say which port it got, so it is given one that was free a moment ago. Another process may have taken it
	// since: the path that it is asked for its health at is its own.
	var faults error
	for range 5 {
		address, err := freeAddress()
		if err != nil {
			tb.Fatalf("start versitygw: %v", err)
		}
		health := "/" + Name()
		p, err := start(nil, program, "--access", AccessKey, "--secret", SecretKey, "--region", Region, "--port", address,
			"--keep-alive", "--quiet", "--health", health, "posix", dir)
		if err != nil {
			tb.Fatalf("start versitygw: %v", err)
		}
		if err := p.answers("http://" + address + health); err != nil {
			p.stop()
			if strings.Contains(err.Error(), "xattr") {
				tb.Skipf("no versitygw: %s has no extended attributes (set TMPDIR to a folder that has)", dir)
			}
			faults = errors.Join(faults, err)
			continue
		}
		tb.Cleanup(p.stop)
		return "http://" + address
	}
	tb.Fatalf("start versitygw (%s): %v", program, faults)
	return ""
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// find returns the program that a variable names, or that is on the PATH, or that can be installed.
func find(variable, name string, installed *installable) (string, error) {
	if path := os.Getenv(variable); path != "" {
		return path, nil
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return installed.install()
}

// A process is a server that runs beside this process, and no longer than it.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed once it has been waited for

	mu     sync.Mutex
	output bytes.Buffer
	wrote  chan struct{} // closed and replaced with each write
}

// maxOutput bounds what is kept of what a server says.
const maxOutput = 64 << 10

// Write takes what the server says.
func (p *process) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if room := maxOutput - p.output.Len(); room > 0 {
		p.output.Write(data[:min(room, len(data))])
	}
	close(p.wrote)
	p.wrote = make(chan struct{})
	return len(data), nil
}

func (p *process) said(want *regexp.Regexp) (string, error) {
	timeout := time.NewTimer(startLimit)
	defer timeout.Stop()
	for {
		p.mu.Lock()
		m, wrote := want.FindSubmatch(p.output.Bytes()), p.wrote
		p.mu.Unlock()
		if m != nil {
			return string(m[1]), nil
		}
		select {
		case <-wrote:
		case <-p.ended:
			return "", fmt.Errorf("it ended: %s", p.text())
		case <-timeout.C:
			return "", fmt.Errorf("it did not say that it listens within %v: %s", startLimit, p.text())
		}
	}
}

// answers waits until url answers with 200.
func (p *process) answers(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("it ended: %s", p.text())
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer within %v: %s", url, startLimit, p.text())
		}
	}
}

func (p *process) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.TrimSpace(p.output.String())
}

func (p *process) stop() {
	p.cmd.Process.Kill()
	<-p.ended
}

// start runs a program. Where the kernel can see to it, the program does not outlive this process.
func start(env []string, program string, args ...string) (*process, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	return startCommand(cmd)
}

func startCommand(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, ended: make(chan struct{}), wrote: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.WaitDelay = time.Second
	endWithParent(p.cmd)
	started := make(chan error)
	go func() {
		// To the kernel the parent is the thread, so the thread must last as long as the program may.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.ended)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// cacheFolder is where programs are installed.
func cacheFolder() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "e3-test"), nil
}
