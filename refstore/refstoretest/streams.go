package refstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"e3/refstore"
)

func streamCases() []Case {
	return []Case{
		onStore("stream of nothing", asStreams(streamOfNothing)),
		onStore("append and read", asStreams(appendAndRead)),
		onStore("append at the wrong offset", asStreams(appendConflicts)),
		onStore("one appender of many", asStreams(oneAppender)),
		onStore("torn tail is cut", asStreams(cutTail)),
		onStore("seal", asStreams(seal)),
		onStore("remove a stream", asStreams(removeStream)),
		onStore("list streams", asStreams(listStreams)),
		onStore("list partitions", asStreams(listPartitions)),
		onStore("watch streams", asStreams(watchStreams)),
		onStore("hostile stream keys", asStreams(hostileStreams)),
		onStore("follow to the seal", asStreams(followToSeal)),
		onStore("follow many", asStreams(followMany)),
		onStore("follow ends", asStreams(followEnds)),
	}
}

func asStreams(run func(context.Context, refstore.Streams) error) func(context.Context, refstore.Store) error {
	return func(ctx context.Context, s refstore.Store) error {
		streams, err := capability[refstore.Streams](s)
		if err != nil {
			return err
		}
		return run(ctx, streams)
	}
}

// streamKeys returns a key of each kind, or several if the backend may treat names of the kind in its own way.
func streamKeys() []refstore.Key {
	log := "LOG/" + hash1 + "/" + hash2 + "/019a0000-0000-7000-8000-000000000001"
	return []refstore.Key{
		{Partition: "EVENTS/prod", Sort: "019a0000-0000-7000-8000-000000000001"},
		{Partition: "JOURNAL/prod", Sort: "0000000000000001"},
		{Partition: log, Sort: "stdout.txt"}, {Partition: log, Sort: "stderr.txt"}, {Partition: log, Sort: "trace"},
	}
}

