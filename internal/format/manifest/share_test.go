package manifest

import (
	"testing"

	"e3/internal/testing/suite"
)

// A field of Policy that equal forgets would give a task the policy of another.
func TestPolicyEqualKnowsAllFields(t *testing.T) {
	var p Policy
	suite.EachField(t, &p, func(name string) {
		if p.equal(&Policy{}) {
			t.Errorf("a policy with %s and one without are equal; see Policy.equal", name)
		}
	})
}
