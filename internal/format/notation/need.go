package notation

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Need is how many members of a fan-in must have succeeded. The zero value asks for all of them.
type Need struct {
	Kind NeedKind
	N    int64 // NeedCount: members. NeedShare: millionths of all members
}

// NeedKind is how a need is stated. The values are the case tags of records.
type NeedKind int

// The kinds of needs.
const (
	NeedAll NeedKind = iota
	NeedCount
	NeedShare
)

// WholeShare is the greatest N of a share: all members.
const WholeShare = 1_000_000

// Of returns how many of the members must have succeeded, at most all.
func (n Need) Of(members int) int {
	switch n.Kind {
	case NeedCount:
		return int(min(n.N, int64(members)))
	case NeedShare:
		hi, lo := bits.Mul64(uint64(members), uint64(min(n.N, WholeShare)))
		q, rest := bits.Div64(hi, lo, WholeShare)
		if rest > 0 {
			q++
		}
		return int(q)
	}
	return members
}

func (n Need) String() string {
	switch n.Kind {
	case NeedCount:
		return strconv.FormatInt(n.N, 10)
	case NeedShare:
		text := fmt.Sprintf("%d.%04d", n.N/10_000, n.N%10_000)
		return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + "%"
	}
	return "all"
}

// ParseNeed reads a need as it is written: any, a number, a percentage.
func ParseNeed(text string) (Need, bool) {
	percent, isShare := strings.CutSuffix(text, "%")
	switch {
	case text == "any":
		return Need{Kind: NeedCount, N: 1}, true
	case text == "all":
		return Need{}, true
	case !isShare:
		n, err := strconv.ParseInt(text, 10, 32)
		return Need{Kind: NeedCount, N: n}, err == nil && n >= 0
	}
	whole, part, _ := strings.Cut(strings.TrimSpace(percent), ".")
	if len(part) > 4 || strings.Trim(whole+part, "0123456789") != "" || whole == "" {
		return Need{}, false
	}
	n, err := strconv.ParseInt(whole+part+strings.Repeat("0", 4-len(part)), 10, 32)
	return Need{Kind: NeedShare, N: n}, err == nil && n > 0 && n <= WholeShare
}
