package repo_test

import (
	"archive/zip"
	"cmp"
	"fmt"
	"io"
	"maps"
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
	"e3/internal/insight/runview"
	"e3/internal/repo"
	"e3/internal/settings"
	"e3/workspace"
)

// A goldenZip is the export of a workspace of a golden repository.
type goldenZip struct {
	repo, workspace string
	file            string                     // "" is the name of the repository
	opts            exportimport.ExportOptions // with the key for tests
	want            exportimport.Imported      // into an empty repository that trusts the key; its names are those of the workspace
	notes           int                        // of the import; their words may become better ones
}

// inVersion is the path of a golden file of the present version.
func inVersion(name string) string {
	return filepath.Join(golden, fmt.Sprintf("v%d", repo.FormatVersion), name)
}

func (g *goldenZip) path() string { return inVersion(cmp.Or(g.file, g.repo) + ".zip") }

func goldenZips() []goldenZip {
	return []goldenZip{
		{
			repo: "basic", workspace: "prod", opts: exportimport.ExportOptions{AllHistory: true},
			want: exportimport.Imported{
				Executions: 15, Outcomes: map[executions.Outcome]int{executions.Added: 15}, Objects: 42, ObjectsAdded: 42, Content: 54215,
			},
		},
		{
			repo: "kept", workspace: "flow", opts: exportimport.ExportOptions{AllHistory: true, NoData: true},
			want: exportimport.Imported{
				Executions: 5, Outcomes: map[executions.Outcome]int{executions.Added: 5}, Objects: 12, ObjectsAdded: 12, Content: 20489,
			},
			notes: 2, // of the inputs that stayed at home
		},
		{
			repo: "basic", file: "basic-latest", workspace: "prod",
			want: exportimport.Imported{
				Executions: 9, Outcomes: map[executions.Outcome]int{executions.Added: 9}, Objects: 42, ObjectsAdded: 42, Content: 43407,
			},
		},
	}
}

// exportGolden exports from a copy of the golden repository.
func exportGolden(t *testing.T, g *goldenZip) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "repository")
	copyTree(t, inVersion(g.repo), root, func(string) bool { return true })
	g.opts.Key = testKey(t)
	return enter(t, root, "golden@host", "golden/"+g.repo).export(g.workspace, g.opts)
}

func TestMakeGoldenZips(t *testing.T) {
	for _, g := range goldenZips() {
		if missing(t, g.path()) {
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
		t.Run(cmp.Or(g.file, g.repo), func(t *testing.T) {
			sameEntries(t, exportGolden(t, &g), g.path())

			var origin description
			readJSON(t, inVersion(g.repo+".json"), &origin)
			i := slices.IndexFunc(origin.Workspaces, func(w workspaceDescription) bool { return w.Name == g.workspace })
			there := origin.Workspaces[i]

			h := newHouse(t, "eve@epsilon", "epsilon/.e3")
			_, err := settings.Update(t.Context(), h.Records, func(s *settings.Settings) error {
				return s.Trust(settings.TrustedKey{Name: "for tests", Key: testKey(t).Public(), AddedAt: time.Unix(0, 0)})
			})
			h.must(err)
			got := h.take(g.path(), exportimport.ImportOptions{NewWorkspace: true, RequireSigned: true})
			want, key := g.want, testKey(t)
			ref, hash, _ := strings.Cut(there.Package, " ")
			name, version, _ := strings.Cut(ref, "@")
			want.Package = workspace.PackageRef{Name: name, Version: version, Hash: hash}
			want.Workspace, want.RunWorkspace, want.RunID = g.workspace, g.workspace, there.Run.ID
			want.PackageAdded, want.RunAdded, want.From, want.Source = true, true, "golden@host", "golden@host:golden/"+g.repo
			want.Verdict = settings.Verdict{Trust: settings.Trusted, Key: key.Public(), Name: "a key that everybody has", TrustedAs: "for tests"}
			want.Trust, want.TrustedAs = "trusted", "for tests"
			want.Signer = &runview.Signer{Key: key.Public().String(), Name: "a key that everybody has", Verified: true}
			want.Exported, want.Notes = got.Exported, got.Notes
			maps.DeleteFunc(got.Outcomes, func(_ executions.Outcome, n int) bool { return n == 0 })
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

// sumsEntry lists what is in an export.
const sumsEntry = "SHA256SUMS"

// sameEntries compares the entries of two zips in their order, but for the content of the last ones, and all that is said of them but
// how they are compressed: the bytes of a block are the compressor's, and may become others with its version.
func sameEntries(t *testing.T, got, want string, but ...string) {
	t.Helper()
	a, b := readEntries(t, got, but), readEntries(t, want, but)
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
