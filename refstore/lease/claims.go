package lease

import (
	"context"
	"errors"
	"fmt"

	"e3/refstore"
)

// TryClaim implements [refstore.Locker].
func (l *Leases) TryClaim(ctx context.Context, key [32]byte, holder []byte) (refstore.Lock, error) {
	lock, err := l.tryClaim(ctx, key, holder)
	if err != nil {
		return nil, fmt.Errorf("claim %x: %w", key[:8], err)
	}
	return lock, nil
}

func (l *Leases) tryClaim(ctx context.Context, key [32]byte, text []byte) (refstore.Lock, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("%w: %d bytes about the holder, at most %d are kept", refstore.ErrInvalid, len(text), maxText)
	}
	s, err := l.use(ctx)
	if err != nil {
		return nil, err
	}
	h := &held{l: l, key: claimKey(key), claim: &key, sole: true}
	l.mu.Lock()
	_, taken := l.claims[key]
	if !taken {
		h.nonce = l.nonces.Add(1)
		l.claims[key], l.holds[h.nonce] = h.nonce, nil
	}
	l.mu.Unlock()
	if taken {
		return nil, refstore.ErrClaimed
	}
	lock, err := l.putClaim(ctx, s, h, text)
	if err != nil {
		l.forget(&key, h.nonce)
	}
	return lock, err
}

func (l *Leases) putClaim(ctx context.Context, s *session, h *held, text []byte) (refstore.Lock, error) {
	there := refstore.Record{Key: h.key}
	read := l.wasRefused(h.key)
	for try := 0; ; try++ {
		h.previous = nil
		if read {
			var err error
			if there, err = l.read(ctx, h.key); err != nil {
				return nil, err
			}
		}
		if there.Version != refstore.Absent {
			var rec claimRecord
			if err := decode(there, &rec); err != nil {
				return nil, err
			}
			switch {
			case !s.is(rec.Session):
				v, err := l.judge(ctx, rec.Session)
				if err != nil {
					return nil, err
				}
				if !v.free {
					l.refuse(h.key)
					return nil, refstore.ErrClaimed
				}
				h.previous = latest(rec.chain())
			case rec.Nonce == h.nonce: // a retry by the store wrote it twice
				h.version, h.previous, h.late = there.Version, rec.before(), true
				return l.acquired(ctx, h)
			default: // left by a write given up, or by a release that has not arrived
				h.previous = rec.before()
			}
		}
		h.under = s.name()
		value := encode(claimRecord{hold{Session: h.under, Nonce: h.nonce, Text: text, Before: h.previous}})
		v, late, err := l.put(ctx, refstore.Record{Key: h.key, Value: value, Version: there.Version})
		if err == nil {
			h.version, h.late = v, late
			return l.acquired(ctx, h)
		}
		if !errors.Is(err, refstore.ErrConflict) {
			return l.resolve(ctx, s, h, err)
		}
		if try > 0 { // another process wrote between the read and the write
			if err := l.sleep(ctx, backoff(l.o.TTL, try)); err != nil {
				return nil, err
			}
		}
		read = true
	}
}
