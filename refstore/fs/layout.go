package fs

import (
	"fmt"
	"path/filepath"
	"strings"

	"e3/refstore"
)

// Records:
//
//	EXECUTION/<task>/<inputs> · <id>    executions/<task>/<inputs>/<id>/status.beast2, with its side fields (fold.go)
//	TASKS · <task>                      executions/<task>/            the folder is the record
//	INPUTS/<task> · <inputs>            executions/<task>/<inputs>/   the folder is the record
//	DATAFLOW/<workspace> · <run>        dataflows/<workspace>/<run>.beast2
//	RUNS · <workspace>                  dataflows/<workspace>/        the folder is the record
//	WORKSPACE · <workspace>             workspaces/<workspace>.beast2
//	PACKAGE · <name>/<version>          packages/<name>/<version>
//	TOMBSTONE · <task>                  tombstones/<task>.rec
//	PIN · <execution>                   pins/<execution>.rec
//	CANCEL · <workspace>                cancels/<workspace>.rec
//	APPROVAL/<workspace> · <task>/<sum> approvals/<workspace>/<task>%2F<sum>.rec
//	SETTINGS · <name>                   settings/<name>.json
//	INDEX/<a>/<b>… · <sort>             index/<a>/<b>…/<sort>.rec
//	QUEUE/<a>/<b>… · <sort>             queue/<a>/<b>…/<sort>.rec
//	LEASE/<a>/<b>… · <sort>             locks/leases/<a>/<b>…/<sort>.rec
//
// Streams:
//
//	EVENTS/<workspace> · <run>          events/<workspace>/<run>.ndjson
//	JOURNAL/<workspace> · <number>      journals/<workspace>/<number>.ndjson
//	LOG/<task>/<inputs>/<id> · <name>   executions/<task>/<inputs>/<id>/<name>
//
// The sum of a record that is a file, refstore.SumField, or its witness, refstore.WitnessField, is the file "<file>~sum".
//
// The suffix .rec distinguishes the record INDEX/a · b from the partition INDEX/a/b. Logs other than stdout.txt and
// stderr.txt lie in the folder log~ of the execution. The deletion of an execution's record deletes its logs.
//
// A record that is a folder can be entered, listed and, once it is empty, deleted; it has no value and one version. The
// folder also exists once there is an execution in it.
//
// In addition, locks/records/ holds the lock files of records, locks/named/ the locks, locks/claims the claims, and
// tmp/ the sessions.

const (
	executionValue = "status.beast2"
	otherLogs      = "log~"
	recordSuffix   = ".rec"
)

// shape is the form in which a partition keeps its records.
type shape int

const (
	fileShape    shape = iota // a file; side fields in the folder "<file>~"
	dirShape                  // a folder with a file of the value and side fields (fold.go), and files of texts
	virtualShape              // a folder that exists; no value, no fields
)

// place is the location of a partition.
type place struct {
	shape   shape
	dir     string // relative to the root, as all names
	suffix  string // suffix of the files
	paired  bool   // the sort key is "<folder>/<file>", cut at the last "/"
	grows   bool   // a longer value overwrites the old one in its file; readers check the sum, and read again
	aliases bool   // records may be other names of such files
	bare    bool   // no record has side fields or a sum, so nothing beside its file is looked for
}

// place looks a partition up in the table of records.
func (s *files) place(partition string) (place, error) {
	kind, rest, some := strings.Cut(partition, "/")
	segments := 0
	if some {
		segments = strings.Count(rest, "/") + 1
	}
	p := place{}
	top, want := "", 0
	tree := false
	switch kind {
	case "EXECUTION":
		top, want, p.shape = "executions", 2, dirShape
	case "TASKS":
		top, want, p.shape = "executions", 0, virtualShape
	case "INPUTS":
		top, want, p.shape = "executions", 1, virtualShape
	case "DATAFLOW":
		top, want, p.suffix = "dataflows", 1, ".beast2"
	case "RUNS":
		top, want, p.shape = "dataflows", 0, virtualShape
	case "WORKSPACE":
		top, want, p.suffix = "workspaces", 0, ".beast2"
	case "PACKAGE":
		top, want, p.paired = "packages", 0, true
	case "TOMBSTONE":
		top, want, p.suffix = "tombstones", 0, recordSuffix
	case "PIN":
		top, want, p.suffix = "pins", 0, recordSuffix
	case "CANCEL":
		top, want, p.suffix = "cancels", 0, recordSuffix
	case "APPROVAL":
		top, want, p.suffix = "approvals", 1, recordSuffix
	case "SETTINGS":
		top, want, p.suffix = "settings", 0, ".json"
	case "INDEX":
		top, tree = "index", true
	case "QUEUE":
		// Jobs and their entries hold their sums; the sums of QUEUE/names are in files beside.
		top, tree, p.grows, p.bare = "queue", true, strings.HasSuffix(partition, "/jobs"), s.bare && segments >= 2
		p.aliases = strings.HasSuffix(partition, "/ready") || strings.HasSuffix(partition, "/delayed")
	case "LEASE":
		top, tree = filepath.Join("locks", "leases"), true
	default:
		return place{}, fmt.Errorf("partition %q: %w: no records of this kind are kept", partition, refstore.ErrInvalid)
	}
	if tree {
		p.suffix = recordSuffix
	} else if segments != want {
		return place{}, fmt.Errorf("partition %q: %w: %d segments after the kind, want %d", partition, refstore.ErrInvalid, segments, want)
	}
	p.dir = top
	for some {
		var segment string
		segment, rest, some = strings.Cut(rest, "/")
		name := escape(segment)
		if tree && strings.HasSuffix(name, recordSuffix) { // it would look like a record's file
			name = strings.TrimSuffix(name, recordSuffix) + "%2E" + recordSuffix[1:]
		}
		p.dir += string(filepath.Separator) + name
	}
	return p, nil
}

