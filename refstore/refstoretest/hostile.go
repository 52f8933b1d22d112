package refstoretest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"e3/refstore"
)

// Hostile are segments that a backend must keep apart and inside itself.
func Hostile() []string {
	return []string{
		".", "..", "...", "../..", "../../etc/passwd", "/", "//", "a/b", "a", "a/", "/a", "A", "a.", "a ", ".a", " a",
		"\x00", "a\x00b", "\n", "\x7f", "%", "%%", "%2F", "%2f", "%2E%2E", "~", "a~", "~a", "a.rec", "a.beast2", ".rec",
		"a\\b", "C:", "con", "*", "?", "\"", "'", "<>|", "é", "e\u0301", "日本語", "\u202e", "\ufeff", "🦊", "#", "$HOME", "-rf", ":",
		strings.Repeat("x", 200), strings.Repeat("x", 201), strings.Repeat("x", 900), strings.Repeat("日", 300),
		strings.Repeat("/", 400), strings.Repeat("../", 300), strings.Repeat("x", 199) + "%", strings.Repeat("x", 199) + "/" + strings.Repeat("y", 300),
	}
}

// hostileSegments writes one record for each name, as sort key and as segment, and finds each again.
func hostileSegments(ctx context.Context, s refstore.Store) error {
	place := make(map[refstore.Key]string)
	add := func(key refstore.Key) error {
		if _, dup := place[key]; dup || len(key.Partition) > refstore.MaxPartition {
			return nil
		}
		place[key] = strconv.Itoa(len(place))
		_, err := create(ctx, s, key, place[key])
		return err
	}
	for _, name := range Hostile() {
		for _, key := range keys(name) {
			if err := add(key); err != nil {
				return err
			}
		}
		for _, partition := range []string{"INDEX/" + name, "INDEX/test/" + name, "INDEX/" + name + "/x", "DATAFLOW/" + strings.ReplaceAll(name, "/", ":")} {
			if err := add(refstore.Key{Partition: partition, Sort: "b"}); err != nil {
				return err
			}
		}
		if err := add(index(name)); err != nil {
			return err
		}
	}
	partitions := make(map[string]int)
	for key, value := range place {
		r, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		if string(r.Value) != value {
			return fmt.Errorf("%q: got %q, want %q: two keys share a place", key, r.Value, value)
		}
		partitions[key.Partition]++
	}
	for partition, want := range partitions {
		got := 0
		for r, err := range s.List(ctx, refstore.Query{Partition: partition}) {
			if err != nil {
				return err
			}
			if value, ok := place[r.Key]; !ok || value != string(r.Value) {
				return fmt.Errorf("list of %q: got %s, which was not written", partition, show(r))
			}
			got++
		}
		if got != want {
			return fmt.Errorf("list of %q: got %d records, want %d", partition, got, want)
		}
	}
	return nil
}

func invalidNames(ctx context.Context, s refstore.Store) error {
	for _, key := range []refstore.Key{
		{}, {Partition: "INDEX"}, {Sort: "a"}, {Partition: "/INDEX", Sort: "a"}, {Partition: "index/a", Sort: "a"},
		{Partition: "../INDEX", Sort: "a"}, {Partition: "INDEX\x00", Sort: "a"},
		{Partition: "INDEX/\xff", Sort: "a"}, {Partition: "INDEX/a", Sort: "\xff"},
		{Partition: "INDEX/" + strings.Repeat("x", refstore.MaxPartition), Sort: "a"},
		{Partition: "INDEX/a", Sort: strings.Repeat("x", refstore.MaxSort+1)},
	} {
		_, err := s.Get(ctx, key)
		if err := wantErr(fmt.Sprintf("get %.50q", key), err, refstore.ErrInvalid); err != nil {
			return err
		}
		_, err = create(ctx, s, key, "")
		if err := wantErr(fmt.Sprintf("put %.50q", key), err, refstore.ErrInvalid); err != nil {
			return err
		}
		if err := wantErr(fmt.Sprintf("delete %.50q", key), s.Delete(ctx, key, "v"), refstore.ErrInvalid); err != nil {
			return err
		}
	}
	for _, bad := range [][]refstore.Field{
		{field("", "")}, {field("\xff", "")}, {field(strings.Repeat("f", refstore.MaxField+1), "")}, {field("f", "1"), field("f", "2")},
	} {
		_, err := create(ctx, s, index("a"), "", bad...)
		if err := wantErr("put of bad fields", err, refstore.ErrInvalid); err != nil {
			return err
		}
	}
	for _, err := range s.List(ctx, refstore.Query{Partition: "lower"}) {
		return wantErr("list", err, refstore.ErrInvalid)
	}
	return errors.New("list of an invalid partition: got nothing, want an error")
}

func largeValues(ctx context.Context, s refstore.Store) error {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	for _, key := range keys("a") {
		v, err := create(ctx, s, key, string(big), field("f", string(big[1:])))
		if err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v, string(big), []string{"f"}, field("f", string(big[1:]))); err != nil {
			return err
		}
		if v, err = update(ctx, s, key, v, string(big[7:]), field("f", "small")); err != nil {
			return err
		}
		if err := wantRecord(ctx, s, key, v, string(big[7:]), []string{"f"}, field("f", "small")); err != nil {
			return err
		}
	}
	return nil
}
