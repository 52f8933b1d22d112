package tree_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"e3/internal/format/beast2"
	"e3/objectstore"
	"e3/objectstore/tree"
)

var (
	dirEntry  = tree.Entry{Name: "d", Kind: tree.KindDir, Hash: objectstore.Sum([]byte("d"))}
	fileEntry = tree.Entry{Name: "f", Kind: tree.KindFile, Hash: objectstore.Sum([]byte("f")), Size: 300, Executable: true}
	linkEntry = tree.Entry{Name: "l", Kind: tree.KindLink, Target: "f"}
)

func encode(t testing.TB, entries tree.Entries) []byte {
	t.Helper()
	b, err := tree.Encode(entries)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBytes(t *testing.T) {
	header := "89456173740d0a01" + // magic
		"05" + "0e" + // Dict, key String
		"10" + "0003" + // value Variant of three cases
		"03" + hexOf("dir") + "0e" + // String
		"04" + hexOf("file") + "0f" + "0003" + // Struct of three fields
		"04" + hexOf("hash") + "0e" + "04" + hexOf("size") + "08" + "0a" + hexOf("executable") + "03" +
		"04" + hexOf("link") + "0e"
	if got := hexOf(tree.Header); got != header {
		t.Fatalf("header:\ngot  %s\nwant %s", got, header)
	}
	sum := func(s string) string { return hexOf(objectstore.Sum([]byte(s)).String()) }
	for name, c := range map[string]struct {
		tree tree.Entries
		want string
	}{
		"empty": {nil, "0000"},
		"all kinds": {tree.Entries{dirEntry, fileEntry, linkEntry}, "0003" +
			"0164" + "00" + "40" + sum("d") +
			"0166" + "01" + "40" + sum("f") + "d804" + "01" +
			"016c" + "02" + "0166"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hexOf(string(encode(t, c.tree))); got != header+c.want {
				t.Errorf("got  %s\nwant %s", got, header+c.want)
			}
		})
	}
}

func hexOf(s string) string { return hex.EncodeToString([]byte(s)) }

