//go:build race

package e2e

// raceBuild says that the program is built with the race detector, as these tests are.
const raceBuild = true
