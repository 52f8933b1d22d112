//go:build race

package zipfile_test

const raceEnabled = true
