package dynamo

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"e3/refstore"
)

// Attributes of an item. Their names are short because names count towards the size of an item.
const (
	attrVersion  = "v"  // S: chosen by the writer
	attrReplaced = "o"  // S: the replaced version; absent in a new item
	attrValue    = "d"  // B: the value; NULL: an empty value (not every server accepts an empty B); M: its blob
	fieldPrefix  = "f:" // likewise, and the name of the field behind it
)

// Keys of the map that stands for a part in a blob.
const (
	blobName = "n" // S: behind the item's folder
	blobSize = "s" // N: bytes
	blobSum  = "h" // B: SHA-256
)

// maxItem is the size of an item above which parts of a record move to blobs, the largest first. It is small, since a
// lookup reads the whole item.
const maxItem = 32 << 10

// keptInline is the size up to which a part always stays in the item: the name of a blob would be as long.
const keptInline = 128

// part is the value or a field of a record: bytes, or the blob that holds them.
type part struct {
	name string // name of the attribute
	data []byte
	blob *blobRef
}

// blobRef names a blob, and its size and sum.
type blobRef struct {
	name string // relative to the item's folder
	size int64
	sum  [sha256.Size]byte
}

func (p *part) attribute() types.AttributeValue {
	switch {
	case p.blob == nil && len(p.data) == 0:
		return &types.AttributeValueMemberNULL{Value: true}
	case p.blob == nil:
		return &types.AttributeValueMemberB{Value: p.data}
	}
	return &types.AttributeValueMemberM{Value: attributes{
		blobName: &types.AttributeValueMemberS{Value: p.blob.name},
		blobSize: &types.AttributeValueMemberN{Value: strconv.FormatInt(p.blob.size, 10)},
		blobSum:  &types.AttributeValueMemberB{Value: p.blob.sum[:]},
	}}
}

// size estimates the part's contribution to the size of its item.
func (p *part) size() int {
	if p.blob == nil {
		return len(p.name) + len(p.data)
	}
	return len(p.name) + len(p.blob.name) + sha256.Size + 16
}

// recordParts are the value and the fields of a record.
func recordParts(r refstore.Record) []part {
	parts := []part{{name: attrValue, data: r.Value}}
	for _, f := range r.Fields {
		parts = append(parts, part{name: fieldPrefix + f.Name, data: f.Value})
	}
	return parts
}

// spill turns the largest parts into blobs until the item of k has at most limit bytes, or no large part is left. It
// returns the data of these parts by blob name.
func spill(k itemKey, parts []part, version string, limit int) map[string][]byte {
	size := len(partitionKey) + len(k.pk) + len(sortKey) + len(k.sk) + 2*(1+len(version))
	for i := range parts {
		size += parts[i].size()
	}
	var out map[string][]byte
	for n := 0; size > limit; n++ {
		largest := -1
		for i, p := range parts {
			if p.blob == nil && len(p.data) > keptInline && (largest < 0 || len(p.data) > len(parts[largest].data)) {
				largest = i
			}
		}
		if largest < 0 {
			break
		}
		p := &parts[largest]
		size -= p.size()
		p.blob = &blobRef{name: version + "-" + strconv.Itoa(n), size: int64(len(p.data)), sum: sha256.Sum256(p.data)}
		size += p.size()
		if out == nil {
			out = make(map[string][]byte)
		}
		out[blobFolder(recordBlobs, k)+p.blob.name] = p.data
	}
	return out
}

// A badItemError reports an item that this program cannot have written.
type badItemError struct {
	table string
	key   itemKey
	what  string
}

func (e *badItemError) Error() string {
	return fmt.Sprintf("table %s: item %q, %q: %s", e.table, e.key.pk, e.key.sk, e.what)
}

// decoder reads the attributes of an item of unknown origin, and keeps the first error.
type decoder struct {
	item attributes
	bad  *badItemError
	err  error
}

func (s *table) decode(k itemKey, item attributes) *decoder {
	return &decoder{item: item, bad: &badItemError{table: s.o.Table, key: k}}
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.bad.what = fmt.Sprintf(format, args...)
		d.err = d.bad
	}
}

// kindOf names the type of an attribute.
func kindOf(a types.AttributeValue) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", a), "*types.AttributeValueMember")
}

func (d *decoder) text(name string) string {
	switch a := d.item[name].(type) {
	case nil:
	case *types.AttributeValueMemberS:
		return a.Value
	default:
		d.fail("attribute %q is of type %s, want S", name, kindOf(a))
	}
	return ""
}

func (d *decoder) bytes(name string) []byte {
	switch a := d.item[name].(type) {
	case nil:
	case *types.AttributeValueMemberB:
		return a.Value
	default:
		d.fail("attribute %q is of type %s, want B", name, kindOf(a))
	}
	return nil
}

// number reads a number; a negative one is an error.
func (d *decoder) number(name string) int64 {
	switch a := d.item[name].(type) {
	case nil:
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(a.Value, 10, 64)
		if err != nil || n < 0 {
			d.fail("attribute %q is %.40q, want a size", name, a.Value)
		}
		return max(n, 0)
	default:
		d.fail("attribute %q is of type %s, want N", name, kindOf(a))
	}
	return 0
}

func (d *decoder) flag(name string) bool {
	switch a := d.item[name].(type) {
	case nil:
	case *types.AttributeValueMemberBOOL:
		return a.Value
	default:
		d.fail("attribute %q is of type %s, want BOOL", name, kindOf(a))
	}
	return false
}

// version reads the version, which every item has.
func (d *decoder) version() string {
	v := d.text(attrVersion)
	if v == "" {
		d.fail("it has no version")
	}
	return v
}

// part reads a part of a record; ok says that it exists.
func (d *decoder) part(name string) (p part, ok bool) {
	switch a := d.item[name].(type) {
	case nil:
		return part{}, false
	case *types.AttributeValueMemberNULL:
		return part{name: name}, true
	case *types.AttributeValueMemberB:
		return part{name: name, data: a.Value}, true
	case *types.AttributeValueMemberM:
		m := decoder{item: a.Value, bad: d.bad}
		ref := &blobRef{name: m.text(blobName), size: m.number(blobSize)}
		sum := m.bytes(blobSum)
		copy(ref.sum[:], sum)
		switch {
		case m.err != nil:
			d.fail("attribute %q: %s", name, d.bad.what)
		case len(sum) != sha256.Size || !safeBlobName(ref.name):
			d.fail("attribute %q names no blob", name)
		}
		return part{name: name, blob: ref}, true
	default:
		d.fail("attribute %q is of type %s, want B, NULL or M", name, kindOf(a))
		return part{}, true
	}
}

// safeBlobName reports whether a name in an item stays inside the item's folder.
func safeBlobName(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// blobsOf returns the names of the blobs in an item of a record, or in some of its attributes.
func (s *table) blobsOf(k itemKey, item attributes) (names []string, err error) {
	d := s.decode(k, item)
	for attr := range item {
		if attr != attrValue && !strings.HasPrefix(attr, fieldPrefix) {
			continue
		}
		if p, _ := d.part(attr); p.blob != nil && safeBlobName(p.blob.name) {
			names = append(names, blobFolder(recordBlobs, k)+p.blob.name)
		}
	}
	return names, d.err
}
