package exportimport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"time"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/moment"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/format/zipfile"
	"e3/internal/insight/runview"
	"e3/internal/settings"
	"e3/objectstore"
	"e3/workspace"
)

// check reads all of the zip except the content of objects, and writes nothing.
func (m *importer) check(ctx context.Context) error {
	if err := m.directory(ctx); err != nil {
		return err
	}
	if err := m.vouch(ctx); err != nil {
		return err
	}
	if m.res.Verdict.Trust != settings.Unsigned {
		m.sums.close() // from here on, reading an entry that was not in the signed list is an error
	}
	if m.pkg.Name == "" {
		return refused("", "it holds no package, so it is no export of e3")
	}
	if err := m.consistent(); err != nil {
		return err
	}
	succeeded := m.succeeded()
	err := m.eachExecution(ctx, func(in *incoming) error {
		if st := in.Status.State; succeeded[in.id] && st != record.Success && st != record.Running {
			return refused(in.entry(), "the run %s says that it was a success, and it is on record as %s", m.run.RunID, st)
		}
		if in.Status.State == record.Running {
			m.note("execution %s had not ended when it was exported", in.id)
		}
		m.res.Executions++
		// A damaged log is found here, before any execution becomes visible.
		for _, open := range []func() (io.ReadCloser, int64, error){in.Stdout, in.Stderr} {
			if err := drain(open); err != nil {
				return err
			}
		}
		return nil
	})
	m.checked = true
	m.sums.close()
	return err
}

// drain reads a log to its end.
func drain(open func() (io.ReadCloser, int64, error)) error {
	if open == nil {
		return nil
	}
	r, _, err := open()
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}

// directory reads the names of the entries, and the records that a zip has only once.
func (m *importer) directory(ctx context.Context) error {
	var (
		objects  objectstore.HashSet
		repeated = map[objectstore.Hash]firstCopy{}
		groups   = groups{seed: maphash.MakeSeed()}
	)
	for e, err := range m.zip.Entries() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if e.IsDir() {
			continue
		}
		n, err := parseName(e.Name)
		if err != nil {
			return refused(e.Name, "%w", err)
		}
		if err := notAhead(n.id); err != nil {
			return refused(e.Name, "%w", err)
		}
		m.res.Content += e.Size
		switch n.part {
		case objectPart:
			m.stored += e.Size
			if !objects.Add(n.object) {
				repeated[n.object] = firstCopy{}
			}
		case executionPart:
			groups.add(&n)
		case unknownPart:
			m.note("entry %q is none that this e3 knows; it is passed over", shorten(e.Name))
		default:
			if err := m.single(&n, e); err != nil {
				return err
			}
		}
	}
	m.res.Objects = objects.Len()
	if err := m.repeats(repeated); err != nil {
		return err
	}
	return m.scattered(&groups)
}

// mostAhead bounds the lead of the clock that made an id over this machine's clock.
const mostAhead = 24 * time.Hour

// notAhead refuses an id from the far future: every result until then would count as older, and e3 takes the latest.
// Ids are made by the system's clock.
func notAhead(id string) error {
	if id == "" {
		return nil
	}
	at, err := executions.ParseID(id)
	if ahead := time.Until(at); err == nil && ahead > mostAhead {
		return fmt.Errorf("the id %s was drawn by a clock that is %d hours ahead of this one; more than a day is refused", id, int64(ahead/time.Hour))
	}
	return nil
}

// groups are the executions of a zip: one hash for each run of consecutive files of one execution, 8 bytes each.
type groups struct {
	seed maphash.Seed
	last string // the execution of the previous file
	list []uint64
}

// add adds a file of an execution. If the file belongs to another execution than the previous file, begins is true and
// sum is the hash of the new execution.
func (g *groups) add(n *entryName) (sum uint64, begins bool) {
	execution := n.key.String() + "/" + n.id
	if execution == g.last {
		return 0, false
	}
	g.last = execution
	sum = maphash.String(g.seed, execution)
	g.list = append(g.list, sum)
	return sum, true
}

// scattered refuses executions whose files are not consecutive. Other entries may lie between them.
func (m *importer) scattered(g *groups) error {
	slices.Sort(g.list)
	const enough = 64                     // so many different executions do not collide by chance
	twice := map[uint64]map[string]bool{} // by hash: the executions that have it
	for i := 1; i < len(g.list) && len(twice) < enough; i++ {
		if g.list[i] == g.list[i-1] {
			twice[g.list[i]] = map[string]bool{}
		}
	}
	if len(twice) == 0 {
		return nil
	}
	again := groups{seed: g.seed, list: g.list[:0]} // the list is no longer needed
	for e, err := range m.zip.Entries() {
		if err != nil {
			return err
		}
		n, err := parseName(e.Name)
		if err != nil || n.part != executionPart {
			continue
		}
		sum, begins := again.add(&n)
		met := twice[sum]
		if !begins || met == nil {
			continue
		}
		if met[again.last] {
			return refused(e.Name, "%w", errScattered)
		}
		met[again.last] = true // or, rarely, only the hashes are equal
	}
	return nil
}

