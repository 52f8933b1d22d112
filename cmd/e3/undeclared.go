package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"e3/executions"
	"e3/internal/host/trace"
	"e3/internal/human"
	"e3/internal/propose"
	"e3/internal/repo"
	"e3/workspace"
)

// A command that misses a file says so in words of its own. If the project has the file, the reason is that the task does
// not declare it.
var (
	missesFile   = regexp.MustCompile(`(?i)no such file|cannot open|can't open|could not open|unable to open|does not exist|not found|FileNotFoundError`)
	missesModule = regexp.MustCompile(`No module named '?([A-Za-z_][A-Za-z0-9_]*)|cannot find module '\./([^']+)'`)
	pathWord     = regexp.MustCompile(`[^\s'"` + "`" + `(),;:‘’“”<>\[\]{}]+`)
)

// noGit is what git says where it finds no repository (doc/design.md, §7, "Environment").
const noGit = "not a git repository"

// sayUndeclared names files of the project that a failed command has missed, given the last lines of its log.
func sayUndeclared(ctx context.Context, a *app, r *repo.Repo, ws, task string, lines []string) {
	if slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, noGit) }) {
		a.Notef("  the project's git repository is no input of %s, so that git does not find it. What git tells can be one: "+
			"key_env: [COMMIT], and COMMIT=$(git rev-parse HEAD) e3 start", human.Line(task))
	}
	if !slices.ContainsFunc(lines, func(line string) bool { return missesFile.MatchString(line) || missesModule.MatchString(line) }) {
		return
	}
	p, err := r.Workspaces.Datasets.Project(ctx, ws)
	if err != nil || p.Folder == "" {
		return
	}
	const most = 3
	files := missed(p.Folder, lines)
	for _, file := range files[:min(len(files), most)] {
		a.Notef("  %s", human.Line(undeclared(p, task, file)))
	}
}

// missed lists the files of a project that lines name as missing.
func missed(folder string, lines []string) (files []string) {
	ignored := propose.Ignored(os.DirFS(folder))
	add := func(file string) bool {
		if !fs.ValidPath(file) || file == "." || strings.HasPrefix(file, repo.DirName) || trace.Private(file) || ignored(file) {
			return false
		}
		if _, err := os.Lstat(filepath.Join(folder, filepath.FromSlash(file))); err != nil {
			return false
		}
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
		return true
	}
	for _, line := range lines {
		if m := missesModule.FindStringSubmatch(line); m != nil {
			for _, dir := range []string{"", "src/", "lib/", "scripts/", "python/"} {
				for _, name := range []string{m[1] + ".py", m[1], m[2], m[2] + ".js"} {
					if name != "" && name != ".py" && name != ".js" && add(path.Clean(dir+name)) {
						break
					}
				}
			}
			continue
		}
		if !missesFile.MatchString(line) {
			continue
		}
		for _, word := range pathWord.FindAllString(line, -1) {
			parts := strings.Split(path.Clean(filepath.ToSlash(strings.TrimRight(word, "."))), "/")
			for i := range parts { // the longest end of the path that the project has
				if add(strings.Join(parts[i:], "/")) {
					break
				}
			}
		}
	}
	return files
}

// lacked reports whether lines name a path of the working directory as missing.
func lacked(lines []string) func(rel string) bool {
	var named []string
	for _, line := range lines {
		if !missesFile.MatchString(line) {
			continue
		}
		for _, word := range pathWord.FindAllString(line, -1) {
			named = append(named, path.Clean(strings.TrimRight(word, ".")))
		}
	}
	return func(rel string) bool {
		return slices.ContainsFunc(named, func(word string) bool {
			return word == rel || path.IsAbs(word) && strings.HasSuffix(word, "/"+rel)
		})
	}
}

// failureLines are the last lines of a failed command's standard error or, if that is empty, of its output; none if they
// cannot be read.
func failureLines(ctx context.Context, x *executions.Store, key executions.Key, id string) ([]string, executions.Stream) {
	for _, stream := range []executions.Stream{executions.Stderr, executions.Stdout} {
		if data, _, err := x.LogTail(ctx, key, id, stream, 8<<10); err == nil {
			if lines := tail(data, 10); len(lines) > 0 {
				return lines, stream
			}
		}
	}
	return nil, executions.Stdout
}

// undeclared says what to write for a file that a task misses.
func undeclared(p *workspace.Project, task, file string) string {
	base, _, _ := strings.Cut(task, "[")
	if in := p.TakesIn(file); in != nil {
		return fmt.Sprintf("%s is in the project, by the input %s, but not among the inputs of %s: add %s to its in", file, in.Name, base, in.Name)
	}
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_') {
			return r
		}
		return '_'
	}, strings.ToLower(path.Base(file)))
	kind := "file"
	if info, err := os.Stat(filepath.Join(p.Folder, filepath.FromSlash(file))); err == nil && info.IsDir() {
		kind = "dir"
	}
	return fmt.Sprintf("%s is in the project but not among the inputs of %s: write %s: {%s: %s} under inputs, and %s in its in", file, base, name, kind, file, name)
}