func wantStream(ctx context.Context, s refstore.Streams, key refstore.Key, want string, sealed bool) error {
	info, err := s.Size(ctx, key)
	if err != nil {
		return err
	}
	if w := (refstore.StreamInfo{Size: int64(len(want)), Sealed: sealed}); info != w {
		return fmt.Errorf("size of %q: got %+v, want %+v", key, info, w)
	}
	for offset := range len(want) + 2 {
		r, err := s.Open(ctx, key, int64(offset))
		if err != nil {
			return err
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
		if w := want[min(offset, len(want)):]; string(got) != w {
			return fmt.Errorf("read %q from %d: got %q, want %q", key, offset, got, w)
		}
	}
	return nil
}

func streamOfNothing(ctx context.Context, s refstore.Streams) error {
	for _, key := range streamKeys() {
		_, err := s.Size(ctx, key)
		if err := wantErr("size", err, refstore.ErrNotFound); err != nil {
			return err
		}
		_, err = s.Open(ctx, key, 0)
		if err := wantErr("open", err, refstore.ErrNotFound); err != nil {
			return err
		}
		if err := wantErr("cut", s.Cut(ctx, key, 0), refstore.ErrNotFound); err != nil {
			return err
		}
		if err := wantErr("remove", s.Remove(ctx, key), refstore.ErrNotFound); err != nil {
			return err
		}
		if err := wantErr("append beyond the end", s.Append(ctx, key, 1, []byte("x")), refstore.ErrConflict); err != nil {
			return err
		}
		if err := wantErr("append at -1", s.Append(ctx, key, -1, []byte("x")), refstore.ErrInvalid); err != nil {
			return err
		}
		_, err = s.Size(ctx, key)
		if err := wantErr("size after failed appends", err, refstore.ErrNotFound); err != nil {
			return err
		}
	}
	return nil
}

func appendAndRead(ctx context.Context, s refstore.Streams) error {
	for _, key := range streamKeys() {
		want := ""
		for _, data := range []string{"", "{\"seq\":1}\n", "x", "", "\x00\xff\n"} {
			if err := s.Append(ctx, key, int64(len(want)), []byte(data)); err != nil {
				return err
			}
			want += data
			if err := wantStream(ctx, s, key, want, false); err != nil {
				return err
			}
		}
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	key := refstore.Key{Partition: "EVENTS/prod", Sort: "big"}
	if err := errors.Join(s.Append(ctx, key, 0, big), s.Append(ctx, key, int64(len(big)), big)); err != nil {
		return err
	}
	r, err := s.Open(ctx, key, int64(len(big))-8)
	if err != nil {
		return err
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if !bytes.Equal(got, append(big[len(big)-8:], big...)) {
		return fmt.Errorf("read over the joint of two large appends: got other bytes than were written (%d of them)", len(got))
	}
	return nil
}

func appendConflicts(ctx context.Context, s refstore.Streams) error {
	for _, key := range streamKeys() {
		if err := s.Append(ctx, key, 0, []byte("abc")); err != nil {
			return err
		}
		for _, offset := range []int64{0, 1, 2, 4, 1 << 40} {
			what := fmt.Sprintf("append at %d to 3 bytes", offset)
			if err := wantErr(what, s.Append(ctx, key, offset, []byte("x")), refstore.ErrConflict); err != nil {
				return err
			}
		}
		if err := wantStream(ctx, s, key, "abc", false); err != nil {
			return err
		}
	}
	return nil
}

func oneAppender(ctx context.Context, s refstore.Streams) error {
	const appenders, rounds = 8, 6
	for _, key := range streamKeys() {
		want := ""
		for range rounds {
			errs := make([]error, appenders)
			together(appenders, func(i int) {
				errs[i] = s.Append(ctx, key, int64(len(want)), []byte(strings.Repeat(string(rune('a'+i)), 10)+"\n"))
			})
			winner := -1
			for i, err := range errs {
				switch {
				case err == nil && winner >= 0:
					return fmt.Errorf("%q: appenders %d and %d both succeeded at %d", key, winner, i, len(want))
				case err == nil:
					winner = i
				case !errors.Is(err, refstore.ErrConflict):
					return fmt.Errorf("%q: appender %d: got error %w, want %v", key, i, err, refstore.ErrConflict)
				}
			}
			if winner < 0 {
				return fmt.Errorf("%q: no appender succeeded at %d", key, len(want))
			}
			want += strings.Repeat(string(rune('a'+winner)), 10) + "\n"
			if err := wantStream(ctx, s, key, want, false); err != nil {
				return err
			}
		}
	}
	return nil
}

func cutTail(ctx context.Context, s refstore.Streams) error {
	for _, key := range streamKeys() {
		if err := s.Append(ctx, key, 0, []byte("whole\ntor")); err != nil {
			return err
		}
		if err := wantErr("cut beyond the end", s.Cut(ctx, key, 10), refstore.ErrConflict); err != nil {
			return err
		}
		for range 2 {
			if err := s.Cut(ctx, key, 6); err != nil {
				return err
			}
		}
		if err := s.Append(ctx, key, 6, []byte("next\n")); err != nil {
			return err
		}
		if err := wantStream(ctx, s, key, "whole\nnext\n", false); err != nil {
			return err
		}
		if err := s.Cut(ctx, key, 0); err != nil {
			return err
		}
		if err := wantStream(ctx, s, key, "", false); err != nil {
			return err
		}
	}
	return nil
}

func seal(ctx context.Context, s refstore.Streams) error {
	for _, key := range streamKeys() {
		if err := s.Append(ctx, key, 0, []byte("abc")); err != nil {
			return err
		}
		for range 2 {
			if err := s.Seal(ctx, key); err != nil {
				return err
			}
		}
		if err := wantErr("append to a sealed stream", s.Append(ctx, key, 3, []byte("d")), refstore.ErrSealed); err != nil {
			return err
		}
		if err := wantErr("cut of a sealed stream", s.Cut(ctx, key, 1), refstore.ErrSealed); err != nil {
			return err
		}
		if err := wantStream(ctx, s, key, "abc", true); err != nil {
			return err
		}
		empty := refstore.Key{Partition: key.Partition, Sort: "empty " + key.Sort}
		if err := s.Seal(ctx, empty); err != nil {
			return err
		}
		if err := wantStream(ctx, s, empty, "", true); err != nil {
			return err
		}
	}
	return nil
}

func removeStream(ctx context.Context, s refstore.Streams) error {
	for _, key := range streamKeys() {
		if err := errors.Join(s.Append(ctx, key, 0, []byte("old")), s.Seal(ctx, key), s.Remove(ctx, key)); err != nil {
			return err
		}
		_, err := s.Size(ctx, key)
		if err := wantErr("size of what was removed", err, refstore.ErrNotFound); err != nil {
			return err
		}
		if err := s.Append(ctx, key, 0, []byte("new")); err != nil {
			return err
		}
		if err := wantStream(ctx, s, key, "new", false); err != nil {
			return err
		}
	}
	return nil
}

func listStreams(ctx context.Context, s refstore.Streams) error {
	partitions := map[string][]string{
		"EVENTS/prod":     {"a", "a/b", "b", "stdout.txt", "é"},
		"EVENTS/prod2":    {"c"},
		"LOG/task/in/id":  {"a", "stderr.txt", "stdout.txt", "z"},
		"LOG/task/in/id2": {"stdout.txt"},
		"LOG/task/in/id3": nil,
	}
	for partition, names := range partitions {
		for _, name := range names {
			if err := s.Append(ctx, refstore.Key{Partition: partition, Sort: name}, 0, []byte(name)); err != nil {
				return err
			}
		}
	}
	for partition, names := range partitions {
		for _, q := range []refstore.Query{
			{}, {Descending: true}, {Limit: 2}, {Prefix: "std"}, {After: "b"}, {After: "b", Descending: true, Limit: 1},
		} {
			q.Partition = partition
			var got []string
			for key, err := range s.ListStreams(ctx, q) {
				if err != nil {
					return err
				}
				got = append(got, key.Sort)
			}
			if want := answer(names, q); !slices.Equal(got, want) {
				return fmt.Errorf("list streams %+v: got %q, want %q", q, got, want)
			}
		}
	}
	return nil
}

func listPartitions(ctx context.Context, s refstore.Streams) error {
	for _, kind := range []string{"EVENTS", "LOG"} {
		if err := wantPartitions(ctx, s, kind, nil); err != nil {
			return err
		}
	}
	events := []string{"A", "a b", "a-b", "a.b", "ab", "prod", "é", strings.Repeat("long", 100)}
	logs := []string{"a-b/in/id", "a/b-c/id", "a/b/c", "a/b/d"}
	var want []string
	for _, name := range slices.Concat(events, Hostile()) {
		if !strings.Contains(name, "/") {
			want = append(want, "EVENTS/"+name)
		}
	}
	for _, partition := range want {
		if err := s.Append(ctx, refstore.Key{Partition: partition, Sort: "run"}, 0, nil); err != nil {
			return err
		}
	}
	slices.Sort(want)
	if err := wantPartitions(ctx, s, "EVENTS", slices.Compact(want)); err != nil {
		return err
	}
	want = nil
	for _, name := range logs {
		want = append(want, "LOG/"+name)
		if err := s.Append(ctx, refstore.Key{Partition: "LOG/" + name, Sort: "stdout.txt"}, 0, []byte("x")); err != nil {
			return err
		}
	}
	slices.SortFunc(want, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
	if err := wantPartitions(ctx, s, "LOG", want); err != nil {
		return err
	}
	for partition, err := range s.ListPartitions(ctx, "EVENTS") {
		if err != nil {
			return err
		}
		if err := s.Remove(ctx, refstore.Key{Partition: partition, Sort: "run"}); err != nil {
			return err
		}
		for key, err := range s.ListStreams(ctx, refstore.Query{Partition: partition}) {
			return fmt.Errorf("list streams %q when its only one was removed: got %q, %v", partition, key, err)
		}
		break
	}
	for _, err := range s.ListPartitions(ctx, "no kind") {
		if err := wantErr("list partitions of no kind", err, refstore.ErrInvalid); err != nil {
			return err
		}
	}
	return nil
}

func wantPartitions(ctx context.Context, s refstore.Streams, kind string, want []string) error {
	var got []string
	for partition, err := range s.ListPartitions(ctx, kind) {
		if err != nil {
			return err
		}
		got = append(got, partition)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("list partitions of %q: got %.500q, want %.500q", kind, got, want)
	}
	return nil
}

func watchStreams(ctx context.Context, s refstore.Streams) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, key := range streamKeys() {
		c, err := s.WatchStreams(ctx, key.Partition)
		if err != nil {
			return err
		}
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"create", func() error { return s.Append(ctx, key, 0, []byte("one\n")) }},
			{"append", func() error { return s.Append(ctx, key, 4, []byte("two\n")) }},
			{"cut", func() error { return s.Cut(ctx, key, 4) }},
			{"remove", func() error { return s.Remove(ctx, key) }},
		} {
			for len(c) > 0 {
				<-c
			}
			if err := step.do(); err != nil {
				return err
			}
			if _, ok := <-c; !ok {
				return fmt.Errorf("watch of %q: not woken by %s within %v", key.Partition, step.name, patience)
			}
		}
	}
	ended, stop := context.WithCancel(ctx)
	defer stop()
	c, err := s.WatchStreams(ended, "EVENTS/prod")
	if err != nil {
		return err
	}
	stop()
	for {
		select {
		case _, open := <-c:
			if !open {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("watch of streams: still open %v after its context ended", patience)
		}
	}
}

func hostileStreams(ctx context.Context, s refstore.Streams) error {
	for _, name := range Hostile() {
		for _, key := range []refstore.Key{{Partition: "EVENTS/prod", Sort: name}, {Partition: "LOG/a/b/c", Sort: name}} {
			if err := s.Append(ctx, key, 0, []byte(key.String())); err != nil {
				return err
			}
		}
	}
	for _, name := range Hostile() {
		for _, key := range []refstore.Key{{Partition: "EVENTS/prod", Sort: name}, {Partition: "LOG/a/b/c", Sort: name}} {
			r, err := s.Open(ctx, key, 0)
			if err != nil {
				return err
			}
			got, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil {
				return err
			}
			if string(got) != key.String() {
				return fmt.Errorf("stream %q holds %q: two keys share a place", key, got)
			}
		}
	}
	return nil
}

func followToSeal(ctx context.Context, s refstore.Streams) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, key := range streamKeys() {
		r, err := s.Follow(ctx, key, 0) // before it exists
		if err != nil {
			return err
		}
		want := ""
		buf := make([]byte, 64)
		for _, data := range []string{"one\n", "two\n", "three\n"} {
			if err := s.Append(ctx, key, int64(len(want)), []byte(data)); err != nil {
				return err
			}
			want += data
			if _, err := io.ReadFull(r, buf[:len(data)]); err != nil {
				return err
			}
			if got := string(buf[:len(data)]); got != data {
				return fmt.Errorf("follow %q: got %q, want %q", key, got, data)
			}
		}
		if err := errors.Join(s.Append(ctx, key, int64(len(want)), []byte("last\n")), s.Seal(ctx, key)); err != nil {
			return err
		}
		rest, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
		if string(rest) != "last\n" {
			return fmt.Errorf("follow %q to its end: got %q, want %q", key, rest, "last\n")
		}
		late, err := s.Follow(ctx, key, int64(len(want)))
		if err != nil {
			return err
		}
		rest, err = io.ReadAll(late)
		if err := errors.Join(err, late.Close()); err != nil {
			return err
		}
		if string(rest) != "last\n" {
			return fmt.Errorf("follow %q when sealed: got %q, want %q", key, rest, "last\n")
		}
	}
	return nil
}

func followMany(ctx context.Context, s refstore.Streams) error {
	const followers, lines = 5, 200
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	key := streamKeys()[0]
	got, errs := make([][]byte, followers), make([]error, followers+1)
	var want []byte
	together(followers+1, func(i int) {
		if i == followers {
			for n := range lines {
				line := fmt.Appendf(nil, "line %d\n", n)
				if errs[i] = s.Append(ctx, key, int64(len(want)), line); errs[i] != nil {
					cancel()
					return
				}
				want = append(want, line...)
			}
			errs[i] = s.Seal(ctx, key)
			return
		}
		r, err := s.Follow(ctx, key, 0)
		if err != nil {
			errs[i] = err
			return
		}
		got[i], err = io.ReadAll(r)
		errs[i] = errors.Join(err, r.Close())
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range got {
		if !bytes.Equal(got[i], want) {
			return fmt.Errorf("follower %d read %d bytes, other than the %d that were written", i, len(got[i]), len(want))
		}
	}
	return nil
}

// followEnds ends waiting followers in each possible way.
func followEnds(ctx context.Context, s refstore.Streams) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	why := errors.New("why")
	for _, end := range []struct {
		name string
		do   func(key refstore.Key, cancel context.CancelCauseFunc, r io.Closer) error
		want error // nil: any
	}{
		{"context", func(_ refstore.Key, cancel context.CancelCauseFunc, _ io.Closer) error { cancel(why); return nil }, why},
		{"close", func(_ refstore.Key, _ context.CancelCauseFunc, r io.Closer) error { return r.Close() }, nil},
		{"remove", func(key refstore.Key, _ context.CancelCauseFunc, _ io.Closer) error { return s.Remove(ctx, key) }, refstore.ErrNotFound},
		{"cut", func(key refstore.Key, _ context.CancelCauseFunc, _ io.Closer) error { return s.Cut(ctx, key, 1) }, refstore.ErrConflict},
	} {
		key := refstore.Key{Partition: "EVENTS/prod", Sort: end.name}
		if err := s.Append(ctx, key, 0, []byte("abc")); err != nil {
			return err
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		r, err := s.Follow(ctx, key, 0)
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() {
			_, err := r.Read(make([]byte, 1))
			ended <- err
		}()
		if err := end.do(key, cancel, r); err != nil {
			return err
		}
		err = <-ended
		if stopped := context.Cause(ctx); errors.Is(stopped, context.DeadlineExceeded) {
			return fmt.Errorf("follow: %s did not end it within %v", end.name, patience)
		}
		if err == nil || err == io.EOF || end.want != nil && !errors.Is(err, end.want) {
			return fmt.Errorf("follow ended by %s: got error %v, want %v", end.name, err, end.want)
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}
