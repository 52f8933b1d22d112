package events

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Settings are values of inputs, by name, as JSON. The value of a file is its hash; a long value is null.
type Settings map[string]json.RawMessage

// String lists the settings as "k=4, train.rate=0.1".
func (s Settings) String() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		list = append(list, name+"="+strings.Trim(string(s[name]), `"`))
	}
	return strings.Join(list, ", ")
}
