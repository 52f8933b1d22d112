package dynamo_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"pgregory.net/rapid"

	"e3/internal/testing/testserver"
	"e3/refstore"
	"e3/refstore/dynamo"
)

var events = refstore.Key{Partition: "EVENTS/w", Sort: "r"}

// read reads a stream from an offset on.
func read(t testing.TB, s *dynamo.Store, key refstore.Key, offset int64) []byte {
	t.Helper()
	r, err := s.Open(t.Context(), key, offset)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return got
}

// pieces writes n pieces of a size and returns all bytes.
func pieces(t testing.TB, s *dynamo.Store, key refstore.Key, data []byte, n, size int) []byte {
	t.Helper()
	for i := range n {
		piece := bytes.Repeat([]byte{byte('a' + i%26)}, size)
		if err := s.Append(t.Context(), key, int64(len(data)), piece); err != nil {
			t.Fatal(err)
		}
		data = append(data, piece...)
	}
	return data
}

func TestLongStream(t *testing.T) {
	onServers(t, func(t *testing.T, srv server) {
		o := srv.options(t)
		b := o.Blobs.(*blobs)
		s := open(t, o)
		data := pieces(t, s, events, nil, 600, 5<<10)
		if n := len(b.names()); n > 64 {
			t.Errorf("%d bytes are %d parts, want at most 64", len(data), n)
		}
		for _, offset := range []int64{0, 1, 5<<10 - 1, 123456, int64(len(data)) - 1, int64(len(data)), int64(len(data)) + 1} {
			if got, want := read(t, s, events, offset), data[min(offset, int64(len(data))):]; !bytes.Equal(got, want) {
				t.Errorf("from %d: got %d bytes, other than the %d that were written", offset, len(got), len(want))
			}
		}
		// Cuts within the tail, within parts, between two parts, and to size 0.
		for _, size := range []int{len(data) - 1, len(data) - 20000, len(data) / 2, 10 << 10, 10, 0} {
			if err := s.Cut(t.Context(), events, int64(size)); err != nil {
				t.Fatal(err)
			}
			data = data[:size:size]
			if got := read(t, s, events, 0); !bytes.Equal(got, data) {
				t.Errorf("cut to %d: got %d other bytes", size, len(got))
			}
			data = pieces(t, s, events, data, 3, 6<<10)
			if got := read(t, s, events, 0); !bytes.Equal(got, data) {
				t.Errorf("cut to %d and appended to: got %d other bytes", size, len(got))
			}
		}
		if err := s.Remove(t.Context(), events); err != nil {
			t.Fatal(err)
		}
		if got := b.names(); len(got) > 0 {
			t.Errorf("after removal there are the blobs %q", got)
		}
	})
}

// TestLargePieces merges parts of a stream that grows by more than a mebibyte at a time.
func TestLargePieces(t *testing.T) {
	o := minidyn().options(t)
	s := open(t, o)
	data := pieces(t, s, events, nil, 150, 11<<20/10)
	if n := len(o.Blobs.(*blobs).names()); n > 64 {
		t.Errorf("%d bytes are %d parts, want at most 64", len(data), n)
	}
	if got := read(t, s, events, 0); !bytes.Equal(got, data) {
		t.Errorf("got %d other bytes than the %d that were written", len(got), len(data))
	}
}

