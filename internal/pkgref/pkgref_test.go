package pkgref_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"e3/internal/pkgref"
)

func TestSplit(t *testing.T) {
	for text, want := range map[string][2]string{
		"err": {"err", ""}, "err@1.0.0": {"err", "1.0.0"}, "@acme/err": {"@acme/err", ""}, "@acme/err@1.0.0-rc.1+a": {"@acme/err", "1.0.0-rc.1+a"},
		"a@b@1": {"a@b", "1"}, "@": {"@", ""}, "": {"", ""}, "err@": {"err", ""},
	} {
		if name, version := pkgref.Split(text); name != want[0] || version != want[1] {
			t.Errorf("%q is %q, %q, want %q", text, name, version, want)
		}
	}
	for key, want := range map[string]string{"err/1.0.0": "err@1.0.0", "@acme/err/1.0.0": "@acme/err@1.0.0", "odd": "odd"} {
		if got := pkgref.OfKey(key); got != want {
			t.Errorf("%q is %q, want %q", key, got, want)
		}
	}
}

func TestMark(t *testing.T) {
	for version, want := range map[string][2]string{
		"1.0.0": {"1.0.0", ""}, "1.0.0+01234567": {"1.0.0", "+01234567"}, "1.0.0-89abcdef": {"1.0.0", "-89abcdef"}, "1.0.0+0123456": {"1.0.0+0123456", ""},
		"1.0.0-rc1+01234567": {"1.0.0-rc1", "+01234567"}, "1+ABCDEF01": {"1+ABCDEF01", ""},
	} {
		if base, mark := pkgref.Mark(version); base != want[0] || mark != want[1] {
			t.Errorf("%q is %q, %q, want %q", version, base, mark, want)
		}
	}
}

func TestGreatest(t *testing.T) {
	for _, c := range []struct{ versions, want, why string }{
		{"1.0.0", "1.0.0", ""},
		{"1.9.0 1.10.0 1.2.0", "1.10.0", ""},
		{"1.0.0 2.0.0-rc1", "1.0.0", ""}, // a release, if there is one
		{"1.0.0-rc.9 1.0.0-rc.10 1.0.0-alpha", "1.0.0-rc.10", ""},
		{"1 1.2 1.1.5", "1.2", ""},
		{"1.0.0 1.0.1+a", "1.0.1+a", ""},
		{"1.0.0+b 1.0.0+a", "", "1.0.0+b and 1.0.0+a are the same version"},
		{"1.0.0 1.0.0+a 0.9.0", "", "1.0.0 and 1.0.0+a are the same version"},
		{"1.0.0+b 1.0.0+a 1.1.0", "1.1.0", ""},
		{"1.2 1.2.0", "", "1.2 and 1.2.0 are the same version"},
		{"1.0.0-rc1+a 1.0.0-rc1+b", "", "are the same version"},
		{"nightly", "nightly", ""}, // there is nothing to compare
		{"2024-01-02 1.0.0", "", `"2024-01-02" is no version of Semantic Versioning`},
		{"1.01.0 1.0.0", "", `"1.01.0" is no version`},
		{"v1.0.0 1.0.0", "", `"v1.0.0" is no version`},
		{"", "", `there are no versions`},
	} {
		got, err := pkgref.Greatest(strings.Fields(c.versions))
		if got != c.want || (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("of %s: %q, %v, want %q, %q", c.versions, got, err, c.want, c.why)
		}
	}
}

// The answer depends neither on the order of the versions nor on their build metadata, and never on chance.
func TestGreatestOfAny(t *testing.T) {
	version := rapid.StringMatching(`[0-2](\.[0-2]){0,2}(-(rc\.)?[0-2])?(\+[ab])?|x`)
	rapid.Check(t, func(t *rapid.T) {
		versions := rapid.SliceOfNDistinct(version, 1, 6, rapid.ID).Draw(t, "versions")
		best, err := pkgref.Greatest(versions)
		shuffled := rapid.Permutation(versions).Draw(t, "shuffled")
		again, errAgain := pkgref.Greatest(shuffled)
		if best != again || (err == nil) != (errAgain == nil) {
			t.Fatalf("of %q it is %q, %v; of %q it is %q, %v", versions, best, err, shuffled, again, errAgain)
		}
		if err != nil || len(versions) == 1 {
			return
		}
		if !slices.Contains(versions, best) {
			t.Fatalf("of %q it is %q", versions, best)
		}
		// Others of its kind that differ in metadata only would have been an error; against each alone it wins, too.
		for _, v := range versions {
			if got, err := pkgref.Greatest([]string{v, best}); v != best && (err != nil || got != best) {
				t.Fatalf("of %q it is %q, but beside %q alone it is %q, %v", versions, best, v, got, err)
			}
		}
	})
}
