package exportimport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync/atomic"

	"e3/executions"
	"e3/internal/events"
	"e3/internal/format/record"
	"e3/internal/format/signature"
	"e3/internal/format/zipfile"
	"e3/internal/insight/runview"
	"e3/internal/reach"
	"e3/objectstore"
	"e3/refstore"
	"e3/workspace"
)

// A zipWriter writes the entries of an export in their order.
type zipWriter struct {
	x   *exporter
	s   *snapshot
	zip *zipfile.Writer

	manifest *signature.Manifest
	lines    *bufio.Writer  // the lines of the manifest, to written
	written  io.ReaderAt    // the flushed lines
	size     int64          // bytes of all lines
	line     []byte         // reused
	pending  []pendingEntry // added, but not in the manifest yet
	done     atomic.Int64   // bytes read
	total    int64
	objects  int
}

// pendingEntry is an entry whose content is hashed while it is read.
type pendingEntry struct {
	name string
	hash *objectstore.Hash // set once the writer has flushed
}

// pendingMost is the number of pending entries at which the writer is flushed.
const pendingMost = 8192

// A prunedError says that an execution was pruned during the export.
type prunedError struct{ id string }

func (e *prunedError) Error() string {
	return fmt.Sprintf("execution %s was pruned while it was exported; try again", e.id)
}

func (w *zipWriter) write(ctx context.Context, c *closure, list []*taken) (*Exported, error) {
	if err := w.entries(ctx, c, list); err != nil {
		return nil, w.explain(ctx, list, err)
	}
	st := &w.s.state
	res := &Exported{
		Workspace: w.s.workspace, Package: workspace.PackageRef{Name: st.PackageName, Version: st.PackageVersion, Hash: st.PackageHash},
		Executions: len(list), Objects: w.objects, Content: w.done.Load(), Size: w.zip.Size(), Notes: append([]string{}, w.s.notes...),
	}
	if w.s.run != nil {
		res.RunID = w.s.run.RunID
	}
	if key := w.x.opts.Key; key != nil {
		res.Signer = &runview.Signer{Key: key.Public().String(), Name: key.Name, Verified: true}
	}
	return res, nil
}

// entries writes the zip.
func (w *zipWriter) entries(ctx context.Context, c *closure, list []*taken) error {
	w.total = c.bytes.Load()
	for h := range c.all() {
		if err := w.object(ctx, h); err != nil {
			return err
		}
	}
	for _, t := range list {
		if err := w.execution(ctx, t); err != nil {
			return err
		}
	}
	if err := w.records(ctx); err != nil {
		return err
	}
	if err := w.bytes(entryName{part: provenancePart}, w.provenance(list).Encode()); err != nil {
		return err
	}
	if err := w.sums(); err != nil {
		return err
	}
	if err := w.sign(); err != nil {
		return err
	}
	return w.zip.Close()
}

// object adds an object, whose content is verified while it is read.
func (w *zipWriter) object(ctx context.Context, h objectstore.Hash) error {
	size, err := w.x.objects.Stat(ctx, h)
	if err != nil {
		return err
	}
	w.objects++
	name := (&entryName{part: objectPart, object: h}).String()
	if err := w.list(name, &h); err != nil {
		return err
	}
	return w.zip.Add(name, size, func() (io.ReadCloser, error) {
		r, err := w.x.objects.Open(ctx, h)
		if err != nil {
			return nil, err
		}
		return counted{w, objectstore.Checking(h, r, objectstore.UnknownSize)}, nil
	})
}

// bytes adds an entry that is in memory.
func (w *zipWriter) bytes(n entryName, content []byte) error {
	name, sum := n.String(), objectstore.Sum(content)
	if err := w.list(name, &sum); err != nil {
		return err
	}
	w.done.Add(int64(len(content)))
	return w.zip.AddBytes(name, content)
}

// stream adds an entry that is read from a stream. If the stream ends before size bytes, short returns the reason.
func (w *zipWriter) stream(n entryName, size int64, open func() (io.ReadCloser, error), short func() error) error {
	name, hash := n.String(), new(objectstore.Hash)
	if err := w.list(name, hash); err != nil {
		return err
	}
	return w.zip.Add(name, size, func() (io.ReadCloser, error) {
		r, err := open()
		if err != nil {
			return nil, err
		}
		return &hashingReader{w: w, r: r, hasher: objectstore.NewHasher(), end: func(got objectstore.Hash, n int64) error {
			*hash = got
			if n < size {
				return short()
			}
			return nil
		}}, nil
	})
}

// list notes for the manifest an entry that is about to be added.
func (w *zipWriter) list(name string, hash *objectstore.Hash) error {
	if len(w.pending) >= pendingMost {
		if err := w.drain(); err != nil {
			return err
		}
	}
	w.pending = append(w.pending, pendingEntry{name, hash})
	return nil
}

// drain enters the added entries into the manifest.
func (w *zipWriter) drain() error {
	if err := w.zip.Flush(); err != nil {
		return err
	}
	for _, p := range w.pending {
		w.manifest.Add(p.name, *p.hash)
		w.line = signature.AppendLine(w.line[:0], p.name, *p.hash)
		w.size += int64(len(w.line))
		if _, err := w.lines.Write(w.line); err != nil {
			return fmt.Errorf("export: %w", err)
		}
	}
	w.pending = w.pending[:0]
	return nil
}

