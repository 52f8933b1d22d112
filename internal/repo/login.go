package repo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
)

// A login is the credentials that the SDK's usual chain finds. When they have expired, the chain is asked again: a
// person may have logged in, or a program may have written new credentials. The SDK itself does that only if it knows
// when they expire.
type login struct {
	find func(context.Context) (aws.CredentialsProvider, error)

	mu    sync.Mutex
	found aws.CredentialsProvider
	asked time.Time // when the chain was asked last
}

// askPause is the shortest time between two questions to the chain: many requests fail at a time.
const askPause = time.Second

// Retrieve implements [aws.CredentialsProvider].
func (l *login) Retrieve(ctx context.Context) (aws.Credentials, error) {
	l.mu.Lock()
	found := l.found
	l.mu.Unlock()
	c, err := found.Retrieve(ctx)
	if err != nil {
		return c, &loginError{err}
	}
	return c, nil
}

// expired reports whether a request failed because its credentials have expired, or could not be renewed. If so, it
// asks the chain for new credentials, which may have expired too: its caller pauses and tries again.
func (l *login) expired(err error) bool {
	if !hasExpired(err) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.asked) >= askPause {
		l.asked = now
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if found, err := l.find(ctx); err == nil { // an error may be passing: a program may be writing the file
			l.found = found
		}
	}
	return true
}

// hasExpired reports whether an error says that credentials have expired, or could not be renewed.
func hasExpired(err error) bool {
	if failed := (*loginError)(nil); errors.As(err, &failed) {
		return true
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode() {
	case "ExpiredToken", "ExpiredTokenException": // of S3, of DynamoDB
		return true
	}
	return false
}

// A loginError says that there are no usable credentials.
type loginError struct{ err error }

func (e *loginError) Error() string { return e.err.Error() }

// Unwrap returns the SDK's error.
func (e *loginError) Unwrap() error { return e.err }

// expired is login.expired for processes that wait for stores, and nil for others, whose requests fail at once.
func (r *Repo) expired(cfg aws.Config) func(error) bool {
	if l, ok := cfg.Credentials.(*login); ok && r.opts.Outlast > 0 {
		return l.expired
	}
	return nil
}
