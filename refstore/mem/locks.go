package mem

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"e3/refstore"
)

// lockState is one named lock, under Store.mu.
type lockState struct {
	exclusive bool
	holders   int
	text      []byte
}

// held releases once.
type held struct {
	once    sync.Once
	release func()
}

func (h *held) Unlock() error {
	h.once.Do(h.release)
	return nil
}

// Previous returns nil: no lock here outlives its holder.
func (h *held) Previous() []byte { return nil }

// TryLock implements [refstore.Locker].
func (s *Store) TryLock(ctx context.Context, name string, mode refstore.Mode, holder []byte) (refstore.Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if name == "" {
		return nil, fmt.Errorf("lock: %w: empty name", refstore.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.locks[name]
	if st == nil {
		st = new(lockState)
		s.locks[name] = st
	}
	if st.holders > 0 && (st.exclusive || mode == refstore.Exclusive) {
		return nil, &refstore.LockedError{Name: name, Holder: bytes.Clone(st.text)}
	}
	st.exclusive = mode == refstore.Exclusive
	st.holders++
	st.text = bytes.Clone(holder)
	return &held{release: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if st.holders--; st.holders == 0 {
			delete(s.locks, name)
		}
	}}, nil
}

// Holder implements [refstore.Locker].
func (s *Store) Holder(ctx context.Context, name string) ([]byte, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.locks[name]
	if st == nil {
		return nil, false, nil
	}
	return bytes.Clone(st.text), true, nil
}

// TryClaim implements [refstore.Locker].
func (s *Store) TryClaim(_ context.Context, key [32]byte, _ []byte) (refstore.Lock, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.claims[key]; taken {
		return nil, fmt.Errorf("claim %x: %w", key[:8], refstore.ErrClaimed)
	}
	s.claims[key] = struct{}{}
	return &held{release: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.claims, key)
	}}, nil
}