// checkLogs adds notes about damaged logs of an execution, and returns its detail. Damaged logs are exported as they
// are, without the sums that contradict them, so that the zip can be imported.
func (w *zipWriter) checkLogs(ctx context.Context, t *taken, rec refstore.Record) ([]byte, error) {
	data, _ := rec.Field(fileDetail)
	detail, err := record.DecodeDetail(data)
	if err != nil || !detail.Logs.Known {
		return data, ctx.Err() // without sums there is nothing to check
	}
	for _, stream := range []executions.Stream{executions.Stdout, executions.Stderr} {
		sum := detail.Logs.Stdout
		if stream == executions.Stderr {
			sum = detail.Logs.Stderr
		}
		if sum.Size == 0 {
			continue // saves a request for an empty log
		}
		in, err := w.x.repo.Executions.OpenLog(ctx, t.key, t.id, stream, 0)
		if err != nil {
			return nil, fmt.Errorf("log of execution %s: %w", t.id, err)
		}
		in = executions.CheckLog(in, detail, t.id, stream)
		_, err = io.Copy(io.Discard, in)
		if err = errors.Join(err, in.Close()); errors.Is(err, executions.ErrLogDamaged) {
			w.s.notes = append(w.s.notes, err.Error())
			without := *detail
			without.Logs = record.Logs{}
			data = without.Encode()
		} else if err != nil {
			return nil, err
		}
	}
	return data, nil
}

// execution adds the files of an execution.
func (w *zipWriter) execution(ctx context.Context, t *taken) error {
	rec, err := w.x.repo.Records.Get(ctx, refstore.Key{Partition: "EXECUTION/" + t.key.String(), Sort: t.id}, fileDetail, fileRejected, fileSignature)
	if errors.Is(err, refstore.ErrNotFound) {
		return &prunedError{t.id}
	}
	if err != nil {
		return fmt.Errorf("execution %s: %w", t.id, err)
	}
	detail, err := w.checkLogs(ctx, t, rec)
	if err != nil {
		return err
	}
	n := entryName{part: executionPart, key: t.key, id: t.id}
	file := func(name string, content []byte) error {
		n.file = name
		return w.bytes(n, content)
	}
	if _, ok := rec.Field(fileDetail); ok {
		if err := file(fileDetail, detail); err != nil {
			return err
		}
	}
	if t.state == record.Success {
		if err := file(fileOutput, []byte(t.output.String()+"\n")); err != nil {
			return err
		}
	}
	if rejected, ok := rec.Field(fileRejected); ok {
		if err := file(fileRejected, rejected); err != nil {
			return err
		}
	}
	if signed, ok := rec.Field(fileSignature); ok {
		if err := file(fileSignature, signed); err != nil {
			return err
		}
	}
	if err := file(fileStatus, rec.Value); err != nil {
		return err
	}
	// If the record is gone, the execution was pruned, and a missing or short log is no damage.
	there := func() error {
		_, err := w.x.repo.Records.Get(ctx, rec.Key)
		if errors.Is(err, refstore.ErrNotFound) {
			return &prunedError{t.id}
		}
		return err
	}
	empty := false
	for _, stream := range []executions.Stream{executions.Stderr, executions.Stdout} {
		size, err := w.x.repo.Executions.LogSize(ctx, t.key, t.id, stream)
		if err != nil {
			return fmt.Errorf("log of execution %s: %w", t.id, err)
		}
		if size == 0 {
			empty = true
			continue
		}
		n.file = string(stream)
		err = w.stream(n, size, func() (io.ReadCloser, error) {
			return w.x.repo.Executions.OpenLog(ctx, t.key, t.id, stream, 0)
		}, there)
		if err != nil {
			return err
		}
	}
	if empty {
		return there()
	}
	return nil
}

// records adds the run, its events, the package and the state.
func (w *zipWriter) records(ctx context.Context) error {
	s := w.s
	if s.run != nil {
		if err := w.bytes(entryName{part: runPart, workspace: s.workspace, id: s.run.RunID}, s.run.Encode()); err != nil {
			return err
		}
		if err := w.events(ctx); err != nil {
			return err
		}
	}
	name := entryName{part: packagePart, pkg: s.state.PackageName, version: s.state.PackageVersion}
	if err := w.bytes(name, []byte(s.state.PackageHash+"\n")); err != nil {
		return err
	}
	if s.workspace == "" {
		return nil
	}
	return w.bytes(entryName{part: workspacePart, workspace: s.workspace}, s.state.Encode())
}

