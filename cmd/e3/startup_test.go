package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"e3/internal/testing/built"
)

// initialised are the packages that may allocate more than 16 kB before main, with their bounds in kB. Each command pays for
// them, also those that use none of it. The patterns of a kind of endpoints and of names of images are
// regular expressions that their packages compile.
var initialised = map[string]int{
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/internal/endpoints": 100,
	"github.com/aws/aws-sdk-go-v2/service/s3/internal/endpoints":       110,
	"github.com/aws/aws-sdk-go-v2/service/signin/internal/endpoints":   80,
	"github.com/aws/aws-sdk-go-v2/service/sso/internal/endpoints":      95,
	"github.com/aws/aws-sdk-go-v2/service/ssooidc/internal/endpoints":  95,
	"github.com/aws/aws-sdk-go-v2/service/sts/internal/endpoints":      100,
	"github.com/VictoriaMetrics/metrics":                               21,
	"github.com/google/go-containerregistry/pkg/name":                  31,
	"github.com/klauspost/compress/flate":                              33,
	"github.com/opencontainers/go-digest":                              110,
	"e3/internal/format/manifest":                                      29,
	"encoding/xml":                                                     23,
	"go.yaml.in/yaml/v4/internal/libyaml":                              40,
	"mvdan.cc/sh/v3/fileutil":                                          20,
	"runtime/metrics":                                                  20,
	"e3/internal/host/bash":                                            20,
}

// TestStartUp: what packages allocate before main is bounded. Bytes are compared as they are the same on each machine, and go with
// the time: 1 ms in 1.3 MB.
func TestStartUp(t *testing.T) {
	const all, one = 1000, 16 // kB
	cmd := exec.Command(built.Program(t), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatalf("e3 version: %v: %.2000s", err, trace.String())
	}
	sum, packages := 0, 0
	for line := range strings.Lines(trace.String()) {
		before, after, _ := strings.Cut(line, " clock, ")
		fields := strings.Fields(before)
		var bytes int
		if _, err := fmt.Sscanf(after, "%d bytes", &bytes); err != nil || len(fields) < 2 {
			continue
		}
		packages++
		sum += bytes
		name, bound := fields[1], one
		if named, ok := initialised[name]; ok {
			bound = named
		}
		if bytes > bound*1000 {
			t.Errorf("package %s allocates %d bytes before main, want at most %d kB: do it behind its first use (sync.OnceValue), or take a version that does", name, bytes, bound)
		}
	}
	if packages < 50 || sum > all*1000 {
		t.Errorf("%d packages allocate %d bytes before main, want at most %d kB of 50 or more", packages, sum, all)
	}
}
