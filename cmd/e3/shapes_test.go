package main

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/internal/events"
	"e3/internal/format/moment"
)

// shapes writes Go types as types of TypeScript, with the comments that stand in their source.
type shapes struct {
	t       *testing.T
	sources map[string]*source // by package
	named   map[string]map[reflect.Type]bool

	references map[reflect.Type]int // from fields and answers, embedded ones excluded
	alone      map[reflect.Type]int // the references when all answers had been seen; nil before
}

// A field of a JSON object.
type field struct {
	reflect.StructField
	in       reflect.Type // the struct that declares it
	name     string
	optional bool
}

// bases are the embedded structs of which a struct is shown as an extension, since they are shown alone too.
func (s *shapes) bases(t reflect.Type) (list []reflect.Type) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Tag.Get("json") == "" && s.alone[indirect(f.Type)] > 0 {
			list = append(list, indirect(f.Type))
		}
	}
	return list
}

// fields are those of a struct as encoding/json writes them, fields of embedded structs included that are no bases.
func (s *shapes) fields(t reflect.Type) (list []field) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := indirect(f.Type)
		switch {
		case tag == "-" && options == "", f.Anonymous && tag == "" && s.alone[embedded] > 0:
		case f.Anonymous && tag == "" && embedded.Kind() == reflect.Struct:
			for _, inner := range s.fields(embedded) {
				if !slices.ContainsFunc(list, func(g field) bool { return g.name == inner.name }) {
					list = append(list, inner)
				}
			}
		case f.IsExported() && tag == "":
			s.t.Errorf("%v.%s is shown as JSON and has no tag", t, f.Name)
		case f.IsExported():
			optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
			list = slices.DeleteFunc(list, func(g field) bool { return g.name == tag }) // an embedded one, hidden
			list = append(list, field{f, t, tag, optional})
		}
	}
	return list
}

// structs appends the named types of which a type consists to list, from the top.
func (s *shapes) structs(t reflect.Type, list []reflect.Type) []reflect.Type {
	s.references[t]++
	switch {
	case s.isUnion(t):
		if !slices.Contains(list, t) {
			list = append(list, t)
		}
	case basic(t) != "":
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Array, t.Kind() == reflect.Map:
		return s.structs(t.Elem(), list)
	case t.Kind() == reflect.Struct:
		if t.Name() != "" {
			if slices.Contains(list, t) {
				return list
			}
			list = append(list, t)
		}
		for _, base := range s.bases(t) {
			list = s.structs(base, list)
		}
		for _, f := range s.fields(t) {
			list = s.structs(f.Type, list)
		}
	}
	return list
}

// union is the text of a type of which there are only the values of its constants; "" for others.
func (s *shapes) union(t reflect.Type) string {
	if t.Kind() != reflect.String || t.PkgPath() == "" {
		return ""
	}
	return strings.Join(s.source(t).values[t.Name()], " | ")
}

// isUnion says whether a union has a name on the page: it is long, and stands in several places.
func (s *shapes) isUnion(t reflect.Type) bool {
	return len(s.union(t)) > 60 && s.alone[t] > 1
}

// basic names a type that is no object and no list; "" for others.
func basic(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[moment.Time](), reflect.TypeFor[time.Time]():
		return "Time"
	case reflect.TypeFor[moment.Millis]():
		return "Milliseconds"
	case reflect.TypeFor[json.RawMessage]():
		return "unknown"
	}
	if pointer := reflect.PointerTo(t); t.Kind() != reflect.Pointer && pointer.Implements(reflect.TypeFor[json.Marshaler]()) {
		return "unknown"
	} else if t.Kind() != reflect.Pointer && pointer.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return "string"
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "Integer"
	case reflect.Interface:
		return "unknown"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "Base64"
		}
	}
	return ""
}

// name is how a shape refers to a type.
func (s *shapes) name(t reflect.Type) string {
	switch u, b := s.union(t), basic(t); {
	case s.isUnion(t):
		return s.nameOf(t)
	case u != "":
		return u
	case b != "":
		return b
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.name(t.Elem())
	case reflect.Slice, reflect.Array:
		if of := s.name(t.Elem()); !strings.ContainsAny(of, " ") {
			return of + "[]"
		} else {
			return "(" + of + ")[]"
		}
	case reflect.Map:
		return "{ [name: string]: " + s.name(t.Elem()) + " }"
	case reflect.Struct:
		if t.Name() == "" {
			return s.body(t, "  ")
		}
		return s.nameOf(t)
	}
	s.t.Errorf("%v cannot be shown as JSON", t)
	return ""
}

