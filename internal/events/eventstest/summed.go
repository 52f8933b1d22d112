package eventstest

import (
	"fmt"
	"hash/crc32"
	"strings"
)

// Summed gives the lines of a log their sums (doc/format.md, "Events"), and replaces sums that they have. A line that
// is no whole object stays as it is.
func Summed(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		text, feed := strings.CutSuffix(line, "\n")
		if at := strings.LastIndex(text, `,"sum":"`); at > 0 && at == len(text)-len(`,"sum":"00000000"}`) {
			text = text[:at] + "}"
		}
		open, whole := strings.CutSuffix(text, "}")
		if !whole || len(open) < 2 {
			b.WriteString(line)
			continue
		}
		sum := crc32.Checksum([]byte(open), crc32.MakeTable(crc32.Castagnoli))
		fmt.Fprintf(&b, `%s,"sum":"%08x"}`, open, sum)
		if feed {
			b.WriteByte('\n')
		}
	}
	return b.String()
}
