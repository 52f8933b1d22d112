package beast2_test

import (
	"strings"
	"testing"

	"e3/internal/format/beast2"
)

// recordTypes are types of record-types.json made with the constructors.
var recordTypes = func() map[string]beast2.Type {
	const (
		up1 = 1
		up2 = 2
		up3 = 3
	)
	f := beast2.F
	str, date, integer, boolean, null := beast2.String, beast2.DateTime, beast2.Integer, beast2.Boolean, beast2.Null
	strs := beast2.Array(str)
	empty := beast2.Struct()
	signature := beast2.Struct(f("inputs", beast2.Array(beast2.Recursive(up3))), f("output", beast2.Recursive(up2)))
	fields := beast2.Array(beast2.Struct(f("name", str), f("type", beast2.Recursive(up3))))
	eastType := beast2.Variant(
		f("Null", null), f("Never", null), f("Boolean", null), f("Integer", null), f("Float", null), f("String", null),
		f("DateTime", null), f("Blob", null),
		f("Array", beast2.Recursive(up1)), f("Set", beast2.Recursive(up1)), f("Ref", beast2.Recursive(up1)),
		f("Dict", beast2.Struct(f("key", beast2.Recursive(up2)), f("value", beast2.Recursive(up2)))),
		f("Struct", fields), f("Variant", fields), f("Recursive", integer),
		f("Function", signature), f("AsyncFunction", signature),
	)
	structure := beast2.Variant(f("struct", beast2.Dict(str, beast2.Recursive(up2))), f("value", eastType))
	treePath := beast2.Array(beast2.Variant(f("field", str)))
	return map[string]beast2.Type{
		"EastType":   eastType,
		"IR_beta25":  beast2.IR(),
		"Structure":  structure,
		"TreePath":   treePath,
		"TaskObject": beast2.Struct(f("commandIr", str), f("inputs", beast2.Array(treePath)), f("output", treePath)),
		"PackageObject": beast2.Struct(f("tasks", beast2.Dict(str, str)),
			f("data", beast2.Struct(f("structure", structure), f("value", str)))),
		"DatasetRef": beast2.Variant(f("null", null), f("tree", str), f("unassigned", null), f("value", str)),
		"DataflowRun": beast2.Struct(
			f("runId", str), f("workspaceName", str), f("packageRef", str), f("startedAt", date),
			f("completedAt", beast2.Option(date)),
			f("status", beast2.Variant(f("running", empty), f("completed", empty), f("cancelled", empty),
				f("failed", beast2.Struct(f("failedTask", str), f("error", str))))),
			f("inputSnapshot", str), f("outputSnapshot", beast2.Option(str)),
			f("taskExecutions", beast2.Dict(str, beast2.Struct(f("executionId", str), f("cached", boolean)))),
			f("summary", beast2.Struct(f("total", integer), f("completed", integer), f("cached", integer),
				f("failed", integer), f("skipped", integer)))),
		"ExecutionStatus": beast2.Variant(
			f("success", beast2.Struct(f("executionId", str), f("inputHashes", strs), f("outputHash", str),
				f("startedAt", date), f("completedAt", date))),
			f("running", beast2.Struct(f("executionId", str), f("inputHashes", strs), f("startedAt", date),
				f("pid", integer), f("pidStartTime", integer), f("bootId", str))),
			f("failed", beast2.Struct(f("executionId", str), f("inputHashes", strs), f("startedAt", date),
				f("completedAt", date), f("exitCode", integer))),
			f("error", beast2.Struct(f("executionId", str), f("inputHashes", strs), f("startedAt", date),
				f("completedAt", date), f("message", str)))),
	}
}()

func TestTypeString(t *testing.T) {
	typ := beast2.Struct(
		beast2.F("a b", beast2.Array(beast2.Set(beast2.Blob))),
		beast2.F("next", beast2.Ref(beast2.Option(beast2.Recursive(3)))),
		beast2.F("d", beast2.Dict(beast2.Integer, beast2.Float)),
		beast2.F("f", beast2.Function([]beast2.Type{beast2.Integer, beast2.String}, beast2.Null)),
	)
	want := `Struct{"a b": Array<Set<Blob>>, next: Ref<Variant{none: Null, some: Recursive 3}>, ` +
		`d: Dict<Integer, Float>, f: Function(Integer, String) -> Null}`
	if got := typ.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := (beast2.Type{}).String(); got != "Null" {
		t.Errorf("the zero Type is %s, want Null", got)
	}
}

func TestTypeEqual(t *testing.T) {
	a, b := beast2.F("a", beast2.Integer), beast2.F("b", beast2.String)
	types := []beast2.Type{
		beast2.Null, beast2.Never, beast2.Integer,
		beast2.Struct(), beast2.Struct(a), beast2.Struct(b), beast2.Struct(a, b), beast2.Struct(b, a),
		beast2.Variant(), beast2.Variant(a, b), beast2.Array(beast2.Integer), beast2.Set(beast2.Integer),
		beast2.Array(beast2.Recursive(1)), beast2.Array(beast2.Array(beast2.Recursive(1))),
		beast2.Array(beast2.Array(beast2.Recursive(2))), beast2.Dict(beast2.String, beast2.Null),
		beast2.Dict(beast2.Null, beast2.String), beast2.Function(nil, beast2.Null),
		beast2.AsyncFunction(nil, beast2.Null), beast2.Function([]beast2.Type{beast2.Null}, beast2.Null),
	}
	for i, x := range types {
		for j, y := range types {
			if got := x.Equal(y); got != (i == j) {
				t.Errorf("%v equal to %v: %t", x, y, got)
			}
		}
	}
	if !beast2.Variant(b, a).Equal(beast2.Variant(a, b)) {
		t.Error("the order in which cases are given makes a difference")
	}
}

func TestTypeAccessors(t *testing.T) {
	typ := beast2.Option(beast2.Dict(beast2.String, beast2.Float))
	if got := typ.Index("some"); got != 1 {
		t.Errorf("Index(some) = %d, want 1", got)
	}
	if got := typ.Index("other"); got != -1 {
		t.Errorf("Index(other) = %d, want -1", got)
	}
	dict := typ.Fields()[1].Type
	if dict.Kind() != beast2.KindDict || !dict.Key().Equal(beast2.String) || !dict.Elem().Equal(beast2.Float) {
		t.Errorf("some is %v: kind %v, key %v, elem %v", dict, dict.Kind(), dict.Key(), dict.Elem())
	}
	var zero beast2.Type
	if zero.Key().Kind() != beast2.KindNull || zero.Elem().Kind() != beast2.KindNull || zero.Fields() != nil || zero.Up() != 0 {
		t.Error("the zero Type has parts")
	}
}

func TestConstructorsPanic(t *testing.T) {
	self := beast2.Recursive(1)
	tests := map[string]func(){
		"is there twice":           func() { beast2.Struct(beast2.F("a", beast2.Null), beast2.F("a", beast2.Null)) },
		"is not UTF-8":             func() { beast2.Variant(beast2.F("\xff", beast2.Null)) },
		"recursion through a set":  func() { beast2.Set(self) },
		"recursion through a dict": func() { beast2.Dict(self, beast2.Null) },
		"through a function":       func() { beast2.Function([]beast2.Type{self}, beast2.Null) },
		"is not in 1":              func() { beast2.Recursive(0) },
		"is not complete":          func() { beast2.Header(self) },
	}
	for want, f := range tests {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if msg, _ := recover().(string); !strings.Contains(msg, want) {
					t.Errorf("panic %q, want one with %q", msg, want)
				}
			}()
			f()
		})
	}
}
