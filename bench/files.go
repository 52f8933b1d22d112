package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"e3/objectstore"
	"e3/objectstore/tree"
)

// store is the measured process: it stores one file or folder in an empty store.
func store(path string) error {
	ctx := context.Background()
	dir, err := objectstore.OpenDir(path+".objects", objectstore.Options{})
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		_, _, err = tree.Put(ctx, dir, path, tree.PutOptions{})
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = objectstore.PutFile(ctx, dir, f, objectstore.FileOptions{})
	return err
}

func (b *bench) files() error {
	if !b.wants("store") {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return errors.Join(b.oneFile(self), b.manyFiles(self))
}

// oneFile compares hashing and storing with hashing alone, and with copying.
func (b *bench) oneFile(self string) error {
	size := int64(256 << 20)
	if b.full {
		size = 2 << 30
	}
	path := filepath.Join(b.dir, "large")
	if err := random(path, size); err != nil {
		return err
	}
	defer os.RemoveAll(path)
	var e3, hash, cp []time.Duration
	for range b.rounds {
		t, _, err := timed(b.dir, self, "store", path)
		if err != nil {
			return err
		}
		e3 = append(e3, t)
		os.RemoveAll(path + ".objects")
		if have("openssl") {
			if t, _, err = timed(b.dir, "openssl", "dgst", "-sha256", path); err != nil {
				return err
			}
			hash = append(hash, t)
		}
		if t, _, err = timed(b.dir, "cp", path, path+".copy"); err != nil {
			return err
		}
		cp = append(cp, t)
		os.Remove(path + ".copy")
	}
	name := fmt.Sprintf("store %d MiB", size>>20)
	if len(hash) > 0 {
		row(name+" (openssl dgst)", median(e3), median(hash), 1.2, "")
	}
	row(name+" (cp)", median(e3), median(cp), 1, "")
	return nil
}

func random(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := rand.NewChaCha8([32]byte{1})
	block := make([]byte, 1<<20)
	for ; size > 0; size -= int64(len(block)) {
		r.Read(block)
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return f.Close()
}

// manyFiles compares storing 20,000 files of 4 KiB with "git add" of the same.
func (b *bench) manyFiles(self string) error {
	const files = 20_000
	dir := filepath.Join(b.dir, "many")
	r := rand.NewChaCha8([32]byte{2})
	block := make([]byte, 4<<10)
	for i := range files {
		r.Read(block)
		sub := filepath.Join(dir, fmt.Sprintf("d%03d", i/100))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%d", i)), block, 0o644); err != nil {
			return err
		}
	}
	defer os.RemoveAll(dir)
	var e3, git []time.Duration
	for k := range min(b.rounds, 3) {
		t, _, err := timed(b.dir, self, "store", dir)
		if err != nil {
			return err
		}
		e3 = append(e3, t)
		os.RemoveAll(dir + ".objects")
		if !have("git") {
			continue
		}
		repo := filepath.Join(b.dir, fmt.Sprintf("git%d", k))
		if _, _, err := timed(b.dir, "git", "init", "-q", repo); err != nil {
			return err
		}
		if t, _, err = timed(dir, "git", "--git-dir="+repo+"/.git", "--work-tree="+dir, "add", "."); err != nil {
			return err
		}
		git = append(git, t)
		os.RemoveAll(repo)
	}
	if len(git) > 0 {
		row("store 20,000 files (git add)", median(e3), median(git), 0.3, "")
	}
	return nil
}
