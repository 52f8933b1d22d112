package events

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
)

// A line of a log ends with the checksum of the bytes before it, as its last member: ,"sum":"<8 hex digits>"}. Without
// it, a damaged digit would be read as another number.
const (
	sumMember = `,"sum":"`
	sumDigits = 8
	sumTail   = len(sumMember) + sumDigits + len(`"}`)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errSum = errors.New("it is damaged: its sum is another")

// AppendLine appends the event's line in the form of logs: the line of [Append] with its sum.
func AppendLine(b []byte, e *Event) ([]byte, error) {
	from := len(b)
	b, err := Append(b, e)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-len("}\n")]
	return append(appendSum(b, b[from:]), '\n'), nil
}

// appendSum appends the sum of the bytes before it, and the end of the object.
func appendSum(b, before []byte) []byte {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(before, castagnoli))
	return append(hex.AppendEncode(append(b, sumMember...), sum[:]), `"}`...)
}

// checkSum checks the sum of a line without its newline, and returns the bytes before it.
func checkSum(line []byte) (before []byte, err error) {
	at := len(line) - sumTail
	if at < 1 {
		return nil, errSum
	}
	var want [sumTail]byte
	if !bytes.Equal(line[at:], appendSum(want[:0], line[:at])) {
		return nil, errSum
	}
	return line[:at], nil
}
