package executions_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// twoFiles is a task that reads two files at the given paths.
func twoFiles(text, version, first, second string) *record.Task {
	return &record.Task{Shell: text + "\necho x > out", Version: version, Output: single("out", record.KindFile), Inputs: []record.Input{
		{Name: "first", Path: first, Kind: record.KindFile}, {Name: "second", Path: second, Kind: record.KindExecutable},
	}}
}

// lookAtInputs shows what a command finds: files with type, mode, links, and whether their times are the present ones.
const lookAtInputs = `find . -mindepth 1 -printf '%P %y %m %n %l\n' | sort; cat "$first" "$second"
	find . -type f \( -mmin +9 -o -mmin -0 -o -amin +9 -o -amin -0 \)`

// The inode of a small input takes the next content. The next command cannot tell: whatever was done to the file, its
// content, mode, names and times are those of a new one.
func TestStagedFilesAreClean(t *testing.T) {
	const long = "a first file that is longer than those after it\n"
	outside := t.TempDir()
	l := newLab(t)
	for i, harm := range []string{
		`true`,
		`echo more >> "$first"`,
		`: > "$first"`,
		`chmod 4777 "$first"; chmod 000 "$second"`,
		`touch -d 2001-01-01 "$first"; touch -a -d 2099-01-01 "$second"`,
		`rm "$first"`,
		`rm "$first"; ln -s /etc/passwd "$first"`,
		`rm "$first"; mkdir "$first"; echo x > "$first"/x`,
		`rm "$first"; mkfifo "$first"`,
		`ln "$first" other; mv other "$second"`,
		`mv "$first" "$second"`,
		fmt.Sprintf(`rm -f %s/%s; ln "$first" %[1]s/%[2]s`, outside, "linked"),
		`rm -f ../s0 ../s1; ln -s /etc/passwd ../s0; mkdir ../s1`,
		`setfattr -n user.note -v x "$first" || true`,
	} {
		for j, after := range [][2]string{{"a", "b"}, {"c", "d"}, {"a/x", "b/y"}, {"b", "a"}} {
			version := fmt.Sprint(i, j)
			l.run(t, twoFiles(harm, version, "a", "b"), l.put(t, long), l.put(t, "second\n"))
			want := fmt.Sprintf("%s f 644 1 \n%s f 755 1 \n", after[0], after[1])
			if dir, file := filepath.Split(after[0]); dir != "" {
				want = fmt.Sprintf("a d 755 2 \na/%s f 644 1 \nb d 755 2 \nb/y f 755 1 \n", file)
			} else if after[0] == "b" {
				want = "a f 755 1 \nb f 644 1 \n"
			}
			for _, content := range []string{"short " + version + "\n", ""} {
				task := twoFiles(lookAtInputs, version+content, after[0], after[1])
				if got := l.run(t, task, l.put(t, content), l.put(t, "2\n")); got != want+content+"2\n" {
					t.Fatalf("after %s a task finds\n%s\nwant\n%s", harm, got, want+content+"2\n")
				}
			}
			if got := l.run(t, script("ls -A; echo x > out # "+version)); got != "" {
				t.Fatalf("after %s a task without inputs finds %q", harm, got)
			}
		}
	}
	if got := l.run(t, script("cat "+filepath.Join(outside, "linked")+"; echo x > out")); got != long {
		t.Errorf("a file that a command had linked elsewhere now holds %q", got)
	}
}

// Inodes are used again once the sandboxes are, so that a task neither makes nor deletes files for its inputs.
func TestStagedFilesAreUsedAgain(t *testing.T) {
	l := newLab(t)
	seen := map[string]bool{}
	again := 0
	for i := range 100 {
		first, second := fmt.Sprint("a", i), fmt.Sprint("b", i)
		task := twoFiles(`stat -c %i "$first" "$second"`, "", first, second)
		for number := range strings.FieldsSeq(l.run(t, task, l.put(t, fmt.Sprint(i)), l.put(t, "2"))) {
			if seen[number] {
				again++
			}
			seen[number] = true
		}
	}
	if again < 60 { // at most 64 sandboxes are made
		t.Errorf("of 200 files %d were used again", again)
	}
}

// A tree that is staged beside files finds none of an earlier command, and a value's file neither.
func TestStagedFilesBesideTrees(t *testing.T) {
	l := newLab(t)
	data := "a tree's file"
	for i := range 70 { // more than there are sandboxes
		l.run(t, twoFiles("true", fmt.Sprint("files", i), "data/x", "data/z"), l.put(t, "old"), l.put(t, "old"))
		task := reader("ls data; cat data/x", fmt.Sprint("tree", i))
		if got := l.run(t, task, putFolder(t, l, "x", data)); got != "x\n"+data {
			t.Fatalf("a tree is staged as %q", got)
		}
	}
}

func putFolder(t *testing.T, l *lab, name, content string) objectstore.Hash {
	t.Helper()
	data, err := tree.Encode(tree.Entries{{Name: name, Kind: tree.KindFile, Hash: l.put(t, content), Size: int64(len(content))}})
	if err != nil {
		t.Fatal(err)
	}
	return l.put(t, string(data))
}
