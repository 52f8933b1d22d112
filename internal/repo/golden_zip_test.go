package repo_test

import (
	"archive/zip"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"e3/executions"
	"e3/exportimport"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/repo"
	"e3/internal/settings"
	"e3/workspace"
)

// A goldenZip is the export of a workspace of a golden repository.
type goldenZip struct {
	version, repo, workspace string
	file                     string                     // "" is the name of the repository
	old                      bool                       // it was made before exports had a list of sums
	opts                     exportimport.ExportOptions // with the key for tests
	want                     exportimport.Imported      // into an empty repository that trusts the key
	notes                    int                        // of the import; their words may become better ones
}

func (g *goldenZip) path() string {
	return filepath.Join(golden, g.version, cmp.Or(g.file, g.repo)+".zip")
}

// goldenZips are added to and never changed.
func goldenZips() []goldenZip {
	return []goldenZip{
		{
			version: "v1", repo: "basic", old: true, workspace: "prod", opts: exportimport.ExportOptions{AllHistory: true},
			want: exportimport.Imported{
				Package:   workspace.PackageRef{Name: "golden", Version: "1.0.0", Hash: "1f7714e7750514b9459489ab0d66cd2a1b235581291ba55e105ecdda830937bd"},
				Workspace: "prod", RunID: "01a1fafe-0fae-7ac8-96df-ead2817d5f1d", RunWorkspace: "prod",
				Executions: 15, Outcomes: map[executions.Outcome]int{executions.Added: 15}, Objects: 42, ObjectsAdded: 42, Content: 29096,
				Exported: time.Date(2026, 11, 20, 22, 5, 16, 598e6, time.UTC),
			},
		},
		{
			version: "v1", repo: "kept", old: true, workspace: "flow", opts: exportimport.ExportOptions{AllHistory: true, NoData: true},
			want: exportimport.Imported{
				Package:   workspace.PackageRef{Name: "flow", Version: "1.0.0", Hash: "fcde289bb22e6dc2a46b8428a08adb0aa425b0fbd0d6f71a4f6ac6d2c751183e"},
				Workspace: "flow", RunID: "01a1fbb2-540b-73c0-bb7e-97833fa0da1c", RunWorkspace: "flow",
				Executions: 5, Outcomes: map[executions.Outcome]int{executions.Added: 5}, Objects: 12, ObjectsAdded: 12, Content: 11574,
				Exported: time.Date(2026, 11, 21, 1, 22, 10, 574e6, time.UTC),
			},
			notes: 2, // of the inputs that stayed at home
		},
		{
			version: "v1", repo: "basic", file: "basic-sums", workspace: "prod",
			want: exportimport.Imported{
				Package:   workspace.PackageRef{Name: "golden", Version: "1.0.0", Hash: "1f7714e7750514b9459489ab0d66cd2a1b235581291ba55e105ecdda830937bd"},
				Workspace: "prod", RunID: "01a1fafe-0fae-7ac8-96df-ead2817d5f1d", RunWorkspace: "prod",
				Executions: 9, Outcomes: map[executions.Outcome]int{executions.Added: 9}, Objects: 42, ObjectsAdded: 42, Content: 39324,
				Exported: time.Date(2026, 11, 20, 22, 5, 16, 598e6, time.UTC),
			},
		},
	}
}

// exportGolden exports from a copy of the golden repository.
func exportGolden(t *testing.T, g *goldenZip) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "repository")
	copyTree(t, filepath.Join(golden, g.version, g.repo), root, func(string) bool { return true })
	g.opts.Key = testKey(t)
	return enter(t, root, "golden@host", "golden/"+g.repo).export(g.workspace, g.opts)
}

