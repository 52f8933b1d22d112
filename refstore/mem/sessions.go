package mem

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"e3/refstore"
)

// SessionBegan implements [refstore.Sessions]. A store in memory has one session, that of its process.
func (s *Store) SessionBegan(ctx context.Context) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begin(), nil
}

// begin begins the session if need be, under s.mu.
func (s *Store) begin() time.Time {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	return s.began
}

// Protect implements [refstore.Sessions].
func (s *Store) Protect(ctx context.Context, names []string) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "\n\x00") {
			return nil, fmt.Errorf("protect %.100q: %w: a name is one line", name, refstore.ErrInvalid)
		}
	}
	list := slices.Clone(names)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	if s.protected == nil {
		s.protected = make(map[*[]string]struct{})
	}
	s.protected[&list] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.protected, &list)
	}, nil
}

// LiveSessions implements [refstore.Sessions].
func (s *Store) LiveSessions(ctx context.Context) ([]refstore.SessionInfo, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.IsZero() {
		return nil, nil
	}
	info := refstore.SessionInfo{Began: s.began}
	for list := range s.protected {
		info.Protected = append(info.Protected, *list...)
	}
	return []refstore.SessionInfo{info}, nil
}
