//go:build !unix

package objectstore_test

func setUmask(int) {}
