package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/sync/errgroup"

	"e3/objectstore"
)

// A Demand is one thing that e3 asks of a server of objects.
type Demand struct {
	Name string
	// Without says what it means that the server does not do it; "" if e3 cannot use the server then.
	Without string
	// Meets returns an error if the server does not do it. It puts blobs and objects under the bucket's prefix.
	Meets func(ctx context.Context) error
}

// Demands are what e3 asks of a server beyond the promises of an objectstore.Store. The bucket must exist ([Bucket.Create]),
// and its prefix must be nobody else's: what the demands put there is left to [Bucket.Empty].
func (b *Bucket) Demands() []Demand {
	return []Demand{
		{"one of many creators of a name wins", "", b.oneCreates},
		{"what was put or deleted is so at once, for readers and in lists", "", b.atOnce},
		{"lists of several pages are complete and in order", "", b.pages},
		{"a read may begin anywhere", "", b.readsFrom},
		{"the server's clock agrees with this machine's", "its requests are dated by the server's answers; other tools may fail", b.clock},
		{"bytes that differ from their SHA-256 are refused", "bytes that change on the way to it are found when they are read", b.refusesOther},
		{"an upload in parts creates a name only once", "large objects that are put twice at the same time are replaced by equal ones", b.partsOnce},
		{"unfinished uploads are listed", "what a crash leaves of large objects is not found by a gc", b.listsUploads},
	}
}

// probe names of one process do not meet those of another, or of a process that died.
func probeName() string { return "probes/" + rand.Text() }

// oneCreates has many create the same name at the same time, for several names.
func (b *Bucket) oneCreates(ctx context.Context) error {
	for range 8 {
		name := probeName()
		var created atomic.Int32
		g, ctx := errgroup.WithContext(ctx)
		for i := range 16 {
			g.Go(func() error {
				ok, err := b.CreateBlob(ctx, name, fmt.Appendf(nil, "creator %d", i))
				if ok {
					created.Add(1)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if n := created.Load(); n != 1 {
			return fmt.Errorf("%d of 16 creators of one name were told that they had won, want 1", n)
		}
	}
	return nil
}

func (b *Bucket) atOnce(ctx context.Context) error {
	for i := range 10 {
		name := probeName()
		for _, text := range []string{fmt.Sprint("first ", i), fmt.Sprint("second ", i)} {
			if err := b.PutBlob(ctx, name, []byte(text)); err != nil {
				return err
			}
			if err := b.holds(ctx, name, 0, text); err != nil {
				return err
			}
		}
		if err := b.listed(ctx, name, true); err != nil {
			return err
		}
		if err := b.DeleteBlob(ctx, name); err != nil {
			return err
		}
		if err := b.listed(ctx, name, false); err != nil {
			return err
		}
		switch r, err := b.OpenBlob(ctx, name, 0); {
		case err == nil:
			r.Close()
			return errors.New("what was deleted can be read right after")
		case !errors.Is(err, objectstore.ErrNotFound):
			return err
		}
	}
	return nil
}

func (b *Bucket) holds(ctx context.Context, name string, from int64, want string) error {
	r, err := b.OpenBlob(ctx, name, from)
	if err != nil {
		return err
	}
	defer r.Close()
	got, err := io.ReadAll(io.LimitReader(r, int64(len(want))+1))
	if err == nil && string(got) != want {
		err = fmt.Errorf("a read from byte %d right after a put got %.80q, want %.80q", from, got, want)
	}
	return err
}

// listed demands that a list right after a put has the name, and one right after its deletion has not.
func (b *Bucket) listed(ctx context.Context, name string, want bool) error {
	there := false
	for blob, err := range b.ListBlobs(ctx, name) {
		if err != nil {
			return err
		}
		there = there || blob.Name == name
	}
	if there != want {
		return fmt.Errorf("a list has what was just put or deleted: %t, want %t", there, want)
	}
	return nil
}

// pages lists with pages of three, as no probe should have to put a thousand.
func (b *Bucket) pages(ctx context.Context) error {
	o := b.o
	o.PageSize = 3
	small, name := Open(o), probeName()
	const n = 20
	g, put := errgroup.WithContext(ctx)
	for i := range n {
		g.Go(func() error { return b.PutBlob(put, fmt.Sprintf("%s/%02d", name, i), nil) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	i := 0
	for blob, err := range small.ListBlobs(ctx, name+"/") {
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("%s/%02d", name, i); blob.Name != want {
			return fmt.Errorf("a list in pages of 3 has %q in place of %q", blob.Name, want)
		}
		i++
	}
	if i != n {
		return fmt.Errorf("a list in pages of 3 has %d names, want %d", i, n)
	}
	return nil
}

func (b *Bucket) readsFrom(ctx context.Context) error {
	name, text := probeName(), "0123456789"
	if err := b.PutBlob(ctx, name, []byte(text)); err != nil {
		return err
	}
	for from := range int64(len(text) + 2) {
		if err := b.holds(ctx, name, from, text[min(int(from), len(text)):]); err != nil {
			return err
		}
	}
	return nil
}

// maxSkew is what AWS itself tolerates in the date of a request.
const maxSkew = 15 * time.Minute

func (b *Bucket) clock(ctx context.Context) error {
	now, err := b.Now(ctx)
	if err != nil {
		return err
	}
	if skew := time.Duration(math.Abs(float64(time.Since(now)))); skew > maxSkew {
		return fmt.Errorf("they differ by %v", skew.Round(time.Second))
	}
	return nil
}

func (b *Bucket) refusesOther(ctx context.Context) error {
	said, sent := []byte("what was announced"), []byte("what was then sent")
	err := b.putSum(ctx, b.prefix+probeName(), objectstore.Sum(said), bytes.NewReader(sent), int64(len(sent)), nil)
	if err == nil {
		return errors.New("it took other bytes")
	}
	if !mismatch(err) {
		return fmt.Errorf("it refused them for another reason: %w", err)
	}
	return nil
}

// partsOnce begins two uploads of one name in parts, and completes both.
func (b *Bucket) partsOnce(ctx context.Context) error {
	data := make([]byte, 64)
	rand.Read(data)
	src := &source{bytes.NewReader(data), int64(len(data)), func(error) {}}
	key := b.key(objectstore.Sum(data))
	for _, want := range []bool{true, false} {
		created, err := b.upload(ctx, key, src, aws.String("*"))
		if err != nil {
			return err
		}
		if created != want {
			return fmt.Errorf("an upload that was to create the name says that it did: %t, want %t", created, want)
		}
	}
	return nil
}

// listsUploads leaves an upload and has it removed.
func (b *Bucket) listsUploads(ctx context.Context) error {
	made, err := b.begin(ctx, b.key(objectstore.Sum([]byte(rand.Text()))))
	if err != nil {
		return err
	}
	n, err := b.RemoveUploads(ctx, time.Now().Add(maxSkew))
	if err == nil && n == 0 {
		err = fmt.Errorf("the upload %s, which was begun, is not listed", made)
	}
	return err
}

// Empty removes everything below the bucket's prefix, which must not be empty.
func (b *Bucket) Empty(ctx context.Context) error {
	if b.prefix == "" {
		return errors.New("empty a whole bucket: refused")
	}
	for k, err := range b.list(ctx, b.prefix) {
		if err == nil {
			err = b.deleteKey(ctx, k.key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
