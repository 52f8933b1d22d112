package main

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestHarmLinks puts links in the place of files and folders of a repository, at random. No command follows one: every
// answer is right or an error, verify names the link, nothing behind it changes, and once it is gone all is as it was.
//
// E3_HARM is the number of cases, E3_HARM_SEED the seed; E3_HARM_CASE plays one of them alone.
func TestHarmLinks(t *testing.T) {
	usual := uint64(300)
	if testing.Short() {
		usual = 12
	}
	count, seed := harmNumber(t, "E3_HARM", usual), harmNumber(t, "E3_HARM_SEED", 1)
	first := harmNumber(t, "E3_HARM_CASE", 0)
	if first > 0 {
		count = first + 1
	}
	s := newHarmStage(t, "folder")
	root := filepath.Join(s.work, ".e3")
	places := linkPlaces(s.repo.(*harmedFolders).saved, root)
	for n := first; n < count; n++ {
		r := rand.New(rand.NewPCG(seed, n))
		s.repo.restore(t)
		top := places[slices.Sorted(maps.Keys(places))[r.IntN(len(places))]]
		s.linkCase(r, top[r.IntN(len(top))], fmt.Sprintf("E3_HARM_SEED=%d E3_HARM_CASE=%d", seed, n))
	}
}

// linkPlaces are the paths that a link can replace, by the names at the top of the repository. Locks and tmp decide no answer.
func linkPlaces(saved *savedFolders, root string) map[string][]string {
	places := map[string][]string{}
	for path := range saved.files {
		rel, err := filepath.Rel(root, path)
		top, _, _ := strings.Cut(rel, "/")
		if err == nil && filepath.IsLocal(rel) && !slices.Contains([]string{".", "tmp", "locks", ".gitignore"}, top) {
			places[top] = append(places[top], path)
		}
	}
	for _, list := range places {
		slices.Sort(list)
	}
	return places
}

// linkCase puts a link at a path.
func (s *harmStage) linkCase(r *rand.Rand, path, name string) {
	s.t.Helper()
	aside, private := filepath.Join(s.work, "aside"), filepath.Join(s.work, "private")
	for _, rel := range []string{"a", "b/c", "b/d/e/f"} {
		file := filepath.Join(private, rel)
		s.check(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("what is nobody's business\n"), 0o644))
	}
	s.check(os.Rename(path, aside))
	to := []string{aside, private, filepath.Join(private, "a"), "gone", filepath.Base(path)}[r.IntN(5)]
	s.check(os.Symlink(to, path))
	behind := [2]string{contents(private), contents(aside)}
	told := func(format string, args ...any) {
		s.t.Helper()
		s.t.Errorf("%s: %s → %s: %s", name, strings.TrimPrefix(path, s.work+"/"), to, fmt.Sprintf(format, args...))
	}
	for i, q := range s.questions {
		if got := s.ask(q); got.code == 0 && got.bytes != s.right[i].bytes && got.err == s.right[i].err { // else it says what is left out
			told("%v answers %+v, want %+v or an error", q.args, got, s.right[i])
		}
	}
	if v := s.e3("verify", s.repo.location()); v.code == 0 {
		told("verify finds nothing:\n%s%s", v.out, v.err)
	}
	commands := [][]string{{"verify", s.repo.location(), "--repair"}, {"prune", s.repo.location(), "--older-than", "1s", "--dry-run"}}
	if !strings.Contains(path, "/executions/") { // an execution that cannot be read keeps no output
		commands = append(commands, []string{"gc", s.repo.location()})
	}
	for _, args := range commands {
		s.e3(args...)
	}
	if now := [2]string{contents(private), contents(aside)}; now != behind {
		told("what is behind the link has changed")
	}
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		told("the link was replaced: %v", err)
		s.check(os.RemoveAll(path))
	} else {
		s.check(os.Remove(path))
	}
	s.check(os.Rename(aside, path))
	if v := s.e3("verify", s.repo.location()); v.code != 0 {
		told("without the link verify ends with %d:\n%s%s", v.code, v.out, v.err)
	}
}

func (s *harmStage) check(errs ...error) {
	s.t.Helper()
	for _, err := range errs {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}