// firstCopy is the first of several entries of an object.
type firstCopy struct {
	size int64
	crc  uint32
	met  bool
}

// repeats refuses an object with several different entries.
func (m *importer) repeats(repeated map[objectstore.Hash]firstCopy) error {
	if len(repeated) == 0 {
		return nil
	}
	for e, err := range m.zip.Entries() {
		if err != nil {
			return err
		}
		n, err := parseName(e.Name)
		if err != nil || n.part != objectPart {
			continue
		}
		first, ok := repeated[n.object]
		switch {
		case !ok:
		case !first.met:
			repeated[n.object] = firstCopy{size: e.Size, crc: e.CRC, met: true}
		case first.crc != e.CRC || first.size != e.Size:
			return refused(e.Name, "it is there twice, with other content")
		}
	}
	return nil
}

// single reads a record of which a zip has one.
func (m *importer) single(n *entryName, e zipfile.Entry) error {
	again := func(there bool) error {
		if there {
			return refused(e.Name, "there is more than one entry of its kind")
		}
		return nil
	}
	switch n.part {
	case packagePart:
		if err := again(m.pkg.Name != ""); err != nil {
			return err
		}
		data, err := m.read(e, maxSmall)
		if err != nil {
			return err
		}
		h, err := parseReference(data)
		if err != nil {
			return refused(e.Name, "%w", err)
		}
		m.pkg = workspace.PackageRef{Name: n.pkg, Version: n.version, Hash: h.String()}
	case workspacePart:
		if err := again(m.state != nil); err != nil {
			return err
		}
		return m.checkState(n, e)
	case runPart:
		if err := again(m.run != nil); err != nil {
			return err
		}
		return m.checkRun(n, e)
	case eventsPart:
		if err := again(m.events != nil); err != nil {
			return err
		}
		m.events = &eventsEntry{Entry: e}
		return m.checkEvents(n, e)
	case provenancePart:
		data, err := m.read(e, maxProvenance)
		if err != nil {
			return err
		}
		if err := m.origin.read(data); err != nil {
			var zip *ZipError
			if errors.As(err, &zip) {
				err = zip.Err
			}
			return refused(e.Name, "%w", err)
		}
		m.res.From, m.res.Source, m.res.Exported = m.origin.step.By, m.origin.step.Source(), moment.At(m.origin.step.At)
	}
	return nil // the signature is read last
}

// parseReference reads a hash with or without its newline.
func parseReference(data []byte) (objectstore.Hash, error) {
	if n := len(data); n > 0 && data[n-1] == '\n' {
		data = data[:n-1]
	}
	return objectstore.ParseHash(string(data))
}

func (m *importer) checkState(n *entryName, e zipfile.Entry) error {
	data, err := m.read(e, maxSmall)
	if err != nil {
		return err
	}
	state, err := record.DecodeWorkspaceState(data)
	if err != nil {
		return refused(e.Name, "%w", err)
	}
	if state == nil {
		return refused(e.Name, "nothing is deployed in the workspace")
	}
	for _, h := range []string{state.PackageHash, state.RootHash} {
		if _, err := objectstore.ParseHash(h); err != nil {
			return refused(e.Name, "%w", err)
		}
	}
	if err := checkPackage(state.PackageName, state.PackageVersion); err != nil {
		return refused(e.Name, "%w", err)
	}
	if state.CurrentRunID != "" {
		if _, err := executions.ParseID(state.CurrentRunID); err != nil {
			return refused(e.Name, "run: %w", err)
		}
	}
	m.state, m.stateOf = state, n.workspace
	return nil
}

func (m *importer) checkRun(n *entryName, e zipfile.Entry) error {
	data, err := m.read(e, maxRun)
	if err != nil {
		return err
	}
	run, err := record.DecodeRun(data)
	if err != nil {
		return refused(e.Name, "%w", err)
	}
	switch {
	case run.RunID != n.id:
		return refused(e.Name, "it is the record of run %q", shorten(run.RunID))
	case run.WorkspaceName != n.workspace:
		return refused(e.Name, "it is a run of workspace %q", shorten(run.WorkspaceName))
	}
	for _, h := range []string{run.InputSnapshot, run.OutputSnapshot} {
		if _, err := objectstore.ParseHash(h); err != nil && h != "" {
			return refused(e.Name, "snapshot: %w", err)
		}
	}
	for t := range run.Tasks.All() {
		if _, err := executions.ParseID(t.ExecutionID); err != nil {
			return refused(e.Name, "task %q: %w", shorten(t.Task), err)
		}
	}
	m.run = run
	return nil
}

