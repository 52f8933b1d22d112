package doc_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"e3/internal/testing/browser"
	"e3/internal/testing/built"
)

// The pictures of README.md are of a real run: go test ./doc -run TestPictures -record
var anew = flag.Bool("record", false, "record the pictures of README.md anew, which needs chromium")

const (
	runPicture  = "first-run.svg"
	pagePicture = "ui.png"
	mostPicture = 64 << 10 // bytes of one
)

// recorded are the commands of the picture of a terminal.
var recorded = []string{"e3 start -f e3.yaml", "e3 set co2.horizon 240", "e3 start"}

// TestPictures compares the recorded terminal with what the commands print now.
func TestPictures(t *testing.T) {
	for _, name := range []string{"bash", "awk"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is missing: install it (Debian: apt-get install %s)", name, packages[name])
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../examples/forecast")); err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, dir: dir, env: append(os.Environ(), "PATH="+filepath.Dir(built.Program(t))+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+t.TempDir(), "E3_REPO=", "E3_COLOR=always", "NO_COLOR=")}
	var lines []string
	for _, command := range recorded {
		lines = append(lines, "\x1b[1m$ "+command+"\x1b[0m")
		got := strings.ReplaceAll(r.run(command), r.dir, "~/co2")
		lines = append(lines, strings.Split(strings.TrimSuffix(got, "\n"), "\n")...)
	}
	if *anew {
		save(t, runPicture, terminal(lines))
		save(t, pagePicture, shot(t, r))
	}
	// Tasks that run at the same time end in any order.
	var texts []string
	for _, row := range regexp.MustCompile(`(?s)<text[^>]*>(.*?)</text>`).FindAllStringSubmatch(read(t, runPicture), -1) {
		texts = append(texts, html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(row[1], "")))
	}
	want, got := words(texts), words(lines)
	if !slices.Equal(want, got) {
		t.Errorf("%s shows:\n%s\nthe commands print:\n%s\nrecord it anew: go test ./doc -run TestPictures -record", runPicture, strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	readme := read(t, "../README.md")
	for _, name := range []string{runPicture, pagePicture} {
		if info, err := os.Stat(name); err != nil || info.Size() > mostPicture {
			t.Errorf("%s: %v, want at most %d bytes", name, err, mostPicture)
		}
		if !regexp.MustCompile(`!\[[^\]]{40,}\]\(doc/` + regexp.QuoteMeta(name) + `\)`).MatchString(readme) {
			t.Errorf("README.md does not show doc/%s with a text that says what is on it", name)
		}
	}
}

// words are lines without colours, and without what differs from run to run, in order.
func words(lines []string) []string {
	var list []string
	for _, line := range lines {
		line = regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(line, "")
		line = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}`).ReplaceAllString(line, "ID")
		list = append(list, strings.TrimSpace(settled(line)))
	}
	slices.Sort(list)
	return list
}

func save(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// terminal draws lines, with the colours that e3 uses, as an SVG.
func terminal(lines []string) []byte {
	const row, column, margin = 19, 8.43, 16
	width := 0
	for _, line := range lines {
		width = max(width, utf8.RuneCountInString(regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(line, "")))
	}
	var b bytes.Buffer
	w, h := int(float64(width)*column)+2*margin, len(lines)*row+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-labelledby="t">`+"\n", w, h)
	b.WriteString("<title id=\"t\">A first run with e3, another value for an input, and a second run</title>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#16181d"/>`+"\n", w, h)
	b.WriteString(`<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="14" fill="#d7dae0">` + "\n")
	colors := map[string]string{"1": ` fill="#ffffff" font-weight="bold"`, "2": ` fill="#8b919c"`, "31": ` fill="#ff7b72"`, "32": ` fill="#7ee787"`, "33": ` fill="#e3b341"`}
	for i, line := range lines {
		fmt.Fprintf(&b, `<text x="%d" y="%d" xml:space="preserve">`, margin, margin+row*i+14)
		for k, part := range strings.Split(line, "\x1b[") {
			code, text := "", part
			if k > 0 {
				code, text, _ = strings.Cut(part, "m")
			}
			if style := colors[code]; style != "" {
				fmt.Fprintf(&b, "<tspan%s>%s</tspan>", style, html.EscapeString(text))
			} else {
				b.WriteString(html.EscapeString(text))
			}
		}
		b.WriteString("</text>\n")
	}
	b.WriteString("</g>\n</svg>\n")
	return b.Bytes()
}

// shot is the page of the latest run in a browser.
func shot(t *testing.T, r *reader) []byte {
	t.Helper()
	tab := browser.Open(t)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "bash", "-c", "exec e3 ui . co2 --no-open")
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }()
	address := ""
	for s := bufio.NewScanner(out); address == "" && s.Scan(); {
		address = regexp.MustCompile(`http://\S+`).FindString(s.Text())
	}
	tab.Window(1080, 640, false)
	tab.Go(address) // lets the browser in
	base, _, _ := strings.Cut(strings.TrimPrefix(address, "http://"), "/")
	tab.Go("http://" + base + "/run?w=co2&still=1")
	return small(t, tab.Shot(), 1080, 1130)
}

// small is the top of a picture with at most 256 colours: the most frequent ones, which pages of text and plain areas
// hardly exceed.
func small(t *testing.T, data []byte, width, height int) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	area := full.Bounds().Intersect(image.Rect(0, 0, width, height))
	count := map[color.RGBA]int{}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			count[color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)]++
		}
	}
	var all []color.RGBA
	for c := range count {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int { return count[b] - count[a] })
	var palette color.Palette
	for _, c := range all[:min(len(all), 256)] {
		palette = append(palette, c)
	}
	reduced := image.NewPaletted(area, palette)
	draw.Draw(reduced, area, full, area.Min, draw.Src)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, reduced); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