// nameOf is the name of a type on the page.
func (s *shapes) nameOf(t reflect.Type) string {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if s.named == nil {
		s.named = map[string]map[reflect.Type]bool{}
	}
	if s.named[name] == nil {
		s.named[name] = map[reflect.Type]bool{}
	}
	s.named[name][t] = true
	return name
}

// declare writes a type with its name.
func (s *shapes) declare(name string, t reflect.Type) string {
	if u := s.union(t); u != "" {
		return fmt.Sprintf("type %s = %s\n", name, u)
	}
	var bases string
	for _, base := range s.bases(t) {
		bases += s.name(base) + " & "
	}
	return fmt.Sprintf("type %s = %s%s\n", name, bases, s.body(t, ""))
}

// body writes the fields of a struct, with their comments lined up.
func (s *shapes) body(t reflect.Type, indent string) string {
	fields := s.fields(t)
	width := 0
	code := make([]string, len(fields))
	for i, f := range fields {
		mark, null := "", ""
		if f.optional {
			mark = "?"
		} else if f.Type.Kind() == reflect.Pointer || f.Type == reflect.TypeFor[moment.Time]() {
			null = " | null"
		}
		code[i] = f.name + mark + ": " + s.name(f.Type) + null
		if last := code[i][strings.LastIndex(code[i], "\n")+1:]; len(last) <= 60 {
			width = max(width, len(last))
		}
	}
	var b strings.Builder
	b.WriteString("{\n")
	for i, f := range fields {
		line := indent + "  " + code[i]
		if comment := s.comment(f); comment != "" {
			last := code[i][strings.LastIndex(code[i], "\n")+1:]
			line += strings.Repeat(" ", max(0, width-len(last))) + "  // " + comment
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String() + indent + "}"
}

// comment is the comment of a field, "" where the page says it elsewhere.
func (s *shapes) comment(f field) string {
	comment := s.source(f.in).fields[f.in.Name()+"."+f.Name]
	if slices.Contains(saidOnce, comment) || f.in == reflect.TypeFor[events.Data]() {
		return ""
	}
	return comment
}

// A source is what a package's files say about its types.
type source struct {
	fields map[string]string   // comments, by type and field
	values map[string][]string // the constants of a type, as they are written
}

// source reads the package that declares a type.
func (s *shapes) source(t reflect.Type) *source {
	path := t.PkgPath()
	if known := s.sources[path]; known != nil || path == "" {
		return cmp.Or(known, &source{})
	}
	found := &source{map[string]string{}, map[string][]string{}}
	s.sources[path] = found
	folder := "."
	if below, ok := strings.CutPrefix(path, "e3/"); ok {
		folder = "../../" + below
	}
	files, err := filepath.Glob(folder + "/*.go")
	if err != nil || len(files) == 0 {
		s.t.Fatalf("no source of %v: %v", t, err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			s.t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if is, ok := n.Type.(*ast.StructType); ok {
					found.describe(n.Name.Name, is)
				}
			case *ast.GenDecl:
				if n.Tok == token.CONST {
					found.constants(n)
				}
			}
			return true
		})
	}
	return found
}

// describe takes the comments of a struct's fields.
func (s *source) describe(name string, t *ast.StructType) {
	for _, f := range t.Fields.List {
		text := f.Comment.Text()
		if text == "" {
			text = f.Doc.Text()
		}
		for _, n := range f.Names {
			s.fields[name+"."+n.Name] = strings.Join(strings.Fields(text), " ")
		}
	}
}

// constants takes the constants of named types.
func (s *source) constants(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		of, named := v.Type.(*ast.Ident)
		for _, value := range v.Values {
			if text, isText := value.(*ast.BasicLit); named && isText && text.Kind == token.STRING {
				if plain, err := strconv.Unquote(text.Value); err == nil && plain != "" {
					s.values[of.Name] = append(s.values[of.Name], strconv.Quote(plain))
				}
			}
		}
	}
}
