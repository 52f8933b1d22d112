package record_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var fuzzTargets = []struct{ fuzz, codec string }{
	{"FuzzDecodeStatus", "status"}, {"FuzzDecodeMetadata", "metadata"}, {"FuzzDecodeDetail", "detail"}, {"FuzzDecodeRun", "run"},
	{"FuzzDecodeWorkspaceState", "workspace state"}, {"FuzzDecodeLockState", "lock state"}, {"FuzzDecodeTask", "task"},
	{"FuzzDecodeNode", "node"}, {"FuzzDecodePackage", "package"}, {"FuzzDecodeLink", "link"}, {"FuzzDecodeProof", "proof"},
	{"FuzzDecodeDurations", "durations"}, {"FuzzDecodeWorkspaceDeployment", "workspace deployment"},
	{"FuzzDecodeProvenance", "provenance"}, {"FuzzDecodeExport", "export provenance"}, {"FuzzDecodeRejection", "rejection"},
	{"FuzzDecodeSignature", "signature"},
	{"FuzzDecodeResultsPlan", "results plan"}, {"FuzzDecodeResults", "results"},
	{"FuzzDecodeTombstones", "tombstones"}, {"FuzzDecodePin", "pin"}, {"FuzzDecodeCancellation", "cancellation"},
}

// readSeeds reads a corpus folder in the format of go test.
func readSeeds(t *testing.T, dir string) [][]byte {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var seeds [][]byte
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "\n")
		quoted := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(rest), "[]byte("), ")")
		data, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		seeds = append(seeds, []byte(data))
	}
	return seeds
}
