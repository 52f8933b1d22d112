package s3

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"e3/objectstore"
)

const (
	// maxParts is S3's limit of parts.
	maxParts = 10_000
	// uploads bounds the number of times that an upload begins again after conflicts.
	uploads = 3
	// joining is the longest time without an answer while the server joins parts.
	joining = 15 * time.Minute
	// aborting bounds the removal of an upload that failed.
	aborting = 30 * time.Second
)

// errConflict says that another upload of the key was completed at the same time.
var errConflict = errors.New("another upload of it was completed at the same time")

// putLarge puts an object in parts, if a lookup says that it does not exist.
func (b *Bucket) putLarge(ctx context.Context, h objectstore.Hash, src *source) (bool, error) {
	key := b.key(h)
	for attempt := 1; ; attempt++ {
		condition := aws.String("*")
		switch e, err := b.Stat(ctx, h); {
		case err == nil && e.Size == src.size:
			return false, nil
		case err == nil:
			condition = nil // an object of another size is damaged: replace it
		case !errors.Is(err, objectstore.ErrNotFound):
			return false, err
		}
		created, err := b.upload(ctx, key, src, condition)
		if !errors.Is(err, errConflict) || attempt == uploads {
			return created, err
		}
		if err := b.pause(ctx, attempt); err != nil {
			return false, b.failed("put", key, err)
		}
	}
}

// upload puts src in parts. After a failure the parts are removed again.
func (b *Bucket) upload(ctx context.Context, key string, src *source, condition *string) (created bool, err error) {
	id, err := b.begin(ctx, key)
	if err != nil {
		return false, err
	}
	parts, err := b.uploadParts(ctx, key, id, src)
	if err == nil {
		created, err = b.complete(ctx, key, id, src.size, parts, condition)
	}
	if err != nil || !created {
		b.abort(ctx, key, id)
	}
	return created, err
}

// begin begins an upload and returns its id.
func (b *Bucket) begin(ctx context.Context, key string) (id string, err error) {
	made, err := b.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket:            &b.o.Bucket,
		Key:               &key,
		ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
	})
	if err != nil {
		return "", b.failed("begin to put", key, err)
	}
	if made.UploadId == nil || *made.UploadId == "" {
		return "", b.failed("begin to put", key, errors.New("the server's answer has no id of the upload"))
	}
	return *made.UploadId, nil
}

// partSize is the size of an object's parts.
func (b *Bucket) partSize(size int64) int64 {
	const unit = 1 << 20
	if b.o.PartSize >= (size+maxParts-1)/maxParts {
		return b.o.PartSize
	}
	return (size/maxParts/unit + 1) * unit
}

func (b *Bucket) uploadParts(ctx context.Context, key, id string, src *source) ([]types.CompletedPart, error) {
	partSize := b.partSize(src.size)
	parts := make([]types.CompletedPart, (src.size+partSize-1)/partSize)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(b.o.Concurrency)
	for i := range parts {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := b.acquire(ctx); err != nil {
				return b.failed("put", key, err)
			}
			defer b.release()
			off := int64(i) * partSize
			return b.uploadPart(ctx, key, id, src, off, min(partSize, src.size-off), int32(i+1), &parts[i])
		})
	}
	return parts, g.Wait()
}

// uploadPart sends one part from the source: it is read twice and never held in memory.
func (b *Bucket) uploadPart(ctx context.Context, key, id string, src *source, off, size int64, number int32, done *types.CompletedPart) error {
	sum, err := b.sum(src.section(off, size))
	if err != nil {
		return b.failed("put", key, err)
	}
	checksum := base64.StdEncoding.EncodeToString(sum[:])
	out, err := b.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket:            &b.o.Bucket,
		Key:               &key,
		UploadId:          &id,
		PartNumber:        &number,
		Body:              src.section(off, size),
		ContentLength:     &size,
		ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
		ChecksumSHA256:    &checksum,
	}, signedSum(sum), func(o *s3.Options) { o.ContinueHeaderThresholdBytes = -1 })
	if err != nil {
		return b.failed(fmt.Sprintf("put part %d of", number), key, err)
	}
	*done = types.CompletedPart{ETag: out.ETag, PartNumber: &number, ChecksumSHA256: &checksum}
	return nil
}

