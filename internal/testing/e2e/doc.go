// Package e2e holds the tests that drive the e3 program itself, as processes: killed at any
// moment, without power, without space, in crowds, beside collections of garbage, and running tasks that mean harm.
//
// After whatever was done to it, a repository must pass check (check_test.go).
// The tests run on Linux; those that mount file systems or become another user need root and
// say so when they skip. E3_E2E_KILLS is how many kill points TestKillAnywhere and TestKillArchives try,
// E3_E2E_TORTURE how long TestTorture lasts, E3_E2E_ENTRIES how many entries TestZipBombs makes, E3_E2E_SEED repeats their random
// choices, E3_E2E_KEEP keeps the folders of
// tests that fail, and E3_E2E_PROGRAM tests a program that is built already. E3_TEST_SCHEDULES is how many
// schedules TestFaultSchedules plays (50; nightly 1000), E3_TEST_SEED repeats their choices, and E3_E2E_NAMESPACES=0 has machines be processes for root too.
//
// E3_E2E_TASKS is how many tasks each scheduler of TestSlurm and TestClusters gets at once (100):
//
//	E3_E2E_TASKS=500 go test ./internal/testing/e2e -v -timeout 60m -run 'TestClusters|TestSlurm'
//
// E3_E2E_OUTAGE is how long a store does not answer, and E3_E2E_COMMAND how long the command that outlives everything lasts:
//
//	E3_E2E_OUTAGE=2m E3_E2E_COMMAND=10m go test ./internal/testing/e2e -v -timeout 30m -run 'TestWorkers/.*_outlives$'
package e2e
