//go:build !race

package suite

const race = false