// complete joins the parts to an object, on a condition or in place of the existing one. It returns errConflict if the
// upload has to start again.
func (b *Bucket) complete(ctx context.Context, key, id string, size int64, parts []types.CompletedPart, condition *string) (bool, error) {
	_, err := b.client.CompleteMultipartUpload(patient(ctx, joining), &s3.CompleteMultipartUploadInput{
		Bucket:          &b.o.Bucket,
		Key:             &key,
		UploadId:        &id,
		IfNoneMatch:     condition,
		MpuObjectSize:   &size,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	switch {
	case err == nil:
		return true, nil
	case precondition(err):
		return false, nil
	case code(err) == codeConflict:
		return false, errConflict
	case code(err) == codeNoSuchUpload:
		// An earlier attempt took effect, and its answer was lost; or another process removed the upload.
		switch e, statErr := b.stat(ctx, key); {
		case statErr == nil && e.size == size && condition != nil:
			return true, nil
		case errors.Is(statErr, objectstore.ErrNotFound) || statErr == nil:
			return false, errConflict
		}
	}
	return false, b.failed("finish to put", key, err)
}

// abort removes an upload, also when ctx is done. If it fails, RemoveUploads removes the upload later.
func (b *Bucket) abort(ctx context.Context, key, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), aborting)
	defer cancel()
	_, _ = b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.o.Bucket, Key: &key, UploadId: &id})
}

// RemoveUploads removes the parts of large objects whose upload began before a time, by the server's clock, and never
// finished, for example because the machine died. It returns the number of removed uploads. A rule in the bucket
// (AbortIncompleteMultipartUpload) does the same.
func (b *Bucket) RemoveUploads(ctx context.Context, before time.Time) (int, error) {
	removed := 0
	prefix := b.prefix + objectsFolder
	in := &s3.ListMultipartUploadsInput{Bucket: &b.o.Bucket, Prefix: &prefix, MaxUploads: aws.Int32(int32(b.o.PageSize))}
	var page []types.MultipartUpload
	for more := true; more; {
		out, err := b.listUploads(ctx, in)
		if err != nil {
			return removed, err
		}
		// Remove them only now, as some servers find the next page by the last upload of this one.
		n, err := b.removeUploads(ctx, page, before)
		removed += n
		if err != nil {
			return removed, err
		}
		page = out.Uploads
		if more = aws.ToBool(out.IsTruncated); more {
			if aws.ToString(out.NextKeyMarker) <= aws.ToString(in.KeyMarker) && aws.ToString(out.NextUploadIdMarker) == aws.ToString(in.UploadIdMarker) {
				return removed, b.failed("list unfinished uploads of", prefix, errNoProgress)
			}
			in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
		}
	}
	n, err := b.removeUploads(ctx, page, before)
	return removed + n, err
}

// listUploads returns a page; it is empty for servers without such a list.
func (b *Bucket) listUploads(ctx context.Context, in *s3.ListMultipartUploadsInput) (*s3.ListMultipartUploadsOutput, error) {
	out, err := b.client.ListMultipartUploads(ctx, in)
	if in.UploadIdMarker != nil && code(err) == "InvalidArgument" {
		in.UploadIdMarker = nil // some servers support only the key as marker
		out, err = b.client.ListMultipartUploads(ctx, in)
	}
	switch {
	case err == nil:
		return out, nil
	case unsupported(err) || code(err) == codeNoSuchUpload:
		return &s3.ListMultipartUploadsOutput{}, nil
	}
	return nil, b.failed("list unfinished uploads of", *in.Prefix, err)
}

func (b *Bucket) removeUploads(ctx context.Context, uploads []types.MultipartUpload, before time.Time) (removed int, err error) {
	for _, u := range uploads {
		if u.Key == nil || u.UploadId == nil || u.Initiated == nil || !u.Initiated.Before(before) || !strings.HasPrefix(*u.Key, b.prefix+objectsFolder) {
			continue
		}
		_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.o.Bucket, Key: u.Key, UploadId: u.UploadId})
		switch {
		case err == nil:
			removed++
		case code(err) != codeNoSuchUpload:
			return removed, b.failed("remove an unfinished upload of", *u.Key, err)
		}
	}
	return removed, nil
}
