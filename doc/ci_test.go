package doc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"e3/internal/testing/built"
)

// shellLines are the lines of the shell in the configuration of a service, in its order.
func shellLines(n *yaml.Node) (lines []string) {
	if n.Kind != yaml.MappingNode {
		for _, inner := range n.Content {
			lines = append(lines, shellLines(inner)...)
		}
		return lines
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch key, value := n.Content[i].Value, n.Content[i+1]; key {
		case "run":
			lines = append(lines, strings.Split(strings.TrimSpace(value.Value), "\n")...)
		case "script", "after_script":
			for _, item := range value.Content {
				lines = append(lines, item.Value)
			}
		default:
			lines = append(lines, shellLines(value)...)
		}
	}
	return lines
}

// TestCI plays the commands of each configuration in ci.md as two runners do: the second one is in another folder, with files that
// are new, and has only the repository of the first.
func TestCI(t *testing.T) {
	program := built.Program(t)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, "ci.md"), -1)
	if len(blocks) != 3 {
		t.Fatalf("ci.md has %d configurations, want 3", len(blocks))
	}
	for _, block := range blocks {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(block[1]), &doc); err != nil {
			t.Fatalf("%v\n%s", err, block[1])
		}
		shared := filepath.Join(t.TempDir(), "shared")
		first := runner(t, program, "", shared, shellLines(&doc))
		said := runner(t, program, first, shared, shellLines(&doc))
		if out, err := os.ReadFile(filepath.Join(said, "said")); err != nil || !strings.Contains(string(out), "(3 cached, 0 executed)") {
			t.Errorf("the second runner does not find what the first one made (%v):\n%s\nof\n%s", err, out, block[1])
		}
	}
}

// runner makes a project, with the repository of an earlier runner if there is one, and runs the lines that call e3. It returns the
// folder, where "said" has what they print.
func runner(t *testing.T, program, earlier, shared string, lines []string) string {
	t.Helper()
	dir := t.TempDir()
	text := "e3: 1\nname: p\ninputs: {n: {file: n.txt}}\ntasks:\n  a: {in: [n], out: a.txt, run: 'cat \"$n\" > \"$out\"'}\n" +
		"  b: {in: [a], out: b.txt, run: 'cat \"$a\" > \"$out\"'}\n  c: {out: c.txt, run: 'echo > \"$out\"'}\n"
	for name, content := range map[string]string{"e3.yaml": text, "n.txt": "1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(earlier, ".e3")); earlier != "" && err == nil {
		if err := os.CopyFS(filepath.Join(dir, ".e3"), os.DirFS(filepath.Join(earlier, ".e3"))); err != nil {
			t.Fatal(err)
		}
	}
	count := 0
	for _, line := range lines {
		if !strings.HasPrefix(line, "e3 ") {
			continue
		}
		count++
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", line+" >> said 2>&1")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH"), "E3_REPO=",
			"HOME="+t.TempDir(), "GITHUB_REF_NAME=feature/x", "CI_COMMIT_REF_SLUG=feature-x")
		if strings.Contains(line, "$E3_REPO") {
			cmd.Env = append(cmd.Env, "E3_REPO="+shared)
			if _, err := os.Stat(shared); err != nil {
				if out, err := exec.Command(program, "init", shared).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
		}
		if err := cmd.Run(); err != nil {
			out, _ := os.ReadFile(filepath.Join(dir, "said"))
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	if count == 0 {
		t.Fatalf("no line of %q calls e3", lines)
	}
	return dir
}
