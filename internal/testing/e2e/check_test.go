//go:build linux

package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/events/eventstest"
	"e3/internal/format/record"
	"e3/internal/format/value"
	hostprocess "e3/internal/host/process"
	"e3/internal/insight/runview"
	"e3/internal/jobs/approval"
	"e3/internal/repo"
	"e3/internal/settings"
	"e3/objectstore"
	"e3/objectstore/tree"
	"e3/refstore"
)

// A checker looks at every file of a repository in which nothing runs and collects what is
// wrong: bytes that are not what their name says, references to what is not there, records
// that do not decode, executions that pretend to run, temporary files, histories with gaps.
type checker struct {
	root    string
	repo    *repo.Repo
	objects map[string]bool // hash → content is right
	reached map[string]bool // objects that something names
	whole   map[string]bool // objects that were found to be there with all below them
	known   map[string]bool // ids of the executions
	pruned  map[string]bool // ids that tombstones tell of
	weak    bool            // what is looked at may be gone
	wrong   []string

	tolerated
}

// tolerated is what a test has done that leaves less than a whole repository, by design.
type tolerated struct {
	// Bytes were damaged by hand that nothing refers to: objects that no record names, records of executions that no
	// run names.
	torn bool
	// Garbage was collected, or something imported: what the snapshots of runs name may be gone.
	collected bool
	// Executions were pruned: a run that found one just before names it.
	pruning bool
	// Processes were killed, and no other process has cleaned up: runs and executions have no end, files that they
	// were making are left.
	killed bool
	// Processes have lost their leases: there are executions of which only is known that they can have no success any
	// more.
	fenced bool
}

// check fails the test if the repository is not whole.
func check(t testing.TB, root string) {
	t.Helper()
	checkBut(t, root, tolerated{})
}

// checkTorn is check after bytes that nothing refers to were damaged by hand.
func checkTorn(t testing.TB, root string) {
	t.Helper()
	checkBut(t, root, tolerated{torn: true})
}

// checkBut is check after something that leaves a repository less than whole. It returns the objects that are there
// and those that are needed.
func checkBut(t testing.TB, root string, but tolerated) (objects, reached map[string]bool) {
	t.Helper()
	c := &checker{root: root, tolerated: but}
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	return c.objects, c.reached
}

func (c *checker) run() error {
	r, err := repo.Open(context.Background(), c.root, repo.Options{})
	if err != nil {
		return err
	}
	defer r.Close()
	c.repo, c.objects, c.known, c.pruned = r, map[string]bool{}, map[string]bool{}, map[string]bool{}
	c.reached, c.whole = map[string]bool{}, map[string]bool{}
	c.folders()
	c.storedObjects()
	c.tombstones()
	c.executions()
	c.packages()
	c.workspaces()
	c.runs()
	c.events()
	c.pins()
	c.cancels()
	c.blocks()
	c.settings()
	c.index()
	if !c.killed {
		c.leftovers()
	}
	if len(c.wrong) > 0 {
		return fmt.Errorf("repository %s is not whole:\n  %s", c.root, strings.Join(c.wrong[:min(len(c.wrong), 20)], "\n  "))
	}
	return nil
}

// folders demands that nothing lies in the repository that has no place there.
func (c *checker) folders() {
	entries, err := os.ReadDir(c.root)
	if err != nil {
		c.fault("%v", err)
	}
	known := []string{".gitignore", "format.json", "format.copy", "objects", "packages", "workspaces", "executions", "dataflows", "events", "journals", "settings", "tombstones", "pins", "cancels", "approvals", "queue", "index", "locks", "tmp"}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			c.fault("%s is no part of a repository", e.Name())
		}
	}
}

