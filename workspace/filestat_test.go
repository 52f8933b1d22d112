package workspace

import (
	"testing"
	"time"

	"e3/internal/format/record"
)

func TestFileStatProves(t *testing.T) {
	const day = int64(24 * time.Hour)
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	// A file written on day 100 and read a day later.
	base := record.FileStat{Size: 10, ModTime: 100*day + 1, ChangeTime: 100*day + 1, Inode: 7, Seen: 101 * day}
	same := func(s *record.FileStat) {}
	for _, test := range []struct {
		name      string
		then, now func(*record.FileStat)
		want      bool
	}{
		{"nothing changed", same, same, true},
		{"seen again later", same, func(s *record.FileStat) { s.Seen += day }, true},
		{"never seen then", func(s *record.FileStat) { s.Seen = 0 }, same, false},
		{"other size", same, func(s *record.FileStat) { s.Size++ }, false},
		{"modified later", same, func(s *record.FileStat) { s.ModTime++ }, false},
		{"modification time set back", same, func(s *record.FileStat) { s.ModTime-- }, false},
		{"mode changed", same, func(s *record.FileStat) { s.ChangeTime++ }, false},
		{"replaced by another file", same, func(s *record.FileStat) { s.Inode++ }, false},
		// Racily clean: a file that is read within the clock tick in which it was written may change again without a
		// new time.
		{"read as it was written", func(s *record.FileStat) { s.Seen = s.ModTime }, same, false},
		{"read a moment after", func(s *record.FileStat) { s.Seen = s.ModTime + ms(1) }, same, false},
		{"read one tick after", func(s *record.FileStat) { s.Seen = s.ModTime + ms(20) }, same, false},
		{"read more than a tick after", func(s *record.FileStat) { s.Seen = s.ModTime + ms(20) + 1 }, same, true},
		{"old content, status changed as it was read", func(s *record.FileStat) { s.ChangeTime = s.Seen }, func(s *record.FileStat) { s.ChangeTime = s.Seen }, false},
		{"dated in the future", func(s *record.FileStat) { s.ModTime = s.Seen + day }, func(s *record.FileStat) { s.ModTime = s.Seen + day }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			then, now := base, base
			test.then(&then)
			test.now(&now)
			if got := proves(then, now); got != test.want {
				t.Errorf("%+v proves %+v: %v, want %v", then, now, got, test.want)
			}
		})
	}
}
