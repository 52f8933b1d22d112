package events

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
)

// A line of a log ends with the checksum of the bytes before it, as its last member: ,"sum":"<8 hex digits>"}. Without
// it, a damaged digit would be read as another number. Older lines have none, and older readers ignore the member.
const (
	sumMember = `,"sum":"`
	sumDigits = 8
	sumTail   = len(sumMember) + sumDigits + len(`"}`)
)

// maxFlaws is how many bytes of a sum's member may be wrong for it to still count as a damaged sum. No other member is
// that similar.
const maxFlaws = 3

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errSum = errors.New("it is damaged: its sum is another")

// appendSummed appends the event's line to b, with its sum.
func appendSummed(b []byte, e *Event) ([]byte, error) {
	from := len(b)
	b, err := Append(b, e)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-len("}\n")]
	sum := crc32.Checksum(b[from:], castagnoli)
	return fmt.Appendf(b, sumMember+"%08x\"}\n", sum), nil
}

// checkSum checks the sum of a line without its newline, and returns the bytes before it; summed is false if there is
// none.
func checkSum(line []byte) (before []byte, summed bool, err error) {
	at := len(line) - sumTail
	if at < 1 {
		return line, false, nil
	}
	tail, flaws := line[at:], 0
	for i, c := range tail {
		switch digit := i - len(sumMember); {
		case digit < 0 && c == sumMember[i], digit == sumDigits && c == '"', digit == sumDigits+1 && c == '}':
		case digit >= 0 && digit < sumDigits && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f'):
		default:
			flaws++
		}
	}
	if flaws > maxFlaws {
		return line, false, nil
	}
	var sum [4]byte
	if _, err := hex.Decode(sum[:], tail[len(sumMember):len(sumMember)+sumDigits]); flaws > 0 || err != nil {
		return nil, true, errSum
	}
	want := uint32(sum[0])<<24 | uint32(sum[1])<<16 | uint32(sum[2])<<8 | uint32(sum[3])
	if crc32.Checksum(line[:at], castagnoli) != want {
		return nil, true, errSum
	}
	return line[:at], true, nil
}
