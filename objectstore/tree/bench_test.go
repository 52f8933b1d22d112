package tree_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"e3/objectstore/tree"
)

func makeFiles(b *testing.B, dir string, files int) {
	buf := make([]byte, 4096)
	for i := range files {
		sub := filepath.Join(dir, fmt.Sprint(i/200))
		if i%200 == 0 {
			if err := os.MkdirAll(sub, 0o777); err != nil {
				b.Fatal(err)
			}
		}
		binary.LittleEndian.PutUint64(buf, uint64(i)+1)
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(i)), buf, 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPut20000(b *testing.B) {
	for _, mode := range []string{"new", "present", "adopt"} {
		b.Run(mode, func(b *testing.B) {
			base := b.TempDir()
			src := filepath.Join(base, "src")
			makeFiles(b, src, 20_000)
			n := 0
			d := newDirIn(b, filepath.Join(base, "present"))
			putTree(b, d, src, tree.PutOptions{})
			for b.Loop() {
				n++
				if mode != "present" {
					d = newDirIn(b, filepath.Join(base, fmt.Sprint(n)))
				}
				if n > 1 && mode == "adopt" {
					b.StopTimer()
					makeFiles(b, src, 20_000)
					b.StartTimer()
				}
				putTree(b, d, src, tree.PutOptions{Adopt: mode == "adopt"})
			}
		})
	}
}

func BenchmarkCheckout20000(b *testing.B) {
	base := b.TempDir()
	src := filepath.Join(base, "src")
	makeFiles(b, src, 20_000)
	d := newDirIn(b, base)
	h, _ := putTree(b, d, src, tree.PutOptions{})
	n := 0
	for b.Loop() {
		n++
		if _, err := tree.Checkout(b.Context(), d, h, filepath.Join(base, fmt.Sprint(n)), tree.CheckoutOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