// checkEvents reads the events of a run line by line.
func (m *importer) checkEvents(n *entryName, e zipfile.Entry) error {
	r, err := m.open(e)
	if err != nil {
		return err
	}
	defer r.Close()
	lines := bufio.NewReaderSize(r, maxLine)
	m.fold = runview.NewFold()
	for seq := int64(1); ; seq++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, io.EOF):
			return refused(e.Name, "its last line is cut off")
		case errors.Is(err, bufio.ErrBufferFull):
			return refused(e.Name, "line %d has more than %d bytes", seq, maxLine)
		case err != nil:
			return err
		}
		event, err := events.Parse(line)
		switch {
		case err != nil:
			return refused(e.Name, "line %d is no event: %q", seq, shorten(err.Error())) // the error quotes its input unchanged
		case event.Seq != seq:
			return refused(e.Name, "event %d is in line %d", event.Seq, seq)
		case event.Run != n.id:
			return refused(e.Name, "line %d is of run %q", seq, shorten(event.Run))
		}
		m.addEvent(event)
		m.events.bounds.Add(line)
	}
}

// vouch finds out who signed the zip, whether that suffices, and whether every entry matches the list of sums.
func (m *importer) vouch(ctx context.Context) error {
	digest := signature.NewManifest()
	sig, listed, err := m.vouchers()
	if err != nil {
		return err
	}
	lines := newLines()
	if sig != nil || listed != nil { // otherwise no list is needed for a comparison
		err := m.list(ctx, func(e *zipfile.Entry, content objectstore.Hash) error {
			digest.Add(e.Name, content)
			if !e.IsDir() && e.Name != sumsEntry {
				lines.add(e.Name, content)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	have, err := settings.Get(ctx, m.repo.Records)
	if err != nil {
		return err
	}
	m.res.Verdict, err = have.Decide(sig, digest.Sum(), m.opts.RequireSigned)
	if err != nil {
		return err
	}
	v := &m.res.Verdict
	if m.res.Trust, m.res.TrustedAs = v.Trust.String(), v.TrustedAs; v.Trust != settings.Unsigned {
		m.res.Signer = &runview.Signer{Key: v.Key.String(), Name: v.Name, Verified: true}
	}
	if listed != nil {
		if err := m.compareSums(ctx, listed, lines); err != nil {
			return err
		}
	}
	if sig == nil && len(have.TrustedKeys) > 0 {
		m.note("it is not signed, so its maker is unknown")
	}
	if m.origin.step.By == "" {
		m.origin.unknown(m.opts.File)
		m.res.Source = m.origin.step.Source()
	}
	m.origin.lead(m.repo.User, m.now, m.res.Verdict)
	return nil
}

// vouchers are the signature and the list of sums; nil for one that is missing.
func (m *importer) vouchers() (sig *signature.Signature, listed *zipfile.Entry, err error) {
	for e, err := range m.zip.Entries() {
		if err != nil {
			return nil, nil, err
		}
		switch e.Name {
		case sumsEntry:
			listed = &e
		case signature.EntryName:
			data, err := m.read(e, signature.MaxSize)
			if err != nil {
				return nil, nil, err
			}
			if sig, err = signature.Decode(data); err != nil {
				return nil, nil, err
			}
		}
	}
	return sig, listed, nil
}

// list yields all entries but the signature with the SHA-256 of each. For an object that is its name: a mismatch is
// found when the object is stored, before anything refers to it.
func (m *importer) list(ctx context.Context, yield func(*zipfile.Entry, objectstore.Hash) error) error {
	for e, err := range m.zip.Entries() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if e.Name == signature.EntryName {
			continue
		}
		n, err := parseName(e.Name)
		if err != nil || n.part != objectPart || e.Name != n.String() {
			if n.object, err = m.hash(e); err != nil {
				return err
			}
		}
		if err := yield(&e, n.object); err != nil {
			return err
		}
	}
	return nil
}

func (m *importer) hash(e zipfile.Entry) (objectstore.Hash, error) {
	if e.IsDir() {
		return objectstore.Sum(nil), nil
	}
	r, err := m.open(e)
	if err != nil {
		return objectstore.Hash{}, err
	}
	defer r.Close()
	hasher := objectstore.NewHasher()
	if _, err := io.Copy(hasher, r); err != nil {
		return objectstore.Hash{}, err
	}
	return hasher.Hash(), nil
}
