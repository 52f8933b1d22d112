package checked

import (
	"strings"

	"e3/refstore"
)

// elsewhere returns the key whose sum a record of a queue may have instead of its own. The entry of a job may be an
// alias of the job ([Files.Alias]). A job may have the value with which it was to be moved to the finished ones, if its
// writer died in between ([Files.Move]).
func elsewhere(key refstore.Key) (other refstore.Key, settled, ok bool) {
	parts := strings.Split(key.Partition, "/")
	if len(parts) != 3 || parts[0] != "QUEUE" {
		return other, false, false
	}
	before := parts[0] + "/" + parts[1]
	switch dots := strings.Split(key.Sort, "."); {
	case (parts[2] == "ready" || parts[2] == "delayed") && len(dots) > 2: // what orders it, and the job's id, which has one dot
		return refstore.Key{Partition: before + "/jobs", Sort: strings.Join(dots[len(dots)-2:], ".")}, false, true
	case parts[2] == "jobs" && len(dots) == 2:
		return refstore.Key{Partition: before + "/finished/" + dots[0], Sort: key.Sort}, true, true
	}
	return other, false, false
}

// openElsewhere opens a record of a queue with the sum that it may have instead. settled tells that no write of the record
// is in progress: its value is in place before the record is moved.
func openElsewhere(rec refstore.Record, settled bool) (refstore.Record, bool) {
	other, needs, ok := elsewhere(rec.Key)
	if !ok || needs && !settled {
		return refstore.Record{}, false
	}
	value, _, err := disclose(other, "", rec.Value)
	return refstore.Record{Key: rec.Key, Value: value, Version: rec.Version}, err == nil
}
