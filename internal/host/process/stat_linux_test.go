package process

import "testing"

func TestParseStat(t *testing.T) {
	const tail = " S 12 34 56 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 100 200\n"
	for _, name := range []string{"cat", "a b", ") R 1 (", "((", ""} {
		got, err := ParseStat([]byte("99 (" + name + ")" + tail))
		want := Stat{State: 'S', Parent: 12, Group: 34, Session: 56, StartTicks: 987654}
		if err != nil || got != want {
			t.Errorf("name %q: %+v, %v; want %+v", name, got, err, want)
		}
	}
	for _, text := range []string{"", "99 (cat", "99 (cat) S 1 2", "99 (cat) S x 34 56 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 1 1"} {
		if got, err := ParseStat([]byte(text)); err == nil {
			t.Errorf("%q gives %+v, want an error", text, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("99 (a) b) S 12 34 56 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 100 200\n"))
	f.Add([]byte("1 ()"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := ParseStat(text); err != nil && got != (Stat{}) {
			t.Errorf("%q gives both %+v and %v", text, got, err)
		}
	})
}