func (c *checker) fault(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// files calls visit for each file below a folder of the repository, with its path from there.
func (c *checker) files(folder string, visit func(rel string, info fs.FileInfo)) {
	top := filepath.Join(c.root, folder)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && strings.HasSuffix(path, "~sum") {
			c.sumBeside(strings.TrimSuffix(strings.TrimPrefix(path, c.root+"/"), "~sum"))
		} else if err == nil {
			visit(strings.TrimPrefix(path, top+"/"), info)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.fault("%s: %v", folder, err)
	}
}

func (c *checker) readFile(folder, rel string) []byte {
	data, err := readPart(c.root, folder+"/"+rel)
	if err != nil {
		c.fault("%v", err)
		return nil
	}
	data, _ = c.withoutSum(folder+"/"+rel, data)
	return data
}

// storedObjects hashes every object again.
func (c *checker) storedObjects() {
	c.files("objects", func(rel string, info fs.FileInfo) {
		if strings.HasPrefix(rel, "lock-") {
			return
		}
		name := strings.ReplaceAll(rel, "/", "")
		if _, err := objectstore.ParseHash(name); err != nil {
			c.fault("objects/%s is not an object", rel)
			return
		}
		if info.Mode()&^0o044 != 0o400 {
			c.fault("objects/%s has the mode %v", rel, info.Mode())
		}
		if got := c.hashFile("objects", rel); got == name {
			c.objects[name] = true
		} else if !c.torn {
			c.fault("objects/%s holds %s, %d bytes", rel, got, info.Size())
		}
	})
}

func (c *checker) hashFile(folder, rel string) string {
	f, err := os.Open(filepath.Join(c.root, folder, rel))
	if err != nil {
		c.fault("%v", err)
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		c.fault("%v", err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// object demands that an object is there and right.
func (c *checker) object(where, hash string) bool {
	switch {
	case c.objects[hash]:
		c.reached[hash] = true
	case !c.weak:
		c.fault("%s names the object %q, which is missing or wrong", where, hash)
	}
	return c.objects[hash]
}

// once looks at an object with all below it, unless that was done and had to be there.
func (c *checker) once(how, hash string, look func()) {
	if c.whole[how+hash] {
		return
	}
	look()
	c.whole[how+hash] = !c.weak
}

// mayBeGone looks at something that may be gone.
func (c *checker) mayBeGone(look func()) {
	was := c.weak
	c.weak = true
	look()
	c.weak = was
}

// content returns an object's bytes, nil after a fault.
func (c *checker) content(where, hash string) []byte {
	if !c.object(where, hash) {
		return nil
	}
	return c.readFile("objects", hash[:2]+"/"+hash[2:])
}

// tree demands that a directory object is there with everything below it.
func (c *checker) tree(where, hash string) {
	c.once("tree ", hash, func() {
		data := c.content(where, hash)
		if data == nil {
			return
		}
		entries, err := tree.Decode(data)
		if err != nil {
			c.fault("%s: %v", where, err)
		}
		for _, e := range entries {
			switch at := where + "/" + e.Name; e.Kind {
			case tree.KindDir:
				c.tree(at, e.Hash.String())
			case tree.KindFile:
				c.object(at, e.Hash.String())
			}
		}
	})
}

// dirs looks at the directory objects of a tree, without the content of its files.
func (c *checker) dirs(where, hash string) {
	data := c.content(where, hash)
	if data == nil {
		return
	}
	entries, err := tree.Decode(data)
	if err != nil {
		c.fault("%s: %v", where, err)
	}
	for _, e := range entries {
		if e.Kind == tree.KindDir {
			c.dirs(where+"/"+e.Name, e.Hash.String())
		}
	}
}

func (c *checker) leaf(where string, l record.Leaf) {
	switch l.Kind {
	case record.LeafDir:
		c.tree(where, l.Hash)
	case record.LeafFile:
		c.object(where, l.Hash)
	case record.LeafNode:
		c.node(where, l.Hash)
	case record.LeafValue:
		if data := c.content(where, l.Hash); data != nil {
			if _, err := value.Decode(data); err != nil {
				c.fault("%s: %v", where, err)
			}
		}
	}
}

// node demands a node of a workspace's tree with all that it names.
func (c *checker) node(where, hash string) {
	c.once("node ", hash, func() {
		data := c.content(where, hash)
		if data == nil {
			return
		}
		node, err := record.DecodeNode(data)
		if err != nil {
			c.fault("%s: %v", where, err)
		}
		for _, e := range node {
			c.leaf(where+"."+e.Name, e.Leaf)
		}
	})
}

// nodes demands the nodes of a tree, without its datasets.
func (c *checker) nodes(where, hash string) {
	data := c.content(where, hash)
	if data == nil {
		return
	}
	node, err := record.DecodeNode(data)
	if err != nil {
		c.fault("%s: %v", where, err)
	}
	for _, e := range node {
		if e.Kind == record.LeafNode {
			c.nodes(where+"."+e.Name, e.Hash)
		}
	}
}

func (c *checker) pkg(where, hash string) {
	data := c.content(where, hash)
	if data == nil {
		return
	}
	pkg, err := record.DecodePackage(data)
	if err != nil {
		c.fault("%s: %v", where, err)
		return
	}
	for _, in := range pkg.Inputs {
		c.leaf(where+": input "+in.Name, in.Default)
	}
	for _, t := range pkg.Tasks {
		c.task(where+": task "+t.Name, t.Task)
	}
}

func (c *checker) task(where, hash string) *record.Task {
	data := c.content(where, hash)
	if data == nil {
		return nil
	}
	task, err := record.DecodeTask(data)
	if err != nil {
		c.fault("%s: %v", where, err)
	}
	return task
}

func (c *checker) packages() {
	c.files("packages", func(rel string, _ fs.FileInfo) {
		c.pkg("package "+rel, strings.TrimSuffix(string(c.readFile("packages", rel)), "\n"))
	})
}

func (c *checker) workspaces() {
	c.files("workspaces", func(rel string, _ fs.FileInfo) {
		if strings.Contains(rel, "~/") {
			return // what a shared one says of its deployment
		}
		where := "workspace " + strings.TrimSuffix(rel, ".beast2")
		ws, err := record.DecodeWorkspaceState(c.readFile("workspaces", rel))
		if err != nil {
			c.fault("%s: %v", where, err)
			return
		}
		if ws == nil {
			return // nothing is deployed
		}
		c.pkg(where, ws.PackageHash)
		c.node(where, ws.RootHash)
		if ws.CurrentRunID != "" {
			path := filepath.Join(c.root, "dataflows", strings.TrimSuffix(rel, ".beast2"), ws.CurrentRunID+".beast2")
			if _, err := os.Lstat(path); err != nil {
				c.fault("%s: its current run: %v", where, err)
			}
		}
	})
}

// runs looks at the run records; executions must have been looked at before.
func (c *checker) runs() {
	c.files("dataflows", func(rel string, _ fs.FileInfo) {
		where := "run " + rel
		if file, field, side := strings.Cut(rel, "~/"); side {
			if _, err := os.Lstat(filepath.Join(c.root, "dataflows", file)); err != nil && !c.killed {
				c.fault("%s: it is beside no record: %v", where, err)
			}
			switch field {
			case "provenance.beast2":
				if _, err := record.DecodeProvenance(c.readFile("dataflows", rel)); err != nil {
					c.fault("%s: %v", where, err)
				}
			case "events": // the number of the last event of an imported run
				if n, err := strconv.ParseInt(strings.TrimSuffix(string(c.readFile("dataflows", rel)), "\n"), 10, 64); err != nil || n < 1 {
					c.fault("%s: number %d, %v", where, n, err)
				}
			default:
				c.fault("%s: a run has no such field", where)
			}
			return
		}
		run, err := record.DecodeRun(c.readFile("dataflows", rel))
		if err != nil {
			c.fault("%s: %v", where, err)
			return
		}
		if rel != run.WorkspaceName+"/"+run.RunID+".beast2" {
			c.fault("%s: it names %s/%s", where, run.WorkspaceName, run.RunID)
		}
		snapshot := c.node
		if c.collected {
			snapshot = c.nodes
		}
		snapshot(where+": inputs", run.InputSnapshot)
		if run.OutputSnapshot != "" {
			snapshot(where+": outputs", run.OutputSnapshot)
		}
		for t := range run.Tasks.All() {
			if !c.known[t.ExecutionID] && !(c.pruning && c.pruned[t.ExecutionID]) {
				c.fault("%s: the execution %s of %s does not exist", where, t.ExecutionID, t.Task)
			}
		}
	})
}

// executions looks at every folder executions/<task>/<inputs>/<id>.
func (c *checker) executions() {
	ids, err := filepath.Glob(filepath.Join(c.root, "executions", "*", "*", "*"))
	if err != nil {
		c.fault("%v", err)
	}
	for _, path := range ids {
		rel, _ := filepath.Rel(filepath.Join(c.root, "executions"), path)
		c.execution(rel)
	}
}

// executionFiles are the files that an execution may have.
var executionFiles = []string{
	"status.beast2", "output", "stdout.txt", "stderr.txt", "detail.beast2", "rejected.beast2", "metadata.beast2", "provenance.beast2", "signature.beast2", "log~", "job",
}

func (c *checker) execution(rel string) {
	where := "execution " + rel
	has := map[string]bool{}
	entries, err := os.ReadDir(filepath.Join(c.root, "executions", rel))
	if err != nil {
		c.fault("%v", err)
	}
	for _, e := range entries {
		if has[e.Name()] = true; !slices.Contains(executionFiles, e.Name()) {
			c.fault("%s: %s is no part of it", where, e.Name())
		}
	}
	if data, err := os.ReadFile(filepath.Join(c.root, "executions", rel, "status.beast2")); err == nil {
		within, err := parts(data)
		if err != nil && !c.torn {
			c.fault("%s: %v", where, err)
		}
		for name := range within {
			if has[name] && name != "status.beast2" || !slices.Contains(executionFiles, name) {
				c.fault("%s: %s is no part of it, or there twice", where, name)
			}
			has[name] = true
		}
	}
	if has["detail.beast2"] && c.bare("executions/"+rel+"/detail.beast2") {
		has["detail.beast2"] = false // it only has the sums
	}
	if !has["status.beast2"] && c.killed {
		return // logs come first, then side fields, and the value last (refstore.Store.Put): gc removes what was cut off between
	}
	parts := strings.Split(rel, "/")
	task, inputs, id := parts[0], parts[1], parts[2]
	s, err := record.DecodeStatus(c.readFile("executions", rel+"/status.beast2"))
	if err != nil {
		if !c.torn {
			c.fault("%s: %v", where, err)
		}
		return
	}
	c.known[id] = true
	if s.ExecutionID != id {
		c.fault("%s: its record names %s", where, s.ExecutionID)
	}
	hashes := make([]objectstore.Hash, len(s.InputHashes))
	for i, h := range s.InputHashes {
		if hashes[i], err = objectstore.ParseHash(h); err != nil {
			c.fault("%s: %v", where, err)
		}
	}
	if executions.InputsHash(hashes).String() != inputs {
		c.fault("%s: its inputs do not hash to its folder", where)
	}
	if c.fenced && s.State == record.Error && (strings.HasSuffix(s.Message, "(stale execution)") && !has["detail.beast2"] || c.gaveUp(rel)) {
		// its purpose is unknown
	} else if c.sealed(rel, has); !has["detail.beast2"] {
		c.fault("%s: it has no detail", where)
	} else if d, err := record.DecodeDetail(c.readFile("executions", rel+"/detail.beast2")); err != nil {
		if !c.torn {
			c.fault("%s: %v", where, err)
		}
	} else if d.Attempt < 1 || d.Task == "" {
		c.fault("%s: detail %+v", where, *d)
	}
	c.marks(where, rel, id, s.State, has)
	obj := c.task(where+": task", task)
	if obj != nil {
		c.mayBeGone(func() {
			for i, in := range obj.Inputs[:min(len(obj.Inputs), len(s.InputHashes))] {
				switch at := where + ": input " + in.Name; {
				case in.Kind == record.KindDir:
					c.dirs(at, s.InputHashes[i])
				case in.Made():
					c.object(at, s.InputHashes[i])
				}
			}
		})
	}
	switch s.State {
	case record.Running:
		if p, err := hostprocess.Lookup(int(s.PID)); !c.killed && (err != nil || int64(p.StartTime) != s.PIDStartTime) {
			c.fault("%s: it is running, but its process %d is not", where, s.PID)
		}
	case record.Success:
		c.output(where+": output", obj, s.OutputHash)
		if got := c.readFile("executions", rel+"/output"); string(got) != s.OutputHash+"\n" {
			c.fault("%s: its output file says %q, its record %s", where, got, s.OutputHash)
		}
	}
	// An output beside anything else is left of a success for whose record there was no room.
}

// gaveUp reports whether a process has given up an execution that had no record yet.
func (c *checker) gaveUp(rel string) bool {
	data, err := readPart(c.root, "executions/"+rel+"/detail.beast2")
	if err != nil {
		return false
	}
	data, _ = c.withoutSum("executions/"+rel+"/detail.beast2", data)
	d, err := record.DecodeDetail(data)
	return err == nil && d.Attempt == 0 && d.Reason != ""
}

// output looks at what an execution of a task has made.
func (c *checker) output(where string, task *record.Task, hash string) {
	if task != nil && (task.Output.Multi || task.Output.Entries[0].Kind == record.KindDir) {
		c.tree(where, hash)
	} else {
		c.object(where, hash)
	}
}

// marks looks at what was put beside an execution: that it was rejected, where it was imported from.
func (c *checker) marks(where, rel, id string, state record.State, has map[string]bool) {
	if has["rejected.beast2"] {
		if _, err := record.DecodeRejection(c.readFile("executions", rel+"/rejected.beast2")); err != nil || state != record.Success {
			c.fault("%s: %v and rejected: %v", where, state, err)
		}
	}
	if has["metadata.beast2"] != has["provenance.beast2"] {
		c.fault("%s: of metadata and provenance there is only one", where)
	}
	if !has["provenance.beast2"] {
		return
	}
	p, err := record.DecodeProvenance(c.readFile("executions", rel+"/provenance.beast2"))
	if err != nil || len(p.Steps) == 0 {
		c.fault("%s: its provenance: %+v, %v", where, p, err)
		return
	}
	m, err := record.DecodeMetadata(c.readFile("executions", rel+"/metadata.beast2"))
	if err != nil || m.ExecutionID != id || m.Origin.SourceRepo != p.Steps[len(p.Steps)-1].Source() {
		c.fault("%s: its metadata: %+v, %v", where, m, err)
	}
}

// tombstones looks at what was pruned. What a tombstone of the future names, which pruning that was cut off leaves, is
// kept for a process that may have found it.
func (c *checker) tombstones() {
	c.files("tombstones", func(rel string, _ fs.FileInfo) {
		task, ok := strings.CutSuffix(rel, ".rec")
		stones, err := record.DecodeTombstones(c.readFile("tombstones", rel))
		if _, bad := objectstore.ParseHash(task); bad != nil || !ok || err != nil {
			c.fault("tombstones/%s: %v", rel, err)
			return
		}
		for _, s := range stones {
			c.pruned[s.ExecutionID] = true
			if s.PrunedAt.Before(time.Now()) {
				continue
			}
			where := "tombstone of " + s.ExecutionID
			c.mayBeGone(func() {
				obj := c.task(where+": task", task)
				if s.OutputHash != "" {
					c.output(where+": output", obj, s.OutputHash)
				}
			})
		}
	})
}

// pins looks at the pins. What one keeps may be gone, as it goes by the id.
func (c *checker) pins() {
	c.files("pins", func(rel string, _ fs.FileInfo) {
		id, ok := strings.CutSuffix(rel, ".rec")
		pin, err := record.DecodePin(c.readFile("pins", rel))
		if _, bad := executions.ParseID(id); bad != nil || !ok || err != nil {
			c.fault("pins/%s: %v, %v", rel, bad, err)
			return
		}
		if _, ok := executions.ParseKey(pin.Task + "/" + pin.Inputs); !ok {
			c.fault("pins/%s: it names no key", rel)
		}
		c.mayBeGone(func() { c.task("pin of "+id, pin.Task) })
	})
}

// cancels looks at the requests to cancel a run. One that came too late may be left.
func (c *checker) cancels() {
	c.files("cancels", func(rel string, _ fs.FileInfo) {
		if _, err := record.DecodeCancellation(c.readFile("cancels", rel)); err != nil || !strings.HasSuffix(rel, ".rec") {
			c.fault("cancels/%s: %v", rel, err)
		}
	})
}

// blocks looks at what waits for approval.
func (c *checker) blocks() {
	c.files("approvals", func(rel string, _ fs.FileInfo) {
		ws, name, _ := strings.Cut(strings.TrimSuffix(rel, ".rec"), "/")
		_, err := approval.Decode(refstore.Record{
			Key: refstore.Key{Partition: approval.Partition(ws), Sort: strings.ReplaceAll(name, "%2F", "/")}, Value: c.readFile("approvals", rel),
		})
		if err != nil || !strings.HasSuffix(rel, ".rec") {
			c.fault("approvals/%s: %v", rel, err)
		}
	})
}

func (c *checker) settings() {
	c.files("settings", func(rel string, _ fs.FileInfo) {
		if _, err := settings.Decode(c.readFile("settings", rel)); err != nil || rel != "repository.json" {
			c.fault("settings/%s: %v", rel, err)
		}
	})
}

// events looks at the history of every run: whole lines, numbers without a gap, every step one that the diagram has,
// an end that agrees with them.
func (c *checker) events() {
	c.files("events", func(rel string, _ fs.FileInfo) {
		ws, id := filepath.Split(strings.TrimSuffix(rel, ".ndjson"))
		data := c.readFile("events", rel)
		if !bytes.HasSuffix(data, []byte("\n")) && !c.killed {
			c.fault("events of %s: the last line is torn", rel)
		}
		var m eventstest.Machine
		f := runview.NewFold()
		for e, err := range events.Read(context.Background(), c.repo.Records, strings.TrimSuffix(ws, "/"), id) {
			if err == nil {
				err = m.Next(&e.Event)
			}
			if err != nil {
				c.fault("events of %s: %v", rel, err)
				return
			}
			f.Add(&e.Event)
			if d := e.Data; d != nil {
				c.mayBeGone(func() { c.nodes("events of "+rel, d.Inputs); c.nodes("events of "+rel, d.Outputs) })
			}
		}
		c.told(rel, f)
		if m.Ended() == "" && !c.killed {
			c.fault("events of %s: they have no end", rel)
		}
	})
}

// told demands that the events of a run that has ended say what its record says. They do not name tasks that share
// one.
func (c *checker) told(rel string, f *runview.Fold) {
	file := strings.TrimSuffix(rel, ".ndjson") + ".beast2"
	if _, err := os.Lstat(filepath.Join(c.root, "dataflows", file)); err != nil {
		return // the record is gone
	}
	run, err := record.DecodeRun(c.readFile("dataflows", file))
	if err != nil || run.State == record.RunRunning {
		return // of an import, or said elsewhere
	}
	tasks := map[string]record.TaskExecution{}
	for t := range run.Tasks.All() {
		tasks[t.Task] = t
	}
	ended := f.State() != record.RunRunning
	if ended && (f.State() != run.State || f.Summary() != run.Summary) {
		c.fault("events of %s: folded they are %v, %+v; on record is %v, %+v", rel, f.State(), f.Summary(), run.State, run.Summary)
	}
	for t := range f.Executions().All() {
		if tasks[t.Task] != t {
			c.fault("events of %s: they give %s the execution %s (cached %v), the record %+v", rel, t.Task, t.ExecutionID, t.Cached, tasks[t.Task])
		}
	}
}

// index decodes what is derived: it may be missing, but what is there must be readable.
func (c *checker) index() {
	decoders := map[string]func([]byte) error{
		"links":     func(b []byte) error { _, err := record.DecodeLink(b); return err },
		"proofs":    func(b []byte) error { _, err := record.DecodeProof(b); return err },
		"durations": func(b []byte) error { _, err := record.DecodeDurations(b); return err },
	}
	for kind, decode := range decoders {
		c.files("index/"+kind, func(rel string, _ fs.FileInfo) {
			if err := decode(c.readFile("index/"+kind, rel)); err != nil {
				c.fault("index/%s/%s: %v", kind, rel, err)
			}
		})
	}
}

// leftovers demands that no temporary file is left.
func (c *checker) leftovers() {
	entries, err := leftovers(c.root)
	if err != nil {
		c.fault("%v", err)
	}
	for _, e := range entries {
		c.fault("tmp/%s is left", e.Name())
	}
}

// leftovers returns what a repository, and its scratch in the home of a project, have in their folders of temporary files, apart from the folders of failed tasks, which the
// next start clears, what is kept for later processes (checkouts, images and a reserve of space), and lock files of sessions
// that have ended with unsynced writes, which have no folder.
func leftovers(root string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(filepath.Join(root, "tmp"))
	scratch, _ := filepath.Glob(filepath.Join(filepath.Dir(root), "state", "home", ".cache", "e3", "*", "scratch", "tmp"))
	for _, dir := range scratch {
		more, bad := os.ReadDir(dir)
		entries, err = append(entries, more...), errors.Join(err, bad)
	}
	return slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "failed-") || strings.HasPrefix(e.Name(), "checkouts-") || strings.HasPrefix(e.Name(), "images-") ||
			e.Name() == "reserve" || strings.HasPrefix(e.Name(), "scratch-") || endedUnsynced(root, e.Name())
	}), err
}

// endedUnsynced reports whether a file in tmp/ is what a session has left that ended with unsynced writes.
func endedUnsynced(root, file string) bool {
	session, ok := strings.CutSuffix(file, ".lock")
	if !ok || !strings.HasPrefix(session, "session-") {
		return false
	}
	_, err := os.Lstat(filepath.Join(root, "tmp", session))
	return errors.Is(err, fs.ErrNotExist)
}

// finished are the executions that had ended at some moment: the folder below executions/,
// and in it the content of each file.
type finished map[string]map[string]string

// rememberFinished reads all executions that have ended. Those that cannot be read have not.
func rememberFinished(t testing.TB, root string) finished {
	t.Helper()
	list := finished{}
	paths, err := filepath.Glob(filepath.Join(root, "executions", "*", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(filepath.Join(path, "status.beast2"))
		if err != nil {
			continue
		}
		within, err := parts(data)
		if err != nil {
			continue
		}
		if s, err := record.DecodeStatus(within["status.beast2"]); err != nil || s.State == record.Running {
			continue
		}
		rel, _ := filepath.Rel(root, path)
		if list[rel], err = readFolder(path); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

func readFolder(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	return files, err
}

// successes are the keys, "<task>/<inputs>", that had an answer.
func (f finished) successes(t testing.TB) map[string]bool {
	keys := map[string]bool{}
	for rel, files := range f {
		for path, data := range files {
			if filepath.Base(path) != "status.beast2" {
				continue
			}
			within, err := parts([]byte(data))
			if err != nil {
				t.Fatal(err)
			}
			s, err := record.DecodeStatus(within["status.beast2"])
			if err != nil {
				t.Fatal(err)
			}
			if s.State == record.Success {
				keys[strings.TrimPrefix(filepath.Dir(rel), "executions/")] = true
			}
		}
	}
	return keys
}

// unchanged fails the test if one of the executions is not what it was.
func (f finished) unchanged(t testing.TB, root string) {
	t.Helper()
	for rel, was := range f {
		is, err := readFolder(filepath.Join(root, rel))
		if err != nil {
			t.Errorf("%s was finished and cannot be read now: %v", rel, err)
			continue
		}
		for path, data := range was {
			if is[path] != data {
				t.Errorf("%s of a finished execution has changed", path)
			}
		}
		if len(is) != len(was) {
			t.Errorf("%s was finished and has %d files now, had %d", rel, len(is), len(was))
		}
	}
}
