package moment

import (
	"encoding/json"
	"testing"
	"time"
)

func TestJSON(t *testing.T) {
	type answer struct {
		At   Time   `json:"at"`
		Ends Time   `json:"ends,omitzero"`
		Took Millis `json:"ms"`
	}
	berlin := time.FixedZone("", 3600)
	for _, test := range []struct {
		is   answer
		want string
	}{
		{answer{}, `{"at":null,"ms":0}`},
		{answer{At(time.Date(2026, 1, 2, 0, 4, 5, 6_999_999, berlin)), At(time.Unix(0, 0)), Millis(1999 * time.Microsecond)},
			`{"at":"2026-01-01T23:04:05.006Z","ends":"1970-01-01T00:00:00.000Z","ms":1}`},
	} {
		got, err := json.Marshal(test.is)
		if err != nil || string(got) != test.want {
			t.Errorf("got %s, %v, want %s", got, err, test.want)
		}
	}
	var back Time
	if err := json.Unmarshal([]byte(`"2026-01-01T23:04:05.006Z"`), &back); err != nil || back.UnixMilli() != 1767308645006 {
		t.Errorf("read %v, %v", back, err)
	}
	if err := json.Unmarshal([]byte("null"), &back); err != nil {
		t.Error(err)
	}
}
