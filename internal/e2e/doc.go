// Package e2e holds the tests that drive the e3 program itself, as processes: killed at any
// moment, without power, without space, in crowds, and running tasks that mean harm.
//
// After whatever was done to it, a repository must pass check (check_test.go).
// The tests run on Linux; those that mount file systems or become another user need root and
// say so when they skip. E3_E2E_KILLS is how many kill points TestKillAnywhere tries,
// E3_E2E_SEED repeats its random choices, and E3_E2E_PROGRAM tests a program that is built already.
package e2e
