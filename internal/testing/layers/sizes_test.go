package layers_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A type with more methods than this has more than one purpose, and a struct with more fields
// than this holds more than one thing (doc/design.md, "Packages").
const (
	maxMethods = 61 // refstore/fs.Store implements every capability of a store of records, streams, locks and sessions
	maxFields  = 20
)

// fieldsMark begins the sentence of a struct's doc comment that says why the struct needs more
// than maxFields fields.
const fieldsMark = "Fields:"

// A typeSize is what the source says of one type.
type typeSize struct {
	methods map[string]bool // by name: files of several systems declare the same method
	fields  int
	where   string
	excused bool // the doc comment says why the struct has many fields
}

// typeSizes reads all production files below root. Names are "folder.Type".
func typeSizes(root string) (map[string]*typeSize, error) {
	sizes := map[string]*typeSize{}
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		measure(sizes, files, filepath.ToSlash(folder), file)
		return nil
	})
	return sizes, err
}

// measure adds what one file declares to sizes.
func measure(sizes map[string]*typeSize, files *token.FileSet, folder string, file *ast.File) {
	of := func(name string) *typeSize {
		full := folder + "." + name
		if sizes[full] == nil {
			sizes[full] = &typeSize{methods: map[string]bool{}}
		}
		return sizes[full]
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv != nil {
				of(receiver(decl.Recv.List[0].Type)).methods[decl.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				spec, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				size := of(spec.Name.Name)
				size.where = files.Position(spec.Pos()).String()
				if fields, ok := spec.Type.(*ast.StructType); ok {
					size.fields = max(size.fields, fields.Fields.NumFields())
				}
				if shape, ok := spec.Type.(*ast.InterfaceType); ok {
					for _, field := range shape.Methods.List {
						for _, name := range field.Names {
							size.methods[name.Name] = true
						}
					}
				}
				doc := spec.Doc
				if doc == nil {
					doc = decl.Doc
				}
				size.excused = size.excused || strings.Contains(doc.Text(), fieldsMark)
			}
		}
	}
}

// receiver is the name of a method's type: T of T, *T, T[P] and *T[P].
func receiver(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.StarExpr:
		return receiver(expr.X)
	case *ast.IndexExpr:
		return receiver(expr.X)
	case *ast.IndexListExpr:
		return receiver(expr.X)
	case *ast.Ident:
		return expr.Name
	}
	return fmt.Sprintf("%T", expr)
}

// oversized compares sizes with the limits.
func oversized(sizes map[string]*typeSize) (faults []string) {
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		size := sizes[name]
		if n := len(size.methods); n > maxMethods {
			faults = append(faults, fmt.Sprintf("%s: %s has %d methods, at most %d are allowed: split it by purpose", size.where, name, n, maxMethods))
		}
		if size.fields > maxFields && !size.excused {
			faults = append(faults, fmt.Sprintf("%s: %s has %d fields, at most %d are allowed without a sentence %q in its doc that says why: group them, or say why",
				size.where, name, size.fields, maxFields, fieldsMark))
		}
	}
	return faults
}

func TestTypeSizes(t *testing.T) {
	sizes, err := typeSizes(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range oversized(sizes) {
		t.Error(fault)
	}
}

// TestTypeSizesAreSeen: the counting itself, on a source with known figures.
func TestTypeSizesAreSeen(t *testing.T) {
	source := `package p
// A T is generic.
type T[P any] struct { a, b int; fmt.Stringer }
func (t *T[P]) One() {}
func (t T[P]) Two() {}
// An I has methods by declaration.
type I interface { One(); Two() }
// B is large. Fields: one for each column.
type B struct { ` + strings.Repeat("_ int\n", maxFields+1) + `}
type C struct { ` + strings.Repeat("_ int\n", maxFields+1) + `}
`
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]*typeSize{}
	measure(sizes, files, "p", file)
	if got := sizes["p.T"]; len(got.methods) != 2 || got.fields != 3 {
		t.Errorf("T: got %d methods and %d fields, want 2 and 3", len(got.methods), got.fields)
	}
	if got := len(sizes["p.I"].methods); got != 2 {
		t.Errorf("I: got %d methods, want 2", got)
	}
	sizes["p.Large"] = &typeSize{methods: map[string]bool{}}
	for i := range maxMethods + 2 {
		sizes["p.Large"].methods[fmt.Sprint(i)] = true
	}
	faults := oversized(sizes)
	want := []string{"p.C has 21 fields", "p.Large has 63 methods, at most 61"}
	if len(faults) != len(want) {
		t.Fatalf("got %d faults, want %d: %q", len(faults), len(want), faults)
	}
	for i := range want {
		if !strings.Contains(faults[i], want[i]) {
			t.Errorf("got fault %q, want one that says %q", faults[i], want[i])
		}
	}
}