// slot is the location of one record.
type slot struct {
	place
	key  refstore.Key
	path string // the file, or the folder
}

func (s *files) slot(key refstore.Key) (slot, error) {
	if err := key.Validate(); err != nil {
		return slot{}, err
	}
	p, err := s.place(key.Partition)
	if err != nil {
		return slot{}, err
	}
	path, ok := p.path(key.Sort)
	if !ok {
		return slot{}, fmt.Errorf("key %q: %w: the sort key is not <name>/<version>", key, refstore.ErrInvalid)
	}
	return slot{place: p, key: key, path: path}, nil
}

func (p place) path(sort string) (string, bool) {
	dir := p.dir
	if p.paired {
		i := strings.LastIndexByte(sort, '/')
		if i < 0 {
			return "", false
		}
		dir += string(filepath.Separator) + escape(sort[:i])
		sort = sort[i+1:]
	}
	return dir + string(filepath.Separator) + escape(sort) + p.suffix, true
}

// value is the path of the file that holds the value.
func (s slot) value() string {
	if s.shape == dirShape {
		return s.path + string(filepath.Separator) + executionValue
	}
	return s.path
}

// fields is the folder that holds the side fields.
func (s slot) fields() string {
	if s.shape == dirShape {
		return s.path
	}
	return s.path + "~"
}

// hasFields tells whether the record has a folder of side fields.
func hasFields(s *Store, sl slot) bool { return !sl.bare && s.files.exists(sl.fields()) == nil }

// field is the file of a side field. The fields stdout.txt and stderr.txt of an execution are its logs: short logs come
// with the record, in one rename.
func (s slot) field(name string) string {
	if s.shape == fileShape && (name == refstore.SumField || name == refstore.WitnessField) {
		return s.path + sumSuffix
	}
	return s.fields() + string(filepath.Separator) + escapeBytes(name) // MaxField bytes fit in a name, escaped or not
}

// streamPlace is the location of a partition's streams. The file of a stream is in dir if own has its sort key, else in
// rest.
type streamPlace struct {
	dir    string
	suffix string
	own    []string
	rest   string
}

// streamKind looks a kind up in the table of streams. It returns the folder of the kind's partitions, and the number of
// segments after the kind.
func (s *files) streamKind(kind string) (dir string, segments int, err error) {
	switch kind {
	case "EVENTS":
		return "events", 1, nil
	case "JOURNAL":
		return "journals", 1, nil
	case "LOG":
		return "executions", 3, nil
	}
	return "", 0, fmt.Errorf("partition %q: %w: no streams of this kind are kept", kind, refstore.ErrInvalid)
}

// streamPlace looks a partition up in the table of streams.
func (s *files) streamPlace(partition string) (streamPlace, error) {
	segments := strings.Split(partition, "/")
	kind, segments := segments[0], segments[1:]
	dir, want, err := s.streamKind(kind)
	if err != nil {
		return streamPlace{}, err
	}
	if len(segments) != want {
		return streamPlace{}, fmt.Errorf("partition %q: %w: %d segments after the kind, want %d", partition, refstore.ErrInvalid, len(segments), want)
	}
	for _, segment := range segments {
		dir += string(filepath.Separator) + escape(segment)
	}
	if kind == "EVENTS" || kind == "JOURNAL" {
		return streamPlace{dir: dir, suffix: ".ndjson", rest: dir}, nil
	}
	return streamPlace{dir: dir, own: []string{"stderr.txt", "stdout.txt"}, rest: dir + string(filepath.Separator) + otherLogs}, nil
}

func (s *files) streamPath(key refstore.Key) (string, error) {
	if err := key.Validate(); err != nil {
		return "", err
	}
	p, err := s.streamPlace(key.Partition)
	if err != nil {
		return "", err
	}
	for _, own := range p.own {
		if key.Sort == own {
			return p.dir + string(filepath.Separator) + own, nil
		}
	}
	return p.rest + string(filepath.Separator) + escape(key.Sort) + p.suffix, nil
}
