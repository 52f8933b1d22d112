// Package registry fetches images from registries, by the protocol of the OCI distribution specification.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"e3/internal/format/image"
	"e3/internal/images"
)

// A Client is an images.Registry. It uses this user's credentials of docker login or podman login.
type Client struct {
	Agent string // User-Agent of its requests
}

// Open implements images.Registry. It makes no request yet.
func (c Client) Open(_ context.Context, text, digest string) (images.Source, error) {
	var ref name.Reference
	ref, err := name.ParseReference(text)
	if err == nil && digest != "" {
		ref = ref.Context().Digest(digest)
	}
	if err != nil {
		return nil, err
	}
	return &source{client: c, ref: ref}, nil
}

// source is an image at a registry.
type source struct {
	client Client
	ref    name.Reference
}

func (s *source) options(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithUserAgent(s.client.Agent)}
}

// Top implements images.Source.
func (s *source) Top(ctx context.Context) ([]byte, error) {
	d, err := remote.Get(s.ref, s.options(ctx)...)
	if err != nil {
		return nil, explained(err)
	}
	return d.Manifest, nil
}

// Blob implements images.Source.
func (s *source) Blob(ctx context.Context, d image.Descriptor) (io.ReadCloser, error) {
	at := s.ref.Context().Digest(d.Digest)
	if image.IsManifestType(d.MediaType) {
		got, err := remote.Get(at, s.options(ctx)...)
		if err != nil {
			return nil, explained(err)
		}
		return io.NopCloser(strings.NewReader(string(got.Manifest))), nil
	}
	layer, err := remote.Layer(at, s.options(ctx)...)
	if err != nil {
		return nil, explained(err)
	}
	r, err := layer.Compressed()
	if err != nil {
		return nil, explained(err)
	}
	return r, nil
}

// Close implements images.Source.
func (s *source) Close() error { return nil }

// explained adds advice to an error.
func explained(err error) error {
	var answer *transport.Error
	if !errors.As(err, &answer) {
		return fmt.Errorf("the registry cannot be reached: %w; once the image is here, a start needs no registry", err)
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("the registry refuses it: %w; log in with docker login or podman login, and look at the name", err)
	case http.StatusNotFound:
		return fmt.Errorf("the registry has no such image: %w", err)
	}
	return fmt.Errorf("the registry fails: %w", err)
}