func TestMakeGoldenZips(t *testing.T) {
	for _, g := range goldenZips() {
		if g.version == fmt.Sprintf("v%d", repo.LayoutVersion) && missing(t, g.path()) {
			data, err := os.ReadFile(exportGolden(t, &g))
			if err == nil {
				err = os.WriteFile(g.path(), data, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestGoldenZips exports from the golden repositories what is in the golden zips, and takes these in: what comes in is
// what was there, a start has nothing to do, and what goes out again is the same.
func TestGoldenZips(t *testing.T) {
	for _, g := range goldenZips() {
		t.Run(g.version+"/"+g.repo, func(t *testing.T) {
			differ := []string{sumsEntry, signature.EntryName} // as they tell of each other, and of what is compared
			if !g.old {
				differ = nil
			}
			sameEntries(t, exportGolden(t, &g), g.path(), differ...)

			var origin description
			readJSON(t, filepath.Join(golden, g.version, g.repo+".json"), &origin)
			i := slices.IndexFunc(origin.Workspaces, func(w workspaceDescription) bool { return w.Name == g.workspace })
			there := origin.Workspaces[i]

			h := newHouse(t, "eve@epsilon", "epsilon/.e3")
			_, err := settings.Update(t.Context(), h.Records, func(s *settings.Settings) error {
				return s.Trust(settings.TrustedKey{Name: "for tests", Key: testKey(t).Public(), AddedAt: time.Unix(0, 0)})
			})
			h.must(err)
			got := h.take(g.path(), exportimport.ImportOptions{NewWorkspace: true, RequireSigned: true})
			want, key := g.want, testKey(t)
			want.PackageAdded, want.RunAdded, want.From, want.Source = true, true, "golden@host", "golden@host:golden/"+g.repo
			want.Verdict = settings.Verdict{Trust: settings.Trusted, Key: key.Public(), Name: "a key that everybody has", TrustedAs: "for tests"}
			want.Notes = got.Notes
			if diff := gocmp.Diff(&want, got); diff != "" || len(got.Notes) != g.notes {
				t.Errorf("what was imported (-want +got):\n%s\nwith %d notes, want %d: %q", diff, len(got.Notes), g.notes, got.Notes)
			}

			// Two descriptions of one workspace, and of its executions; only the steps of these are one more here.
			here := describe(t, h.Root)
			runs := there.Events
			there.Events = map[string][]string{there.Run.ID: runs[there.Run.ID]}
			if diff := gocmp.Diff([]workspaceDescription{there}, here.Workspaces); diff != "" {
				t.Errorf("the workspace (-there +here):\n%s", diff)
			}
			old := map[string]executionDescription{}
			for _, e := range origin.Executions {
				old[e.ID] = e
			}
			for _, e := range here.Executions {
				was := old[e.ID]
				n := len(was.Steps)
				if len(e.Steps) != n+1 || !slices.Equal(e.Steps[:n], was.Steps) ||
					!strings.HasPrefix(e.Steps[n], "exported by golden@host from golden/"+g.repo) ||
					!strings.Contains(e.Steps[n], fmt.Sprintf("signed by %q %s, imported by eve@epsilon", key.Name, key.Public())) {
					t.Errorf("%s has come by %q, there it had %q", e.ID, e.Steps, was.Steps)
				}
				was.Steps, was.ImportedFrom = e.Steps, e.ImportedFrom
				if diff := gocmp.Diff(was, e); diff != "" {
					t.Errorf("execution %s (-there +here):\n%s", e.ID, diff)
				}
			}
			sound(t, h.Repo, here.Workspaces)

			sameEntries(t, h.export(g.workspace, g.opts), g.path(), "provenance.beast2", sumsEntry, signature.EntryName)
			for _, how := range []string{"from records", "from the proof"} {
				hitsOnly(t, there, how, h.start(g.workspace, record.RunCompleted, workspace.StartOptions{}))
			}
			sound(t, h.Repo, here.Workspaces)
		})
	}
}

// sumsEntry lists what is in an export. Older ones have none.
const sumsEntry = "SHA256SUMS"

// sameEntries compares the entries of two zips in their order, but for the content of the last ones, and all that is said of them but
// how they are compressed: the bytes of a block are the compressor's, and may become others with its version.
func sameEntries(t *testing.T, got, want string, but ...string) {
	t.Helper()
	a, b := readEntries(t, got, but), readEntries(t, want, but)
	listed := func(e zipEntry) bool { return e.Name == sumsEntry }
	if !slices.ContainsFunc(b, listed) {
		a = slices.DeleteFunc(a, listed)
		but = slices.DeleteFunc(slices.Clone(but), func(name string) bool { return name == sumsEntry })
	}
	for i, name := range but {
		if at := len(b) - len(but) + i; at < 0 || b[at].Name != name {
			t.Errorf("%s does not end with %q", want, but)
			break
		}
	}
	if diff := gocmp.Diff(b, a); diff != "" {
		t.Errorf("the entries of %s and %s (-want +got):\n%s", filepath.Base(want), filepath.Base(got), diff)
	}
}

type zipEntry struct {
	Name     string
	Content  string
	Modified time.Time
	Mode     string
	Comment  string
}

func readEntries(t *testing.T, path string, but []string) []zipEntry {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var list []zipEntry
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		if slices.Contains(but, f.Name) {
			data = nil
		}
		list = append(list, zipEntry{Name: f.Name, Content: string(data), Modified: f.Modified.UTC(), Mode: f.Mode().String(), Comment: f.Comment})
	}
	return list
}
