package compare

import (
	"testing"

	"e3/internal/format/record"
	"e3/internal/testing/suite"
)

// A change of any field of a policy is a difference of two tasks.
func TestPolicyFactsKnowAllFields(t *testing.T) {
	var p record.Policy
	suite.EachField(t, &p, func(name string) {
		if facts := policyFacts(&p); len(facts) == 0 {
			t.Errorf("%s is in no fact", name)
		}
	})
}
