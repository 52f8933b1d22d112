package main

import (
	"math/rand/v2"
	"strings"
	"testing"

	"e3/internal/testing/suite"
)

// TestHarmedItems runs cases of damage to a shared repository that were once not detected, or not repaired: each must
// be reported.
func TestHarmedItems(t *testing.T) {
	suite.Thorough(t)
	setServerEnv(t)
	s := newHarmStage(t, "shared")
	remove := func(g target) error { return g.remove() }
	halve := func(g target) error { return g.write(g.data[:len(g.data)/2]) }
	grow := func(g target) error { return g.write(append([]byte("1"), g.data...)) }
	spoil := func(g target) error {
		data := append([]byte{}, g.data...)
		data[len(data)/2] ^= 1
		return g.write(data)
	}
	for _, tt := range []struct {
		name string // beginning and end of the target's name
		end  string
		harm func(target) error
	}{
		{"WORKSPACE/main · queued", " · d", remove},
		{"WORKSPACE/main · demo", " · d", remove},
		{"WORKSPACE/main · demo", " · f:deployment.beast2", spoil},
		{"PACKAGE/main · other/0.0.0", " · d", remove},
		{"SETTINGS/main · repository", " · d", remove},
		{"PIN/main", " · d", remove},
		{"QUEUE/main/names · default", " · d", remove},
		{"PARTITION.EVENTS/main · EVENTS/demo", " · v", remove},
		{"STREAM.EVENTS/main/demo", " · n", grow},
		{"STREAM.EVENTS/main/demo", " · t", halve},
		{"STREAM.EVENTS/main/far", " · n", remove},
		{"EXECUTION/main", " · d", remove},
		{"ID.EXECUTION/main", " · v", remove},
		{"TASKS/main", " · v", remove},
		{"INPUTS/main", " · v", remove},
		{"RUNS/main", " · v", remove},
		{"s3://e3-shared/harm/main/records/", "", remove},
		{"s3://e3-shared/harm/main/records/", "", halve},
	} {
		t.Run(tt.name+tt.end, func(t *testing.T) {
			s.t = t
			s.repo.restore(t)
			found := false
			for _, g := range s.repo.targets() {
				if strings.HasPrefix(g.name, tt.name) && strings.HasSuffix(g.name, tt.end) && !strings.Contains(g.name, " witness") {
					found = true
					if err := tt.harm(g); err != nil {
						t.Fatal(err)
					}
					break
				}
			}
			if !found {
				t.Fatalf("there is no %s…%s", tt.name, tt.end)
			}
			if j := s.judge(asking()); j.bad() || j.verdict == noHarm {
				t.Errorf("%s\n%s", j.verdict, strings.Join(j.told, "\n"))
			}
		})
	}
}

// asking is a source of random numbers with which judge runs every question before a start.
func asking() *rand.Rand {
	for seed := uint64(0); ; seed++ {
		if rand.New(rand.NewPCG(seed, 0)).IntN(2) != 0 {
			return rand.New(rand.NewPCG(seed, 0))
		}
	}
}

// TestListGoesOn: a damaged workspace is reported, and the others are listed.
func TestListGoesOn(t *testing.T) {
	setServerEnv(t)
	s := newHarmStage(t, "folder")
	for _, g := range s.repo.targets() {
		if g.name == ".e3/workspaces/demo.beast2" {
			if err := g.write(g.data[:len(g.data)/2]); err != nil {
				t.Fatal(err)
			}
		}
	}
	a := s.must(12, "list", s.repo.location())
	if !strings.Contains(a.out, "other") || !strings.Contains(a.err, "workspace demo") || strings.Contains(a.out, "demo@") {
		t.Errorf("list with a damaged workspace:\n%s%s\nwant the others, and that demo is damaged", a.out, a.err)
	}
}
