package exportimport

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"e3/executions"
	"e3/internal/format/notation"
	"e3/internal/format/signature"
	"e3/internal/pkgref"
	"e3/objectstore"
)

// part is the kind of an entry of a zip. The constants have the order of the zip.
type part int

const (
	objectPart part = iota
	executionPart
	runPart
	eventsPart
	packagePart
	workspacePart
	provenancePart
	sumsPart
	signaturePart
	unknownPart
)

// Names of the files of an execution, in the order of the zip.
const (
	fileDetail    = "detail.beast2"
	fileOutput    = "output"
	fileRejected  = "rejected.beast2"
	fileSignature = "signature.beast2"
	fileStatus    = "status.beast2"
	fileStderr    = "stderr.txt"
	fileStdout    = "stdout.txt"
)

const provenanceEntry = "provenance.beast2"

// sumsEntry lists the entries of the zip, in the format of sha256sum.
const sumsEntry = "SHA256SUMS"

// Bounds of entries that are read into memory, in bytes (doc/format.md, "The zip").
const (
	maxRun        = 32 << 20 // some 500,000 tasks
	maxSmall      = 1 << 20  // detail, rejection, package and workspace references
	maxProvenance = 64 << 20
	maxLine       = 1 << 20 // of an event
)

// An entryName is a parsed name of an entry. Which fields are set depends on the part.
type entryName struct {
	part      part
	object    objectstore.Hash
	key       executions.Key
	id        string // of the execution or run
	file      string // of the execution
	workspace string
	pkg       string
	version   string
}

// parseName parses the name of an entry. A name of an unknown form is an unknownPart. An error means that the form is
// known and the content is invalid.
func parseName(name string) (entryName, error) {
	top, rest, _ := strings.Cut(name, "/")
	segments := strings.Split(rest, "/")
	switch {
	case name == provenanceEntry:
		return entryName{part: provenancePart}, nil
	case name == sumsEntry:
		return entryName{part: sumsPart}, nil
	case name == signature.EntryName:
		return entryName{part: signaturePart}, nil
	case top == "objects" && len(segments) == 2:
		// The reference's objects have a suffix.
		h, err := objectstore.ParseHash(segments[0] + strings.TrimSuffix(segments[1], ".beast2"))
		if err != nil || len(segments[0]) != 2 {
			return entryName{}, errors.New("it is not the name of an object")
		}
		return entryName{part: objectPart, object: h}, nil
	case top == "executions" && len(segments) == 4:
		return parseExecution(segments)
	case top == "dataflows" && len(segments) == 2:
		return parseRun(runPart, segments, ".beast2")
	case top == "events" && len(segments) == 2:
		return parseRun(eventsPart, segments, ".ndjson")
	case top == "packages" && (len(segments) == 2 || len(segments) == 3 && strings.HasPrefix(segments[0], "@")):
		return parsePackage(rest)
	case top == "workspaces" && len(segments) == 1:
		ws, ok := strings.CutSuffix(rest, ".beast2")
		if !ok {
			break
		}
		return entryName{part: workspacePart, workspace: ws}, checkName("workspace", ws)
	}
	return entryName{part: unknownPart}, nil
}

// parsePackage reads <name>/<version>. A name from the reference may have a scope, @acme/err, and is then two
// folders.
func parsePackage(rest string) (entryName, error) {
	name, version, _ := pkgref.SplitKey(rest)
	if err := checkPackage(name, version); err != nil {
		return entryName{}, err
	}
	return entryName{part: packagePart, pkg: name, version: version}, nil
}

func parseExecution(segments []string) (entryName, error) {
	key, ok := executions.ParseKey(segments[0] + "/" + segments[1])
	if !ok {
		return entryName{}, errors.New("its folders are not a task hash and an inputs hash")
	}
	if _, err := executions.ParseID(segments[2]); err != nil {
		return entryName{}, fmt.Errorf("execution: %w", err)
	}
	n := entryName{part: executionPart, key: key, id: segments[2], file: segments[3]}
	switch n.file {
	case fileDetail, fileOutput, fileRejected, fileSignature, fileStatus, fileStderr, fileStdout:
		return n, nil
	}
	return entryName{part: unknownPart}, nil
}

func parseRun(p part, segments []string, suffix string) (entryName, error) {
	id, ok := strings.CutSuffix(segments[1], suffix)
	if !ok {
		return entryName{part: unknownPart}, nil
	}
	if _, err := executions.ParseID(id); err != nil {
		return entryName{}, fmt.Errorf("run: %w", err)
	}
	return entryName{part: p, id: id, workspace: segments[0]}, checkName("workspace", segments[0])
}

// String is the name of the entry.
func (n *entryName) String() string {
	switch n.part {
	case objectPart:
		text := n.object.String()
		return "objects/" + text[:2] + "/" + text[2:]
	case executionPart:
		return "executions/" + n.key.String() + "/" + n.id + "/" + n.file
	case runPart:
		return "dataflows/" + n.workspace + "/" + n.id + ".beast2"
	case eventsPart:
		return "events/" + n.workspace + "/" + n.id + ".ndjson"
	case packagePart:
		return "packages/" + n.pkg + "/" + n.version
	case workspacePart:
		return "workspaces/" + n.workspace + ".beast2"
	case provenancePart:
		return provenanceEntry
	case sumsPart:
		return sumsEntry
	case signaturePart:
		return signature.EntryName
	}
	return ""
}

// checkPackage refuses an invalid name or version of a package.
func checkPackage(name, version string) error {
	scope, rest, scoped := strings.Cut(name, "/")
	if !scoped || !strings.HasPrefix(scope, "@") {
		scope, rest = "@", name
	}
	return errors.Join(checkName("scope", scope), checkName("package", rest), checkName("version", version))
}

// maxForeign bounds a name that only the reference could have given.
const maxForeign = 128

// checkName refuses an invalid name of a workspace, package or version. The reference allows more than e3: any
// printable text that is one segment of a path.
func checkName(what, name string) error {
	if notation.ValidName(name) || what == "version" && notation.ValidVersion(name) {
		return nil
	}
	if name == "" || len(name) > maxForeign || !utf8.ValidString(name) || strings.ContainsAny(name, `/\%~`) || strings.ContainsAny(name[:1], ".-") ||
		strings.IndexFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 || strings.TrimSpace(name) != name {
		return fmt.Errorf("%q cannot be the name of a %s", shorten(name), what)
	}
	return nil
}