// TestFullStream appends to a stream whose head has no room for another part, nor parts that could be merged.
func TestFullStream(t *testing.T) {
	o := minidyn().options(t)
	s := open(t, o)
	const parts, each = 16000, 47 << 20
	var table []byte
	for i := range parts {
		table = binary.BigEndian.AppendUint64(append(table, fmt.Sprintf("%016d", i)...), each)
	}
	client := dynamodb.NewFromConfig(o.Config, func(c *dynamodb.Options) { c.BaseEndpoint = &o.Endpoint })
	if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &o.Table, Item: map[string]types.AttributeValue{
		"PK": &types.AttributeValueMemberS{Value: "STREAM.EVENTS/" + o.Repository + "/w"}, "SK": &types.AttributeValueMemberS{Value: "r"},
		"v": &types.AttributeValueMemberS{Value: "1"}, "i": &types.AttributeValueMemberS{Value: "1"},
		"n": &types.AttributeValueMemberN{Value: fmt.Sprint(parts * each)}, "p": &types.AttributeValueMemberB{Value: table},
	}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(t.Context(), events, parts*each, make([]byte, 8<<10+1)); !errors.Is(err, refstore.ErrFull) {
		t.Errorf("append: got error %v, want %v", err, refstore.ErrFull)
	}
	if left := o.Blobs.(*blobs).names(); len(left) > 0 {
		t.Errorf("what was not appended is left as %q", left)
	}
	if err := errors.Join(s.Append(t.Context(), events, parts*each, []byte("a last word")), s.Seal(t.Context(), events)); err != nil {
		t.Errorf("append to the tail: %v", err)
	}
}

// TestDamagedStream damages the head of a stream, or a part of it. The rest can be read, the damage is reported at the
// end, and a cut repairs the stream.
func TestDamagedStream(t *testing.T) {
	type item = map[string]types.AttributeValue
	size := func(n string) func(item, *blobs, string) {
		return func(i item, _ *blobs, _ string) { i["n"] = &types.AttributeValueMemberN{Value: n} }
	}
	for _, tt := range []struct {
		name string
		harm func(head item, b *blobs, second string)
		left int    // bytes
		lost [2]int // range that reads as zeros
	}{
		{name: "another size", left: 26_000, harm: size("99")},
		{name: "a size that is none", left: 26_000, harm: size("-1")},
		{name: "a shorter tail", left: 25_000, harm: func(i item, _ *blobs, _ string) {
			i["t"] = &types.AttributeValueMemberB{Value: bytes.Repeat([]byte{'z'}, 5_000)}
		}},
		{name: "no part", left: 26_000, lost: [2]int{10_000, 20_000}, harm: func(_ item, b *blobs, second string) { delete(b.data, second) }},
		{name: "a shorter part", left: 26_000, lost: [2]int{15_000, 20_000}, harm: func(_ item, b *blobs, second string) {
			b.data[second] = b.data[second][:len(b.data[second])-5_000]
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := minidyn().options(t)
			b := o.Blobs.(*blobs)
			s := open(t, o)
			data := pieces(t, s, events, nil, 1, 10_000)
			first := b.names()[0]
			data = pieces(t, s, events, data, 1, 10_000)
			second := b.names()[slices.IndexFunc(b.names(), func(n string) bool { return n != first })]
			data = append(data, bytes.Repeat([]byte{'z'}, 6_000)...)
			if err := s.Append(t.Context(), events, 20_000, data[20_000:]); err != nil {
				t.Fatal(err)
			}
			client := dynamodb.NewFromConfig(o.Config, func(c *dynamodb.Options) { c.BaseEndpoint = &o.Endpoint })
			got, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &o.Table, Key: item{
				"PK": &types.AttributeValueMemberS{Value: "STREAM.EVENTS/" + o.Repository + "/w"}, "SK": &types.AttributeValueMemberS{Value: "r"},
			}})
			if err != nil {
				t.Fatal(err)
			}
			tt.harm(got.Item, b, second)
			if _, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &o.Table, Item: got.Item}); err != nil {
				t.Fatal(err)
			}
			s = open(t, o) // the writing store remembers the head
			want := bytes.Clone(data[:tt.left])
			clear(want[tt.lost[0]:tt.lost[1]])
			r, err := s.Open(t.Context(), events, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if left, err := io.ReadAll(r); !errors.Is(err, refstore.ErrDamaged) || !bytes.Equal(left, want) {
				t.Errorf("got %d bytes and error %v, want %d and %v", len(left), err, len(want), refstore.ErrDamaged)
			}
			keep := tt.left
			if tt.lost[0] > 0 {
				keep = tt.lost[0]
			} else if err := s.Append(t.Context(), events, int64(keep), []byte("x")); !errors.Is(err, refstore.ErrDamaged) {
				t.Errorf("append: got error %v, want %v", err, refstore.ErrDamaged)
			}
			if err := errors.Join(s.Cut(t.Context(), events, int64(keep)), s.Append(t.Context(), events, int64(keep), []byte("more"))); err != nil {
				t.Fatal(err)
			}
			if got := read(t, open(t, o), events, 0); !bytes.Equal(got, append(want[:keep:keep], "more"...)) {
				t.Errorf("once it was cut: got %d other bytes than the %d that there are", len(got), keep+4)
			}
		})
	}
}