// events adds the readable events of the run: an import would refuse the rest.
func (w *zipWriter) events(ctx context.Context) error {
	key := eventsKey(w.s.workspace, w.s.run.RunID)
	end, damage, err := events.Readable(ctx, w.x.repo.Records, w.s.workspace, w.s.run.RunID, nil)
	if damage != nil {
		w.s.notes = append(w.s.notes, fmt.Sprintf("%v; those before it are exported", damage))
	} else if bad := (*events.BoundsError)(nil); err == nil {
		if errors.As(w.s.bounds.Check(ctx, w.x.repo.Records, w.s.workspace, w.s.run.RunID), &bad) {
			w.s.notes = append(w.s.notes, fmt.Sprintf("the events of run %s are damaged: %v; what is there is exported", w.s.run.RunID, bad))
		}
	}
	if err != nil || end == 0 {
		return err
	}
	return w.stream(entryName{part: eventsPart, workspace: w.s.workspace, id: w.s.run.RunID}, end, func() (io.ReadCloser, error) {
		r, err := w.x.repo.Records.Open(ctx, key, 0)
		if err != nil {
			return nil, err
		}
		return limited{io.LimitReader(r, end), r}, nil
	}, func() error { return nil })
}

type limited struct {
	io.Reader
	io.Closer
}

// provenance makes the entry with the exporter, and with the steps of results that were imported here.
func (w *zipWriter) provenance(list []*taken) *record.Export {
	e := &record.Export{By: w.x.repo.User, Repository: w.x.repo.Location, Version: w.x.repo.Version}
	if w.s.workspace != "" {
		e.At = when(&w.s.state, w.s.run)
	}
	groups := map[string]*record.ExportGroup{} // by the bytes of the steps
	group := func(steps string) *record.ExportGroup {
		g := groups[steps]
		if g == nil {
			g = &record.ExportGroup{}
			if p, err := record.DecodeProvenance([]byte(steps)); err == nil { // it was encoded here
				g.Steps = p.Steps
			}
			groups[steps] = g
		}
		return g
	}
	for _, t := range list {
		if t.steps != "" {
			g := group(t.steps)
			g.Executions = append(g.Executions, t.id)
		}
	}
	if len(w.s.runSteps) > 0 {
		g := group(string((&record.Provenance{Steps: w.s.runSteps}).Encode()))
		g.Runs = append(g.Runs, w.s.run.RunID)
	}
	for _, steps := range slices.Sorted(maps.Keys(groups)) {
		g := groups[steps]
		slices.Sort(g.Executions)
		e.Earlier = append(e.Earlier, *g)
	}
	return e
}

// sums adds the list of all entries. Its digest equals the manifest's, which has the same lines.
func (w *zipWriter) sums() error {
	if err := w.drain(); err != nil {
		return err
	}
	if err := w.lines.Flush(); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	size, sum := w.size, objectstore.Hash(w.manifest.Sum())
	if err := w.list(sumsEntry, &sum); err != nil {
		return err
	}
	return w.zip.Add(sumsEntry, size, func() (io.ReadCloser, error) {
		return counted{w, io.NopCloser(io.NewSectionReader(w.written, 0, size))}, nil
	})
}

// sign adds the signature, if there is a key.
func (w *zipWriter) sign() error {
	if err := w.drain(); err != nil {
		return err
	}
	if w.x.opts.Key == nil {
		return nil
	}
	content := w.x.opts.Key.Sign(w.manifest.Sum()).Encode()
	w.done.Add(int64(len(content)))
	return w.zip.AddBytes(signature.EntryName, content)
}

// explain adds to an error which dataset or record needs the damaged or missing object.
func (w *zipWriter) explain(ctx context.Context, list []*taken, err error) error {
	var corrupt *objectstore.CorruptError
	if !errors.As(err, &corrupt) {
		return err
	}
	found := errors.New("found")
	what := ""
	walk := w.x.gatherer(w.s, list).walk(ctx, reach.Options{
		Visit: func(_ context.Context, r reach.Ref) (int64, error) {
			if r.Hash == corrupt.Want {
				return -1, found
			}
			return -1, nil
		},
		Fault: func(f *reach.Fault) error {
			if errors.Is(f.Err, found) && what == "" {
				what = describe(f)
			}
			return nil
		},
	})
	if walk != nil || what == "" {
		return err
	}
	return &MissingError{What: what, Err: corrupt}
}

// counted counts the bytes that are read.
type counted struct {
	w *zipWriter
	io.ReadCloser
}

func (r counted) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.w.count(n)
	return n, err
}

// count adds to the bytes that were read, and reports the sum.
func (w *zipWriter) count(n int) {
	if done := w.done.Add(int64(n)); w.x.opts.Progress != nil && n > 0 {
		w.x.opts.Progress(min(done, w.total), w.total)
	}
}

// A hashingReader hashes and counts the bytes that are read. At the end it calls end with the hash; an error of end
// replaces io.EOF.
type hashingReader struct {
	w      *zipWriter
	r      io.ReadCloser
	hasher *objectstore.Hasher
	n      int64
	end    func(objectstore.Hash, int64) error
	ended  bool
}

func (r *hashingReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.hasher.Write(p[:n])
	r.n += int64(n)
	r.w.count(n)
	if errors.Is(err, io.EOF) && !r.ended {
		r.ended = true
		if bad := r.end(r.hasher.Hash(), r.n); bad != nil {
			return n, bad
		}
	}
	return n, err
}

func (r *hashingReader) Close() error { return r.r.Close() }
