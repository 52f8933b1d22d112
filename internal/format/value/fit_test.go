package value_test

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/format/beast2"
	"e3/internal/format/manifest"
	"e3/internal/format/value"
)

func typeOf(t interface {
	Helper()
	Fatal(...any)
}, v any) beast2.Type {
	t.Helper()
	data, err := value.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := value.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return decoded.Type()
}

func TestFit(t *testing.T) {
	list := func(items ...any) []any { return append([]any{}, items...) }
	object := func(name string, v any) manifest.Object { return manifest.Object{{Name: name, Value: v}} }
	for _, test := range []struct {
		was, is, want any
		refused       string // where the kinds differ; "-": in the value itself
	}{
		{was: int64(12), is: int64(20), want: int64(20)},
		{was: int64(12), is: "2O", refused: "-"},
		{was: int64(12), is: list(int64(1)), refused: "-"},
		{was: int64(12), is: object("a", int64(1)), refused: "-"},
		{was: int64(12), is: nil, refused: "-"},
		{was: int64(12), is: true, refused: "-"},
		{was: int64(12), is: 12.5, refused: "-"},
		{was: int64(12), is: 1e3, want: int64(1000)},
		{was: int64(12), is: 1e300, refused: "-"},
		{was: 0.5, is: int64(1), want: 1.0},
		{was: 0.5, is: int64(1<<53 + 1), refused: "-"},
		{was: 0.5, is: "0,7", refused: "-"},
		{was: true, is: int64(1), refused: "-"},
		{was: true, is: "yes", refused: "-"},
		{was: "a", is: "b", want: "b"},
		{was: "a", is: int64(1), refused: "-"},
		{was: nil, is: list("x"), want: list("x")},
		{was: list(int64(1), int64(2)), is: list(), want: list()},
		{was: list(int64(1), int64(2)), is: list(int64(1), "2O"), refused: "[1]"},
		{was: list(int64(1)), is: int64(1), refused: "-"},
		{was: list(), is: list("x", int64(1)), want: list("x", int64(1))},
		{was: list(0.5), is: list(int64(1)), want: list(1.0)},
		{was: list(int64(1), "a"), is: list(true), want: list(true)},
		{was: object("n", int64(1)), is: object("n", "2O"), refused: ".n"},
		{was: object("n", int64(1)), is: object("m", "x"), want: object("m", "x")},
		{was: object("n", nil), is: object("n", "x"), want: object("n", "x")},
		{was: object("n", list(int64(1))), is: object("n", list(int64(1), false)), refused: ".n[1]"},
	} {
		got, err := value.Fit(typeOf(t, test.was), test.is)
		var kind *value.KindError
		switch {
		case test.refused != "" && !errors.As(err, &kind):
			t.Errorf("%v for %v: got %v, %v, want a KindError", test.is, test.was, got, err)
		case test.refused != "" && kind.Where != test.refused && (kind.Where != "" || test.refused != "-"):
			t.Errorf("%v for %v: differs at %q, want %q", test.is, test.was, kind.Where, test.refused)
		case test.refused == "" && (err != nil || !reflect.DeepEqual(got, test.want)):
			t.Errorf("%v for %v: got %#v, %v, want %#v", test.is, test.was, got, err, test.want)
		}
	}
}

// A fitted value has the kind of the value that it replaces; a value fits itself unchanged.
func TestFitKeepsKinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was, is := plain(2).Draw(t, "was"), plain(2).Draw(t, "is")
		typ := typeOf(t, was)
		if same, err := value.Fit(typ, was); err != nil || !typeOf(t, same).Equal(typ) {
			t.Fatalf("a value does not fit itself: %v", err)
		}
		got, err := value.Fit(typ, is)
		if err == nil && typ.Kind() != beast2.KindNull && typeOf(t, got).Kind() != typ.Kind() {
			t.Fatalf("%v fits %v as %v", is, was, got)
		}
	})
}
