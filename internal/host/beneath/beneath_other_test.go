//go:build !linux

package beneath_test

import "testing"

func eachWay(t *testing.T, test func(t *testing.T)) { test(t) }
