package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"e3/refstore"
)

// SessionBegan implements [refstore.Sessions].
func (l *Leases) SessionBegan(ctx context.Context) (time.Time, error) {
	s, err := l.use(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return s.began, nil
}

// protection is a set of protected names, in the session's record or in a record of its own.
type protection struct {
	text  []byte // one name a line; nil if it has its own record
	large uint64 // the number of that record
}

// maxInline bounds the protected names in the session's record, which is written with each beat.
const maxInline = 4 << 10

// Protect implements [refstore.Sessions].
func (l *Leases) Protect(ctx context.Context, names []string) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var text []byte
	for _, name := range names {
		if name == "" || strings.ContainsAny(name, "\n\x00") {
			return nil, fmt.Errorf("protect %.100q: %w: a name is one line", name, refstore.ErrInvalid)
		}
		text = append(append(text, name...), '\n')
	}
	s, err := l.use(ctx)
	if err != nil {
		return nil, err
	}
	p := &protection{text: text}
	if err := s.protect(ctx, p); err != nil {
		s.unprotect(p)
		return nil, fmt.Errorf("protect %d names: %w", len(names), readOnly(err))
	}
	return sync.OnceFunc(func() { s.unprotect(p) }), nil
}

func (s *session) protect(ctx context.Context, p *protection) error {
	s.mu.Lock()
	inline := len(p.text)
	for other := range s.protects {
		inline += len(other.text)
	}
	if inline > maxInline {
		s.larges++
		p.large = s.larges
	}
	s.mu.Unlock()
	if p.large > 0 { // before the session's record names it
		key := part(protectedPartition, s.name(), p.large)
		if _, err := s.l.store.Put(ctx, refstore.Record{Key: key, Value: p.text}); err != nil {
			return err
		}
		p.text = nil
	}
	s.mu.Lock()
	s.protects[p] = struct{}{}
	wanted := s.want()
	s.mu.Unlock()
	return s.wait(ctx, wanted)
}

// unprotect ends a protection, as of the next renewal. During a collection it lasts until the collection ends: the
// collector reads sessions one by one, and would miss a name that passes from one session to another.
func (s *session) unprotect(p *protection) {
	s.mu.Lock()
	if _, held := s.protects[p]; held && s.epoch != 0 {
		s.released = append(s.released, p)
		s.mu.Unlock()
		return
	}
	delete(s.protects, p)
	s.wanted++
	after := s.wanted
	s.mu.Unlock()
	if p.large > 0 {
		e := looseEnd{key: part(protectedPartition, s.name(), p.large), whole: true, after: after}
		s.addLooseEnd(e)
	}
}

// protected returns the protected names in the form of the session's record. The caller holds mu.
func (s *session) protected() (text []byte, large []uint64) {
	for p := range s.protects {
		if p.large > 0 {
			large = append(large, p.large)
		} else {
			text = append(text, p.text...)
		}
	}
	slices.Sort(large)
	return text, large
}

// LiveSessions implements [refstore.Sessions]. It writes nothing. A session marked dead counts until its requests have
// settled. Outside of a collection of this process, it does not count if its process is known to be gone. During a
// collection of this process, the names that ended sessions and settled dead ones relied on are listed under this
// process's session.
func (l *Leases) LiveSessions(ctx context.Context) ([]refstore.SessionInfo, error) {
	list, err := l.liveSessions(ctx)
	if err != nil {
		return nil, fmt.Errorf("live sessions: %w", err)
	}
	return list, nil
}

func (l *Leases) liveSessions(ctx context.Context) ([]refstore.SessionInfo, error) {
	own := l.session.Load()
	epoch := l.collecting()
	var list []refstore.SessionInfo
	ours := -1
	var rest []string // names that ended sessions relied on
	for r, err := range l.store.List(ctx, refstore.Query{Partition: sessionsPartition}) {
		if err != nil {
			return nil, err
		}
		v, err := l.observe(r)
		if err != nil {
			return nil, err
		}
		id, isOwn := r.Key.Sort, own != nil && r.Key.Sort == own.name()
		drained := false
		if !isOwn && (v.free || v.gone) {
			wait, _, err := l.settling(ctx, v)
			if err != nil {
				return nil, err
			}
			drained = wait == 0 || v.gone && epoch == 0
		}
		if drained && (epoch == 0 || v.rec.Epoch != epoch) {
			continue
		}
		info, there, err := l.info(ctx, id, v.rec)
		switch {
		case err != nil:
			return nil, err
		case !there:
		case drained:
			rest = append(rest, info.Protected...)
		default:
			list = append(list, info)
			if isOwn {
				ours = len(list) - 1
			}
		}
	}
	if len(rest) > 0 {
		if ours < 0 {
			return nil, fmt.Errorf("the record of this session is gone: %w", refstore.ErrLost)
		}
		list[ours].Protected = append(list[ours].Protected, rest...)
	}
	return list, nil
}

// info reads the names that a session protects and relies on. there is false if the session has ended meanwhile.
func (l *Leases) info(ctx context.Context, id string, rec sessionRecord) (info refstore.SessionInfo, there bool, err error) {
	for {
		info, err = l.infoOf(ctx, id, rec)
		if !errors.Is(err, refstore.ErrNotFound) {
			return info, err == nil, err
		}
		// A record beside the session's is missing: it was released, or the session was removed.
		r, getErr := l.read(ctx, sessionKey(id))
		if getErr != nil || r.Version == refstore.Absent {
			return info, false, getErr
		}
		var now sessionRecord
		if getErr := decode(r, &now); getErr != nil {
			return info, false, getErr
		}
		if now.Beat == rec.Beat && now.State == rec.State {
			return info, false, err
		}
		rec = now
	}
}

func (l *Leases) infoOf(ctx context.Context, id string, rec sessionRecord) (refstore.SessionInfo, error) {
	info := refstore.SessionInfo{Began: time.Unix(0, rec.Began)}
	text, large := rec.Protected, rec.Large
	if own := l.session.Load(); own != nil && own.name() == id { // the current state, not the last written one
		own.mu.Lock()
		text, large = own.protected()
		own.mu.Unlock()
	}
	info.Protected = lines(info.Protected, text)
	for _, n := range large {
		r, err := l.store.Get(ctx, part(protectedPartition, id, n))
		if err == nil {
			err = validLines(r.Value)
		}
		if err != nil {
			return info, fmt.Errorf("names that session %s protects: %w", id, err)
		}
		info.Protected = lines(info.Protected, r.Value)
	}
	_, err := l.eachRelied(ctx, id, rec, 0, func(name [32]byte) { info.Protected = append(info.Protected, l.o.Relied(name)) })
	return info, err
}

// lines appends the names of a set.
func lines(names []string, text []byte) []string {
	for line := range bytes.Lines(text) {
		names = append(names, string(bytes.TrimSuffix(line, []byte("\n"))))
	}
	return names
}
