package workspace

import (
	"reflect"
	"testing"

	"e3/internal/format/manifest"
	"e3/internal/format/record"
	"e3/internal/testing/suite"
)

// Every key of a task's policy in a package file is in the package object.
func TestPolicyIsCarried(t *testing.T) {
	var p manifest.Policy
	suite.EachField(t, &p, func(name string) {
		if got := policy(&manifest.Definition{}, &manifest.Task{Spec: &manifest.Spec{Policy: &p}}); reflect.DeepEqual(got, record.Policy{}) {
			t.Errorf("%s does not reach the package object; see policy in build.go", name)
		}
	})
}