// TestReadWhileMerging reads a stream whose parts are merged during the read.
func TestReadWhileMerging(t *testing.T) {
	s := open(t, minidyn().options(t))
	data := pieces(t, s, events, nil, 60, 10<<10)
	r, err := s.Open(t.Context(), events, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 15<<10)
	if _, err := io.ReadFull(r, got); err != nil {
		t.Fatal(err)
	}
	pieces(t, s, events, data, 100, 10<<10)
	rest, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	if got = append(got, rest...); !bytes.Equal(got, data) {
		t.Errorf("got %d other bytes than the %d that the stream had when it was opened", len(got), len(data))
	}
}

func TestReadWhatIsRemoved(t *testing.T) {
	s := open(t, minidyn().options(t))
	pieces(t, s, events, nil, 5, 10<<10)
	r, err := s.Open(t.Context(), events, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := s.Remove(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("got error %v, want %v", err, refstore.ErrNotFound)
	}
}

// TestRemoveWithoutAnswer: a removal whose answer is lost leaves no part of the stream behind.
func TestRemoveWithoutAnswer(t *testing.T) {
	o := minidyn().options(t)
	s, p := behind(t, o)
	pieces(t, s, events, nil, 5, 10<<10)
	p.Faults(1, testserver.Rule{Op: "DeleteItem", Fault: testserver.DropAfter, Times: 1})
	if err := s.Remove(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	if got := o.Blobs.(*blobs).names(); len(got) > 0 {
		t.Errorf("after removal there are the blobs %q", got)
	}
}

// TestTwoAppenders appends by turns from two processes, each of which remembers an outdated head.
func TestTwoAppenders(t *testing.T) {
	o := minidyn().options(t)
	stores := []*dynamo.Store{open(t, o), open(t, o)}
	var want []byte
	for i := range 40 {
		piece := bytes.Repeat([]byte{byte('a' + i%26)}, 3000)
		if err := stores[i%2].Append(t.Context(), events, int64(len(want)), piece); err != nil {
			t.Fatal(err)
		}
		if err := stores[(i+1)%2].Append(t.Context(), events, int64(len(want)), piece); !errors.Is(err, refstore.ErrConflict) {
			t.Errorf("append at the wrong offset: got error %v, want %v", err, refstore.ErrConflict)
		}
		want = append(want, piece...)
	}
	if got := read(t, stores[0], events, 0); !bytes.Equal(got, want) {
		t.Errorf("got %d other bytes than the %d that were written", len(got), len(want))
	}
	if err := stores[0].Seal(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	if err := stores[1].Append(t.Context(), events, int64(len(want)), nil); !errors.Is(err, refstore.ErrSealed) {
		t.Errorf("append to what another has sealed: got error %v, want %v", err, refstore.ErrSealed)
	}
}

// TestFollowCuts follows a stream that is cut and grows again between two polls.
func TestFollowCuts(t *testing.T) {
	s := open(t, minidyn().options(t))
	want := func(r io.Reader, text string) {
		t.Helper()
		got := make([]byte, len(text))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != text {
			t.Fatalf("got %q, %v, want %q", got, err, text)
		}
	}
	if err := s.Append(t.Context(), events, 0, []byte("one two")); err != nil {
		t.Fatal(err)
	}
	r, err := s.Follow(t.Context(), events, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want(r, "one")
	want(r, " two")
	if err := errors.Join(s.Append(t.Context(), events, 7, []byte(" tor")), s.Cut(t.Context(), events, 7), s.Append(t.Context(), events, 7, []byte(" three"))); err != nil {
		t.Fatal(err)
	}
	want(r, " three") // the bytes read before still exist
	if err := errors.Join(s.Cut(t.Context(), events, 3), s.Append(t.Context(), events, 3, []byte(" 2 and much more"))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, refstore.ErrConflict) {
		t.Errorf("got error %v, want %v", err, refstore.ErrConflict)
	}
}

// TestShortLogs reads the log that is a field of its execution's record.
func TestShortLogs(t *testing.T) {
	s := open(t, minidyn().options(t))
	log := refstore.Key{Partition: "LOG/task/inputs/id", Sort: "stdout.txt"}
	r, err := s.Follow(t.Context(), log, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text := strings.Repeat("a line\n", 10000)
	put(t, s, refstore.Record{Key: execution, Fields: []refstore.Field{{Name: "stdout.txt", Value: []byte(text)}}})
	if info, err := s.Size(t.Context(), log); err != nil || info.Size != int64(len(text)) {
		t.Errorf("size: got %+v, %v, want %d", info, err, len(text))
	}
	if got := read(t, s, log, 7); string(got) != text[7:] {
		t.Errorf("got %d other bytes than the %d that were written", len(got), len(text)-7)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != text {
		t.Errorf("follow: got %d bytes, %v, want %d", len(got), err, len(text))
	}
	log.Sort = "stderr.txt"
	if _, err := s.Open(t.Context(), log, 0); !errors.Is(err, refstore.ErrNotFound) {
		t.Errorf("open of a log that there is not: got error %v, want %v", err, refstore.ErrNotFound)
	}
}

// TestStreamModel drives one stream, with pieces of all sizes, and its model.
func TestStreamModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := minidyn().options(t)
		stores := []*dynamo.Store{open(t, o), open(t, o)}
		var want []byte
		exists := false
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				size := rapid.SampledFrom([]int{0, 1, 100, 5000, 8 << 10, 8<<10 + 1, 30000}).Draw(rt, "size")
				piece := bytes.Repeat([]byte{rapid.Byte().Draw(rt, "byte")}, size)
				if err := rapid.SampledFrom(stores).Draw(rt, "store").Append(t.Context(), events, int64(len(want)), piece); err != nil {
					rt.Fatal(err)
				}
				want, exists = append(want, piece...), true
			},
			"cut": func(rt *rapid.T) {
				size := rapid.IntRange(0, len(want)).Draw(rt, "size")
				err := rapid.SampledFrom(stores).Draw(rt, "store").Cut(t.Context(), events, int64(size))
				if !exists {
					if !errors.Is(err, refstore.ErrNotFound) {
						rt.Fatalf("cut of nothing: got error %v", err)
					}
					return
				}
				if err != nil {
					rt.Fatal(err)
				}
				want = want[:size:size]
			},
			"remove": func(rt *rapid.T) {
				if err := rapid.SampledFrom(stores).Draw(rt, "store").Remove(t.Context(), events); exists && err != nil {
					rt.Fatal(err)
				}
				want, exists = nil, false
				if _, err := stores[0].RemoveLeftovers(t.Context(), time.Now().Add(time.Hour)); err != nil { // of refused creations
					rt.Fatal(err)
				}
				if left := o.Blobs.(*blobs).names(); len(left) > 0 {
					rt.Fatalf("after removal there are the blobs %q", left)
				}
			},
			"": func(rt *rapid.T) {
				if !exists {
					return
				}
				offset := rapid.IntRange(0, len(want)).Draw(rt, "offset")
				if got := read(t, stores[0], events, int64(offset)); !bytes.Equal(got, want[offset:]) {
					rt.Fatalf("from %d: got %d bytes, other than the %d that were written", offset, len(got), len(want)-offset)
				}
			},
		})
	})
}
