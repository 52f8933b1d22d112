package suite

import (
	"reflect"
	"testing"
	"time"
)

// EachField sets each field of a struct in turn, those of structs in it too, calls check with its name, and makes it zero
// again: nothing that compares, copies or encodes the struct forgets a field that is added later. Fields are texts, numbers,
// booleans, durations, and slices of those, of which it makes one with a single element.
func EachField(t *testing.T, pointer any, check func(name string)) {
	t.Helper()
	eachField(t, reflect.ValueOf(pointer).Elem(), "", func(v reflect.Value, name string) {
		fill(t, v, name)
		check(name)
		v.SetZero()
	})
}

func eachField(t *testing.T, v reflect.Value, name string, do func(v reflect.Value, name string)) {
	t.Helper()
	if v.Kind() != reflect.Struct {
		do(v, name)
		return
	}
	for i := range v.NumField() {
		inner := v.Type().Field(i).Name
		if name != "" {
			inner = name + "." + inner
		}
		eachField(t, v.Field(i), inner, do)
	}
}

func fill(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	switch v.Kind() {
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		eachField(t, v.Index(0), name, func(v reflect.Value, name string) { fill(t, v, name) })
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		if v.SetInt(1); v.Type() == reflect.TypeFor[time.Duration]() {
			v.SetInt(int64(time.Second))
		}
	case reflect.Float64:
		v.SetFloat(1)
	default:
		t.Fatalf("%s is a %v, which EachField cannot set", name, v.Kind())
	}
}
