package exportimport_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"e3/exportimport"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// An import stores what the zip's records lead to. All else is read, hashed and counted, and never stored: a hostile zip
// must not fill the store.
func TestImportLeavesOut(t *testing.T) {
	path, _ := sample(t, exportimport.ExportOptions{})
	good := unlisted(unpack(t, path))
	want := newSite(t, "ann@alpha").importZip(pack(t, slices.Clone(good)), exportimport.ImportOptions{NewWorkspace: true})
	if len(want.Notes) != 0 || want.ObjectsAdded != want.Objects {
		t.Fatalf("an import of the sample: %+v", want)
	}
	content := "nothing names this\n"
	below := objectstore.Sum([]byte(content))
	folder, err := tree.Encode(tree.Entries{{Name: "f", Kind: tree.KindFile, Hash: below, Size: int64(len(content))}})
	if err != nil {
		t.Fatal(err)
	}
	strange := []string{content, string(folder), "held here already\n"}
	for i := range 40 {
		strange = append(strange, fmt.Sprint("junk ", i))
	}
	made := slices.Clone(good)
	for _, content := range strange {
		h := objectstore.Sum([]byte(content)).String()
		made = append(made, object(h, content))
	}
	made = append(made, object(below.String(), content)) // twice, as the reference may write it
	for _, dry := range []bool{true, false} {
		s := newSite(t, "bob@beta")
		_, err := objectstore.PutBytes(s.ctx, s.repo.Objects, []byte("held here already\n"))
		s.must(err)
		got := s.importZip(pack(t, slices.Clone(made)), exportimport.ImportOptions{NewWorkspace: true, DryRun: dry})
		if got.ObjectsAdded != want.ObjectsAdded || got.Objects != want.Objects+len(strange) || got.ObjectsLeft != len(strange) {
			t.Errorf("dry %v: %d of %d objects are new and %d left out, want %d of %d and %d", dry, got.ObjectsAdded, got.Objects, got.ObjectsLeft,
				want.ObjectsAdded, want.Objects+len(strange), len(strange))
		}
		wantNote(t, "import", got.Notes, fmt.Sprint(len(strange)), "nothing in the zip refers to them")
		for _, content := range strange {
			_, err := s.repo.Objects.Stat(s.ctx, objectstore.Sum([]byte(content)))
			if there := err == nil; there != (content == "held here already\n") {
				t.Errorf("dry %v: object %q is stored: %v (%v)", dry, content, there, err)
			}
		}
	}
	// Objects that are left out are read all the same: any damaged byte refuses a zip.
	made[len(made)-2].content += "x"
	s := newSite(t, "bob@beta")
	if _, err := s.tryImport(pack(t, made), exportimport.ImportOptions{NewWorkspace: true}); !errors.Is(err, exportimport.ErrIntegrity) {
		t.Errorf("with a damaged object that nothing refers to: %v", err)
	}
}

// object is an object of a zip.
func object(hash, content string) file { return file{"objects/" + hash[:2] + "/" + hash[2:], content} }

// A zip that is refused for what it lacks has stored nothing at all.
func TestRefusedStoresNothing(t *testing.T) {
	path, _ := sample(t, exportimport.ExportOptions{})
	s := newSite(t, "bob@beta")
	if _, err := s.tryImport(pack(t, absentOutput(t, unlisted(unpack(t, path)))), exportimport.ImportOptions{NewWorkspace: true}); !errors.Is(err, exportimport.ErrIntegrity) {
		t.Fatalf("without an output: %v", err)
	}
	for e, err := range s.repo.Objects.Walk(s.ctx) {
		s.must(err)
		t.Errorf("object %s is stored", e.Hash)
	}
}
