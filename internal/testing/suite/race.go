//go:build race

package suite

const race = true