// U+1F600 is two UTF-16 units from U+D83D up and comes before U+FF5E, unlike in UTF-8.
func TestOrder(t *testing.T) {
	entries := tree.Entries{}
	want := []string{"A", "a", "a b", "ab", "é", "中", "\U0001F600", "\U0001F600a", "\U0001F601", "\uE000", "\uFF5E"}
	for _, name := range want {
		entries = append(entries, tree.Entry{Name: name, Kind: tree.KindLink, Target: "x"})
	}
	slices.Reverse(entries)
	entries.Sort()
	var got []string
	for _, e := range entries {
		got = append(got, e.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	for _, name := range want {
		if e, ok := entries.Find(name); !ok || e.Name != name {
			t.Errorf("Find(%q) = %+v, %v", name, e, ok)
		}
	}
	if _, ok := entries.Find("absent"); ok {
		t.Error("Find found what is not there")
	}
	if decoded, err := tree.Decode(encode(t, entries)); err != nil || !cmp.Equal(decoded, entries) {
		t.Errorf("decoded %v, %v", decoded, err)
	}
}

var badEntries = map[string]tree.Entry{
	"no name":          {Name: "", Kind: tree.KindDir},
	"dot":              {Name: ".", Kind: tree.KindDir},
	"dot dot":          {Name: "..", Kind: tree.KindDir},
	"slash":            {Name: "a/b", Kind: tree.KindDir},
	"NUL":              {Name: "a\x00b", Kind: tree.KindDir},
	"not UTF-8":        {Name: "a\xff", Kind: tree.KindDir},
	"lone surrogate":   {Name: "a\xed\xb0\x80", Kind: tree.KindDir},
	"too long":         {Name: strings.Repeat("x", 1025), Kind: tree.KindDir},
	"negative size":    {Name: "f", Kind: tree.KindFile, Size: -1},
	"no target":        {Name: "l", Kind: tree.KindLink},
	"absolute target":  {Name: "l", Kind: tree.KindLink, Target: "/etc/passwd"},
	"NUL in target":    {Name: "l", Kind: tree.KindLink, Target: "a\x00"},
	"target not UTF-8": {Name: "l", Kind: tree.KindLink, Target: "\xff"},
	"long target":      {Name: "l", Kind: tree.KindLink, Target: strings.Repeat("x", 4096)},
}

func TestEncodeRefuses(t *testing.T) {
	trees := map[string]tree.Entries{
		"wrong order":  {fileEntry, dirEntry},
		"twice":        {fileEntry, fileEntry},
		"unknown kind": {{Name: "x", Kind: 3}},
	}
	for name, e := range badEntries {
		trees[name] = tree.Entries{e}
	}
	for name, entries := range trees {
		t.Run(name, func(t *testing.T) {
			var rule *tree.Error
			if b, err := tree.Encode(entries); !errors.As(err, &rule) || b != nil {
				t.Errorf("got %x, %v, want *tree.Error", b, err)
			}
		})
	}
}

// raw encodes without any checks.
func raw(entries tree.Entries) []byte {
	b := beast2.AppendInline([]byte(tree.Header))
	b = beast2.AppendVarint(b, uint64(len(entries)))
	for _, e := range entries {
		b = beast2.AppendString(b, e.Name)
		b = beast2.AppendVarint(b, uint64(e.Kind))
		switch e.Kind {
		case tree.KindDir:
			b = beast2.AppendString(b, e.Hash.String())
		case tree.KindFile:
			b = beast2.AppendString(b, e.Hash.String())
			b = beast2.AppendInteger(b, e.Size)
			b = beast2.AppendBoolean(b, e.Executable)
		default:
			b = beast2.AppendString(b, e.Target)
		}
	}
	return b
}

func TestDecodeRefuses(t *testing.T) {
	all := tree.Entries{dirEntry, fileEntry, linkEntry}
	good := encode(t, all)
	if string(raw(all)) != string(good) {
		t.Fatal("raw does not encode as Encode does")
	}
	replace := func(old, new string) []byte { return []byte(strings.Replace(string(good), old, new, 1)) }
	hash := fileEntry.Hash.String()
	data := map[string][]byte{
		"nothing":         nil,
		"other magic":     append([]byte{0x88}, good[1:]...),
		"other version":   replace("\r\n\x01", "\r\n\x02"),
		"other schema":    replace("executable", "executablf"),
		"header only":     []byte(tree.Header),
		"trailing byte":   append(slices.Clone(good), 0),
		"backreference":   []byte(tree.Header + "\x01"),
		"huge count":      []byte(tree.Header + "\x00\xff\xff\xff\xff\xff\xff\xff\x0f"),
		"wrong order":     raw(tree.Entries{linkEntry, fileEntry}),
		"twice":           raw(tree.Entries{fileEntry, fileEntry}),
		"unknown kind":    raw(tree.Entries{{Name: "x", Kind: 3, Target: "y"}}),
		"upper-case hash": replace(hash, strings.ToUpper(hash)),
		"short hash":      replace("@"+hash, "\x3f"+hash[:63]),
		"boolean 2":       replace("\xd8\x04\x01", "\xd8\x04\x02"),
		"padded size":     replace("\xd8\x04\x01", "\xd8\x84\x00\x01"),
	}
	for n := range good {
		data[fmt.Sprintf("cut at %d", n)] = good[:n]
	}
	for name, e := range badEntries {
		data[name] = raw(tree.Entries{e})
	}
	for name, b := range data {
		t.Run(name, func(t *testing.T) {
			var syntax *beast2.SyntaxError
			entries, err := tree.Decode(b)
			if !errors.As(err, &syntax) || entries != nil {
				t.Fatalf("got %v, %v, want a *beast2.SyntaxError", entries, err)
			}
			if syntax.Offset < 0 || syntax.Offset > len(b) {
				t.Errorf("offset %d is outside the %d bytes: %v", syntax.Offset, len(b), err)
			}
		})
	}
}

// genName generates names that test escaping and order.
var genName = rapid.OneOf(
	rapid.StringMatching(`[a-c ]{1,3}`),
	rapid.StringMatching(`[-\n"'\\*?é中\x{FF5E}\x{E000}\x{1F600}]{1,4}`),
	rapid.SampledFrom([]string{"...", " ", "con", "-", "\n", "a\tb", "~", ".hidden", "ﬁ", "e\u0301"}),
)

func genTree(t *rapid.T) tree.Entries {
	var entries tree.Entries
	for _, name := range rapid.SliceOfDistinct(genName, rapid.ID[string]).Draw(t, "names") {
		if name == "." || name == ".." {
			continue
		}
		e := tree.Entry{Name: name, Kind: tree.Kind(rapid.IntRange(0, 2).Draw(t, "kind"))}
		if e.Kind != tree.KindLink {
			e.Hash = objectstore.Sum([]byte(name))
		}
		switch e.Kind {
		case tree.KindFile:
			e.Size = rapid.Int64Min(0).Draw(t, "size")
			e.Executable = rapid.Bool().Draw(t, "executable")
		case tree.KindLink:
			e.Target = rapid.StringMatching(`[a-z./]{1,10}`).Filter(func(s string) bool { return s[0] != '/' }).Draw(t, "target")
		}
		entries = append(entries, e)
	}
	entries.Sort()
	return entries
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := genTree(t)
		b, err := tree.Encode(entries)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tree.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, entries) {
			t.Errorf("got %v, want %v", got, entries)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, err := tree.Decode(b)
		if err != nil {
			return
		}
		again, err := tree.Encode(entries)
		if err != nil {
			t.Fatalf("what decodes does not encode: %v", err)
		}
		if string(again) != string(b) {
			t.Errorf("decoded and encoded:\ngot  %x\nfrom %x", again, b)
		}
	})
}
