package objectstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"e3/objectstore"
	"e3/objectstore/tree"
)

// Damage checks that no reader of a store returns wrong bytes without an error after objects were damaged behind its
// back.
type Damage struct {
	// Set stores b under the name h, right or wrong; nil removes the object.
	Set func(h objectstore.Hash, b []byte) error
	// Heals means that the store can restore damaged objects, so every reader must return the right bytes.
	Heals bool
	// Get returns the bytes stored under a name, right or wrong. With a nil Get, only the readers' results are checked.
	Get func(h objectstore.Hash) ([]byte, error)
	// Scratch is an empty folder for files that readers write.
	Scratch string

	Seed  uint64
	Count int // number of objects to damage
}

// Run damages objects of s, each in one way, and reads each by every reader.
func (d Damage) Run(ctx context.Context, s objectstore.Store) error {
	r := rand.New(rand.NewPCG(d.Seed, 0xe3))
	for i := range d.Count {
		if err := d.one(ctx, s, r); err != nil {
			return fmt.Errorf("seed %d, object %d: %w", d.Seed, i, err)
		}
	}
	return nil
}

// one damages a single object, a file or a directory.
func (d Damage) one(ctx context.Context, s objectstore.Store, r *rand.Rand) error {
	b := random(r.Uint64(), sizes[r.IntN(len(sizes))])
	file, err := objectstore.PutBytes(ctx, s, b)
	if err != nil {
		return err
	}
	encoded, err := tree.Encode(tree.Entries{{Name: "f", Kind: tree.KindFile, Hash: file, Size: int64(len(b))}})
	if err != nil {
		return err
	}
	dir, err := objectstore.PutBytes(ctx, s, encoded)
	if err != nil {
		return err
	}
	victim, content := file, b
	if r.IntN(4) == 0 {
		victim, content = dir, encoded
	}
	for name, read := range readers(d.Scratch, file, b, dir) {
		what, bad := Spoil(r, content)
		if err := d.Set(victim, bad); err != nil {
			return err
		}
		err := read(ctx, s)
		var corrupt *objectstore.CorruptError
		switch told := errors.As(err, &corrupt) && corrupt.Want == victim || errors.Is(err, objectstore.ErrNotFound); {
		case errors.Is(err, errWrong), d.Heals && err != nil:
			return fmt.Errorf("%s of %d bytes, %s: %w", name, len(content), what, err)
		case err != nil && !told:
			return fmt.Errorf("%s of %d bytes, %s: got %w, want *CorruptError or ErrNotFound", name, len(content), what, err)
		case err == nil && !d.Heals && touches(name, victim == dir):
			return fmt.Errorf("%s of %d bytes, %s: it was read without an error", name, len(content), what)
		}
		if err := d.Set(victim, content); err != nil {
			return err
		}
	}
	return nil
}

// Spoil changes one byte of b, cuts b off, extends or removes it, and says so.
func Spoil(r *rand.Rand, b []byte) (string, []byte) {
	how := r.IntN(4)
	if len(b) == 0 {
		how = 2 + how%2
	}
	switch how {
	case 0:
		at := r.IntN(len(b))
		bad := bytes.Clone(b)
		bad[at] ^= byte(1 + r.IntN(255))
		return fmt.Sprintf("byte %d changed", at), bad
	case 1:
		at := r.IntN(len(b))
		return fmt.Sprintf("cut off after %d", at), append([]byte{}, b[:at]...)
	case 2:
		n := 1 + r.IntN(1000)
		return fmt.Sprintf("%d bytes more", n), append(bytes.Clone(b), make([]byte, n)...)
	}
	return "removed", nil
}

// errWrong says that a reader returned wrong bytes as if they were right.
var errWrong = errors.New("wrong bytes were handed out")

func compare(got, want []byte) error {
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%w: %d that hash to %s", errWrong, len(got), objectstore.Sum(got))
	}
	return nil
}

// touches reports whether a reader meets the damage: readers of a file do not read its directory.
func touches(reader string, dir bool) bool {
	switch reader {
	case "check out":
		return true
	case "look up":
		return dir
	}
	return !dir
}

type reader func(context.Context, objectstore.Store) error

// readers are all ways to get an object's bytes out of a store.
func readers(scratch string, file objectstore.Hash, b []byte, dir objectstore.Hash) map[string]reader {
	out := filepath.Join(scratch, "out")
	// written compares a file, or checks that it is gone after an error.
	written := func(path string, err error) error {
		got, readErr := os.ReadFile(path)
		if err != nil {
			if !errors.Is(readErr, fs.ErrNotExist) {
				return fmt.Errorf("%w: the file is there after %w", errWrong, err)
			}
			return err
		}
		return errors.Join(readErr, compare(got, b))
	}
	return map[string]reader{
		"read all": func(ctx context.Context, s objectstore.Store) error {
			got, err := objectstore.ReadAll(ctx, s, file, 1<<30)
			if err != nil {
				return err
			}
			return compare(got, b)
		},
		"open": func(ctx context.Context, s objectstore.Store) error {
			r, err := s.Open(ctx, file)
			if err != nil {
				return err
			}
			defer r.Close()
			got, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			return compare(got, b)
		},
		"copy": func(ctx context.Context, s objectstore.Store) error {
			var got bytes.Buffer
			if _, err := objectstore.Copy(ctx, &got, s, file); err != nil {
				return err
			}
			return compare(got.Bytes(), b)
		},
		"copy checked": func(ctx context.Context, s objectstore.Store) error {
			var got bytes.Buffer
			_, err := objectstore.CopyChecked(ctx, &got, s, file)
			if err != nil && got.Len() > 0 {
				return fmt.Errorf("%w before %w", errWrong, err)
			}
			if err != nil {
				return err
			}
			return compare(got.Bytes(), b)
		},
		"materialize": func(ctx context.Context, s objectstore.Store) error {
			defer os.Remove(out)
			root, err := os.OpenRoot(filepath.Dir(out))
			if err != nil {
				return err
			}
			defer root.Close()
			_, err = objectstore.Materialize(ctx, s, file, root, filepath.Base(out), 0o644)
			return written(out, err)
		},
		"check out": func(ctx context.Context, s objectstore.Store) error {
			defer os.RemoveAll(out)
			_, err := tree.Checkout(ctx, s, dir, out, tree.CheckoutOptions{})
			return written(filepath.Join(out, "f"), err)
		},
		"look up": func(ctx context.Context, s objectstore.Store) error {
			e, err := tree.Lookup(ctx, s, dir, "f")
			if err == nil && e.Hash != file {
				return fmt.Errorf("%w: %+v", errWrong, e)
			}
			return err
		},
	}
}

// DamageSeed is E3_TEST_DAMAGE_SEED, or a constant.
func DamageSeed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("E3_TEST_DAMAGE_SEED"), 10, 64); err == nil {
		return n
	}
	return rand.Uint64()
}

// DamageCount is E3_TEST_DAMAGE_COUNT, or few.
func DamageCount(few int) int {
	if n, err := strconv.Atoi(os.Getenv("E3_TEST_DAMAGE_COUNT")); err == nil {
		return n
	}
	return few
}
