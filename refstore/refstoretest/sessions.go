package refstoretest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"e3/refstore"
)

func sessionCases() []Case {
	return []Case{
		onStore("session begins once", asSessions(sessionBegins)),
		onStore("protected names", asSessions(protectedNames)),
		onStore("invalid protected names", asSessions(invalidProtected)),
	}
}

func asSessions(run func(context.Context, refstore.Sessions) error) func(context.Context, refstore.Store) error {
	return func(ctx context.Context, s refstore.Store) error {
		sessions, err := capability[refstore.Sessions](s)
		if err != nil {
			return err
		}
		return run(ctx, sessions)
	}
}

func sessionBegins(ctx context.Context, s refstore.Sessions) error {
	live, err := s.LiveSessions(ctx)
	if err != nil || len(live) != 0 {
		return fmt.Errorf("live sessions of a store that did nothing: got %v, %w, want none", live, err)
	}
	began, err := s.SessionBegan(ctx)
	if err != nil || began.IsZero() {
		return fmt.Errorf("session began at %v, %w", began, err)
	}
	if again, err := s.SessionBegan(ctx); err != nil || !again.Equal(began) {
		return fmt.Errorf("session began at %v, asked again at %v, %w", began, again, err)
	}
	if release, err := s.Protect(ctx, []string{"a"}); err != nil {
		return err
	} else {
		release()
	}
	live, err = s.LiveSessions(ctx)
	if err != nil || len(live) != 1 || !live[0].Began.Equal(began) || len(live[0].Protected) != 0 {
		return fmt.Errorf("live sessions: got %v, %w, want one since %v", live, err, began)
	}
	return nil
}

// WantProtected compares the names that all live sessions protect.
func WantProtected(ctx context.Context, s refstore.Sessions, want ...string) error {
	live, err := s.LiveSessions(ctx)
	if err != nil {
		return err
	}
	var got []string
	for _, l := range live {
		got = append(got, l.Protected...)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("protected: got %.100q, want %.100q", got, want)
	}
	return nil
}

func protectedNames(ctx context.Context, s refstore.Sessions) error {
	odd := []string{"node 0123", " ", "é\r", "../../x", "%", strings.Repeat("long ", 1000), "\xff"}
	release, err := s.Protect(ctx, slices.Clone(odd))
	if err != nil {
		return err
	}
	// A session begins with its first protection.
	if _, err := s.SessionBegan(ctx); err != nil {
		return err
	}
	twice, err := s.Protect(ctx, []string{"node 0123", "b"})
	if err != nil {
		return err
	}
	none, err := s.Protect(ctx, nil)
	if err != nil {
		return err
	}
	if err := WantProtected(ctx, s, append(slices.Clone(odd), "node 0123", "b")...); err != nil {
		return err
	}
	release()
	release()
	none()
	if err := WantProtected(ctx, s, "node 0123", "b"); err != nil {
		return err
	}
	twice()
	return WantProtected(ctx, s)
}

func invalidProtected(ctx context.Context, s refstore.Sessions) error {
	for _, name := range []string{"", "a\nb", "\n", "a\x00"} {
		_, err := s.Protect(ctx, []string{"fine", name})
		if err := wantErr(fmt.Sprintf("protect %q", name), err, refstore.ErrInvalid); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Protect(ctx, []string{"a"})
	if err := wantErr("protect after the end", err, context.Canceled); err != nil {
		return err
	}
	live, err := s.LiveSessions(context.WithoutCancel(ctx))
	for _, l := range live {
		if len(l.Protected) > 0 {
			err = errors.Join(err, fmt.Errorf("protected in spite of an error: %q", l.Protected))
		}
	}
	return err
}
