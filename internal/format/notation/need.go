package notation

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Need is the number of members of a fan-in that must have succeeded. The zero value asks for all of them.
type Need struct {
	Kind NeedKind `beast2:"*,case,bare"`
	N    int64    `beast2:",in=count|share"` // NeedCount: members. NeedShare: millionths of all members
}

// Check refuses a need out of its range.
func (n *Need) Check() error {
	if n.Kind == NeedCount && (n.N < 0 || n.N > math.MaxInt32) || n.Kind == NeedShare && (n.N < 1 || n.N > WholeShare) {
		return fmt.Errorf("need: %d is out of range", n.N)
	}
	return nil
}

// NeedKind is the form in which a need is stated. The values are the case tags of records.
type NeedKind int

// The kinds of needs.
const (
	NeedAll NeedKind = iota
	NeedCount
	NeedShare
)

// Cases are the kinds' names in records.
func (k NeedKind) Cases() []string { return []string{"all", "count", "share"} }

// WholeShare is the greatest N of a share: all members.
const WholeShare = 1_000_000

// Of returns the number of members that must have succeeded, at most all.
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
