package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"e3/internal/testing/testserver"
	"e3/objectstore"
	"e3/objectstore/s3"
)

// shared compares a shared repository with direct use of the clients and servers that it is built on.
func (b *bench) shared() error {
	if b.wants("upload") {
		if err := b.uploads(); err != nil {
			return err
		}
	}
	if b.wants("lookups") {
		if err := b.lookups(); err != nil {
			return err
		}
	}
	if b.wants("changes") {
		return b.change()
	}
	return nil
}

// uploads compares putting one large object with the SDK's transfer manager, on the same file and server.
func (b *bench) uploads() (err error) {
	dir := filepath.Join(b.dir, "upload")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file, h, err := b.uploaded(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	name, endpoint, stop, err := serveS3(dir)
	if err != nil {
		return err
	}
	defer stop()

	ctx := context.Background()
	size := b.mib << 20
	bucket := s3.Open(s3.Options{Config: testserver.Config(), Endpoint: endpoint, Bucket: testserver.Name(), PathStyle: true})
	if _, err := bucket.Create(ctx); err != nil {
		return err
	}
	plain := awss3.NewFromConfig(testserver.Config(), func(o *awss3.Options) {
		o.BaseEndpoint, o.UsePathStyle = &endpoint, true
	})
	theirs := aws.String(testserver.Name())
	if _, err := plain.CreateBucket(ctx, &awss3.CreateBucketInput{Bucket: theirs}); err != nil {
		return err
	}
	manager := transfermanager.New(plain)
	ours := func() (time.Duration, error) {
		began := time.Now()
		created, err := bucket.Put(ctx, h, file, size)
		took := time.Since(began)
		if err == nil && !created {
			err = errors.New("the object is there already")
		}
		return took, errors.Join(err, bucket.Delete(ctx, []objectstore.Hash{h}))
	}
	peer := func() (time.Duration, error) {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return 0, err
		}
		key := aws.String("file")
		began := time.Now()
		_, err := manager.UploadObject(ctx, &transfermanager.UploadObjectInput{Bucket: theirs, Key: key, Body: file})
		took := time.Since(began)
		_, removal := plain.DeleteObject(ctx, &awss3.DeleteObjectInput{Bucket: theirs, Key: key})
		return took, errors.Join(err, removal)
	}
	var e3s, peers []time.Duration
	for i := range b.rounds {
		first, second := ours, peer
		if i%2 == 1 { // alternate: pending disk writes slow down the second one
			first, second = peer, ours
		}
		t, err := first()
		if err != nil {
			return err
		}
		u, err := second()
		if err != nil {
			return err
		}
		if i%2 == 1 {
			t, u = u, t
		}
		e3s, peers = append(e3s, t), append(peers, u)
	}
	rate := func(d time.Duration) float64 { return float64(size) / d.Seconds() / 1e6 }
	row(fmt.Sprintf("upload %d MiB (transfermanager)", b.mib), median(e3s), median(peers), 1/0.7,
		fmt.Sprintf("%s; %.0f and %.0f MB/s", name, rate(median(e3s)), rate(median(peers))))
	return nil
}

// uploaded makes the file to upload, and returns its hash.
func (b *bench) uploaded(dir string) (*os.File, objectstore.Hash, error) {
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		return nil, objectstore.Hash{}, err
	}
	r := rand.New(rand.NewPCG(1, 2))
	hasher := objectstore.NewHasher()
	block := make([]byte, 1<<20)
	for range b.mib {
		incompressible(r, block)
		hasher.Write(block)
		if _, err := f.Write(block); err != nil {
			f.Close()
			return nil, objectstore.Hash{}, err
		}
	}
	return f, hasher.Hash(), f.Sync()
}

// serveS3 starts a server that keeps objects in dir; if it is not installed, one in this process that keeps them in
// memory.
func serveS3(dir string) (name, url string, stop func(), err error) {
	tb := &servers{dir: dir}
	url, missing, err := tb.try(testserver.VersityGW)
	if missing == nil {
		return "versitygw", url, tb.stop, err
	}
	return "gofakes3", testserver.GoFakeS3(tb), tb.stop, nil
}

// servers is a testserver.TB outside a test.
type servers struct {
	dir      string
	cleanups []func()
}

// try starts a server. If it is not available here, try prints the reason and returns it as missing, and the caller
// starts another.
func (s *servers) try(start func(testserver.TB) string) (url string, missing, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			s.stop()
			ended, ok := fault.(serverFault)
			if !ok {
				panic(fault)
			}
			if ended.fatal {
				err = ended.err
				return
			}
			missing = ended.err
			fmt.Printf("%-34s %v\n", "", missing)
		}
	}()
	return start(s), nil, nil
}

// A serverFault is why there is no server.
type serverFault struct {
	err   error
	fatal bool
}

func (s *servers) Helper()                         {}
func (s *servers) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (s *servers) Fatalf(format string, args ...any) {
	panic(serverFault{fmt.Errorf(format, args...), true})
}
func (s *servers) Skipf(format string, args ...any) {
	panic(serverFault{fmt.Errorf(format, args...), false})
}
func (s *servers) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *servers) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, "server-")
	if err != nil {
		s.Fatalf("make a folder for a server: %v", err)
	}
	return dir
}

func (s *servers) stop() {
	for len(s.cleanups) > 0 {
		last := len(s.cleanups) - 1
		f := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		f()
	}
}
