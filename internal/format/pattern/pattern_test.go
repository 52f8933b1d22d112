package pattern_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestExpressionsCompile compiles the text of each [pattern.Of], and finds expressions that are compiled before a command
// begins.
func TestExpressionsCompile(t *testing.T) {
	const root = "../../.."
	compiled := 0
	for _, dir := range []string{"cmd", "dataflow", "executions", "exportimport", "gc", "internal", "objectstore", "refstore", "workspace"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testing" || d.Name() == "testdata" || d.Name() == "release"): // not in the program
				return fs.SkipDir
			case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, decl := range file.Decls {
				vars, isVars := decl.(*ast.GenDecl)
				ast.Inspect(decl, func(n ast.Node) bool {
					if _, isFunc := n.(*ast.FuncLit); isFunc && isVars {
						return false
					}
					call, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					f, ok := call.Fun.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					switch of, _ := f.X.(*ast.Ident); {
					case of == nil:
					case of.Name == "regexp" && f.Sel.Name == "MustCompile" && isVars && vars.Tok == token.VAR:
						t.Errorf("%s: compiled whenever e3 starts; want pattern.Of", files.Position(call.Pos()))
					case of.Name == "pattern" && f.Sel.Name == "Of":
						compiled++
						if text, known := textOf(call.Args[0]); known {
							if _, err := regexp.Compile(text); err != nil {
								t.Errorf("%s: %v", files.Position(call.Pos()), err)
							}
						}
					}
					return true
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if compiled < 50 {
		t.Errorf("%d expressions found, want some 60: does the test look in the right folders?", compiled)
	}
}

// textOf is the value of a constant text. A name within it counts as a word.
func textOf(e ast.Expr) (text string, known bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		left, okLeft := textOf(e.X)
		right, okRight := textOf(e.Y)
		return left + right, okLeft && okRight
	case *ast.Ident:
		return e.Name, true
	}
	return "", false
}
