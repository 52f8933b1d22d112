// Package browser drives a headless Chromium for tests, over the pipe of its debugging protocol: no port is opened.
package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"
)

// patience is how long an answer of the browser may take on a machine that is busy with other tests.
const patience = 90 * time.Second

// A Tab is a page in a browser of its own. Its methods fail the test; they are for one goroutine.
type Tab struct {
	t       testing.TB
	out     io.Writer
	session string

	mu      sync.Mutex
	id      int
	waiting map[int]chan answer
	events  map[string]int    // how often each event has come
	came    chan struct{}     // closed with the next event
	said    []string          // messages of the page's console, and of its policy
	traced  []json.RawMessage // batches of events of a trace
}

type answer struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Open starts a browser with an empty tab. Without one the test is skipped, and says what is missing.
func Open(t testing.TB) *Tab {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if at, err := exec.LookPath(name); err == nil {
			program = at
			break
		}
	}
	if program == "" {
		t.Skip("there is no browser to open pages in: install chromium")
	}
	home, err := os.MkdirTemp("", "e3-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // its helpers may live a moment longer, and write
		for tries := 0; os.RemoveAll(home) != nil && tries < 1000; tries++ {
			runtime.Gosched()
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--user-data-dir="+home+"/profile", "--remote-debugging-pipe", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
	cmd.WaitDelay = 5 * time.Second
	fromUs, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, toUs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{fromUs, toUs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = fromUs.Close(), toUs.Close()
	b := &Tab{t: t, out: out, waiting: map[int]chan answer{}, events: map[string]int{}, came: make(chan struct{})}
	var read sync.WaitGroup
	read.Go(func() { b.read(in) })
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		_ = out.Close()
		_ = in.Close()
		read.Wait()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", map[string]any{}, nil)
	}
	return b
}

// read takes what the browser sends: texts that end with a zero byte.
func (b *Tab) read(in io.Reader) {
	r := bufio.NewReaderSize(in, 1<<16)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var a answer
		if json.Unmarshal(text[:len(text)-1], &a) != nil {
			continue
		}
		b.mu.Lock()
		if c := b.waiting[a.ID]; c != nil && a.Method == "" {
			delete(b.waiting, a.ID)
			c <- a
		} else if a.Method != "" {
			b.events[a.Method]++
			if a.Method == "Log.entryAdded" || a.Method == "Runtime.exceptionThrown" {
				b.said = append(b.said, string(a.Params))
			}
			if a.Method == "Tracing.dataCollected" {
				b.traced = append(b.traced, a.Params)
			}
			close(b.came)
			b.came = make(chan struct{})
		}
		b.mu.Unlock()
	}
}

// call sends a command and waits for its result.
func (b *Tab) call(method string, params map[string]any, result any) {
	b.t.Helper()
	if err := b.try(method, params, result); err != nil {
		b.t.Fatal(err)
	}
}

func (b *Tab) try(method string, params map[string]any, result any) error {
	c := make(chan answer, 1)
	b.mu.Lock()
	b.id++
	message := map[string]any{"id": b.id, "method": method, "params": params}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	b.waiting[b.id] = c
	b.mu.Unlock()
	data, err := json.Marshal(message)
	if err == nil {
		_, err = b.out.Write(append(data, 0))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case a := <-c:
		if a.Error != nil {
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(a.Result, result)
	case <-late.C:
		return fmt.Errorf("%s: no answer of the browser", method)
	}
}

// Cookie gives the tab a cookie for an address.
func (b *Tab) Cookie(url, name, value string) {
	b.t.Helper()
	b.call("Network.setCookie", map[string]any{"url": url, "name": name, "value": value, "httpOnly": true, "sameSite": "Strict"}, nil)
}

// Go opens an address, and waits until the page and its script are loaded.
func (b *Tab) Go(url string) {
	b.t.Helper()
	b.loads(url, func() { b.call("Page.navigate", map[string]any{"url": url}, nil) })
}

// Follow evaluates an expression that leads to another page, as a click, and waits until that page and its script are loaded.
func (b *Tab) Follow(expression string) {
	b.t.Helper()
	b.loads(expression, func() { b.Eval("setTimeout(() => { "+expression+" })", nil) })
}

// loads waits for the page that a step leads to.
func (b *Tab) loads(what string, step func()) {
	b.t.Helper()
	b.mu.Lock()
	before := b.events["Page.loadEventFired"]
	b.mu.Unlock()
	b.waits("Page.loadEventFired", before, what+": no page was loaded", step)
}

// waits waits for an event that a step leads to, given how often it has come before.
func (b *Tab) waits(event string, before int, fault string, step func()) {
	b.t.Helper()
	step()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		b.mu.Lock()
		now, came := b.events[event], b.came
		b.mu.Unlock()
		if now > before {
			return
		}
		select {
		case <-came:
		case <-late.C:
			b.t.Fatal(fault)
		}
	}
}

// Eval evaluates an expression in the page, which may be a promise, into a pointer.
func (b *Tab) Eval(expression string, into any) {
	b.t.Helper()
	var r struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails json.RawMessage `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	if into != nil {
		if err := json.Unmarshal(r.Result.Value, into); err != nil {
			b.t.Fatalf("%s: %v", expression, err)
		}
	}
}

// Until waits for an expression to be true.
func (b *Tab) Until(expression string) {
	b.t.Helper()
	var is bool
	b.Eval(`new Promise(done => { const end = performance.now() + 60000; const look = () => { if (`+expression+`) done(true); else if (performance.now() > end) done(false); else setTimeout(look, 20) }; look() })`, &is)
	if !is {
		b.t.Fatalf("it does not come true: %s", expression)
	}
}

// Window sets the size of the page in CSS pixels, and whether dark pages are preferred.
func (b *Tab) Window(width, height int, dark bool) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Script allows the scripts of pages, or not.
func (b *Tab) Script(runs bool) {
	b.t.Helper()
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": !runs}, nil)
}

// Press presses and releases a key, as Tab or Enter.
func (b *Tab) Press(key string, code int) {
	b.t.Helper()
	text := ""
	if key == "Enter" {
		text = "\r"
	}
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key, "windowsVirtualKeyCode": code}, nil)
}

// Print shows the page as it is printed on paper of this width in CSS pixels, by a person who prefers dark pages.
func (b *Tab) Print(width int) {
	b.t.Helper()
	b.Window(width, 1000, true)
	b.call("Emulation.setEmulatedMedia", map[string]any{"media": "print", "features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}}, nil)
}

// PDF returns the page printed on A4.
func (b *Tab) PDF() []byte {
	b.t.Helper()
	var r struct{ Data string }
	b.call("Page.printToPDF", map[string]any{"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": true, "printBackground": true}, &r)
	data, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}

// Shot returns the whole page as a PNG.
func (b *Tab) Shot() []byte {
	b.t.Helper()
	var r struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &r)
	data, err := base64.StdEncoding.DecodeString(r.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}

// Said returns what the browser had to say about the page since the last call: errors of scripts, and what a policy has refused.
func (b *Tab) Said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := b.said
	b.said = nil
	return said
}
