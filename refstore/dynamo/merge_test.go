package dynamo

import (
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestMergeCost checks the cost of a long stream's parts, for any sizes of appends: there are few parts, and bytes are
// seldom rewritten.
func TestMergeCost(t *testing.T) {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	each := func(sizes ...int64) iter.Seq[int64] {
		return func(yield func(int64) bool) {
			for i := 0; yield(sizes[i%len(sizes)]); i++ {
			}
		}
	}
	between := func(least, most float64) iter.Seq[int64] { // evenly distributed over magnitudes
		random := rand.New(rand.NewPCG(1, 0))
		return func(yield func(int64) bool) {
			for yield(int64(least * math.Pow(most/least, random.Float64()))) {
			}
		}
	}
	bursts := func(size int64, rest int) []int64 {
		return append(slices.Repeat([]int64{8*kib + 1}, rest), size)
	}
	var falling []int64
	for size := int64(4 * mib); size > 8*kib; size /= 3 {
		falling = append(falling, size)
	}
	for name, c := range map[string]struct {
		sizes iter.Seq[int64]
		total int64
	}{
		"lines, a tail at a time":  {each(8*kib + 1), gib},
		"30 KiB":                   {each(30 * kib), gib},
		"1.1 MiB":                  {each(11 * mib / 10), gib},
		"1.1 MiB for hours":        {each(11 * mib / 10), 10 * gib},
		"4 MiB for hours":          {each(4 * mib), 20 * gib},
		"9 MiB":                    {each(9 * mib), gib},
		"15 MiB":                   {each(15 * mib), gib},
		"33 MiB":                   {each(33 * mib), 20 * gib},
		"all magnitudes":           {between(8*kib, 4*mib), 4 * gib},
		"magnitudes that do not":   {between(8*kib, 100*mib), 40 * gib},
		"by turns":                 {each(4*mib, 8*kib+1), gib},
		"by turns, what is merged": {each(20*mib, 8*kib+1), gib},
		"nearly too large":         {each(47*mib, 8*kib+1), 10 * gib},
		"bursts":                   {each(bursts(4*mib, 100)...), gib},
		"rare bursts":              {each(bursts(16*mib, 1000)...), 2 * gib},
		"falling":                  {each(falling...), gib},
	} {
		t.Run(name, func(t *testing.T) {
			var parts []streamPart
			var written, again int64
			most, least := 0, math.Inf(1)
			for size := range c.sizes {
				if written+size > c.total {
					break
				}
				parts = append(parts, streamPart{size: size})
				written += size
				if limit := mayHave(written); len(parts) > limit {
					first, end := toMerge(parts)
					sum := total(parts[first:end])
					if end-first < 2 || sum > maxMerged {
						t.Fatalf("after %d bytes the %d parts from %d on, of %d, are to be merged, which have %d bytes", written, end-first, first, len(parts), sum)
					}
					again += sum
					least = min(least, entropyOf(parts[first:end]))
					parts = slices.Replace(parts, first, end, streamPart{size: sum})
					if len(parts) > limit {
						t.Fatalf("%d bytes are %d parts", written, len(parts))
					}
				}
				most = max(most, len(parts))
			}
			t.Logf("%d MiB: at most %d parts, written again %.2f times, entropy at least %.2f", written/mib, most, float64(again)/float64(written), least)
			if again > 3*written || least < 1 {
				t.Errorf("of %d bytes %d were written again, with an entropy of %.2f", written, again, least)
			}
		})
	}
}

func entropyOf(parts []streamPart) (bits float64) {
	for _, p := range parts {
		share := float64(p.size) / float64(total(parts))
		bits -= share * math.Log2(share)
	}
	return bits
}
