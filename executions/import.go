package executions

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"e3/internal/format/record"
	"e3/objectstore"
	"e3/refstore"
)

// Incoming is an execution that comes from another repository.
type Incoming struct {
	Key       Key
	Status    *record.Status // decoded; it encodes to the bytes that were read
	Detail    []byte         // detail.beast2 as it is; nil if there is none
	Rejection []byte         // rejected.beast2 likewise
	Signature []byte         // signature.beast2 likewise, whether or not its key is trusted here
	// Stdout and Stderr open a log and return its size in bytes; nil if it is empty.
	Stdout, Stderr func() (io.ReadCloser, int64, error)
	Provenance     *record.Provenance // its last step describes this import
}

// Outcome says what an import does, or would do, with an execution.
type Outcome int

// The outcomes: the collision table of doc/design.md, "Import". Only the first two change this repository.
const (
	Added             Outcome = iota
	Overwritten               // it replaced a failure, or a record that could not be read
	SkippedSuccess            // it is a success here
	SkippedFailure            // it is a failure here, and not a success there
	SkippedRunning            // it is running here
	SkippedUnfinished         // it was running there
	numberOfOutcomes  = iota
)

// String says what was done and why.
func (o Outcome) String() string {
	if o < 0 || o >= numberOfOutcomes {
		return fmt.Sprintf("outcome(%d)", int(o))
	}
	return [...]string{
		"added", "overwritten: it had failed here", "skipped: it is a success here already",
		"skipped: it is here already", "skipped: it is running here", "skipped: it had not ended when it was exported",
	}[o]
}

// Word names the outcome for programs; words never change.
func (o Outcome) Word() string {
	if o < 0 || o >= numberOfOutcomes {
		return o.String()
	}
	return [...]string{"added", "overwritten", "skippedSuccess", "skippedFailure", "skippedRunning", "skippedUnfinished"}[o]
}

// MarshalText writes the word.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.Word()), nil }

// UnmarshalText reads a word.
func (o *Outcome) UnmarshalText(text []byte) error {
	for *o = Added; *o < numberOfOutcomes; *o++ {
		if o.Word() == string(text) {
			return nil
		}
	}
	return fmt.Errorf("no outcome of an import is %q", text)
}

// Skipped tells whether nothing was imported.
func (o Outcome) Skipped() bool { return o > Overwritten }

// Check validates an incoming execution without its logs. The error wraps ErrMalformed.
func (in *Incoming) Check() error {
	fail := func(format string, args ...any) error {
		return &RecordError{Key: in.Key, ExecutionID: in.Status.ExecutionID, Err: fmt.Errorf(format, args...)}
	}
	s := in.Status
	if _, err := ParseID(s.ExecutionID); err != nil {
		return fail("its id %w", err)
	}
	inputs := make([]objectstore.Hash, len(s.InputHashes))
	for i, text := range s.InputHashes {
		var err error
		if inputs[i], err = objectstore.ParseHash(text); err != nil {
			return fail("input %d: %w", i+1, err)
		}
	}
	if got := InputsHash(inputs); got != in.Key.Inputs {
		return fail("its inputs hash to %s, not to %s", got, in.Key.Inputs)
	}
	if s.State == record.Success {
		if _, err := objectstore.ParseHash(s.OutputHash); err != nil {
			return fail("output: %w", err)
		}
	}
	if in.Detail != nil {
		if _, err := record.DecodeDetail(in.Detail); err != nil {
			return fail("%w", err)
		}
	}
	if in.Rejection != nil {
		if _, err := record.DecodeRejection(in.Rejection); err != nil {
			return fail("%w", err)
		}
		if s.State != record.Success {
			return fail("it is rejected, but it is no success")
		}
	}
	if in.Signature != nil {
		if err := in.checkSignature(); err != nil {
			return fail("%w", err)
		}
	}
	switch {
	case in.Provenance == nil || len(in.Provenance.Steps) == 0:
		return fail("it has no provenance")
	case len(in.Provenance.Steps) > record.MaxSteps:
		return fail("its provenance has %d steps; at most %d can be recorded", len(in.Provenance.Steps), record.MaxSteps)
	}
	return nil
}

// checkSignature checks that the signature is valid for this execution, whatever its key.
func (in *Incoming) checkSignature() error {
	s, err := record.DecodeSignature(in.Signature)
	if err != nil {
		return err
	}
	e := &Execution{Key: in.Key, Status: *in.Status, Signature: s}
	if in.Detail != nil {
		if e.Detail, err = record.DecodeDetail(in.Detail); err != nil {
			return err
		}
	}
	return e.CheckSignature()
}

// onRecord is this repository's own record of an incoming execution.
type onRecord struct {
	exists    bool
	malformed bool         // the record, or a side field of it, cannot be read
	state     record.State // Error if the status cannot be read
	version   refstore.Version
	fields    []string // names of the side fields

	status     []byte             // as it is stored
	provenance *record.Provenance // nil if it was made here, or is malformed
}

func (c *Curator) onRecord(ctx context.Context, k Key, id string) (onRecord, error) {
	rec, err := c.records.Get(ctx, recordKey(k, id), append([]string{fieldJob}, sideFields...)...)
	if errors.Is(err, refstore.ErrNotFound) {
		return onRecord{}, nil
	}
	if errors.Is(err, refstore.ErrDamaged) {
		return onRecord{exists: true, malformed: true, version: rec.Version}, nil
	}
	if err != nil {
		return onRecord{}, err
	}
	here := onRecord{exists: true, version: rec.Version}
	for _, f := range rec.Fields {
		here.fields = append(here.fields, f.Name)
	}
	e, err := decode(k, rec)
	if here.malformed = err != nil; !here.malformed {
		here.status, here.provenance = rec.Value, e.Provenance
	}
	if status, err := record.DecodeStatus(rec.Value); err == nil && status.ExecutionID == id {
		here.state = status.State
	}
	return here, nil
}

// running tells whether the execution is on record as running.
func (here onRecord) running() bool {
	return here.exists && !here.malformed && here.state == record.Running
}

// collide is the collision table. A running execution whose process is dead counts as an error.
func collide(incoming record.State, here onRecord) Outcome {
	switch {
	case incoming == record.Running:
		return SkippedUnfinished
	case !here.exists:
		return Added
	case here.state == record.Success && (incoming != record.Success || !here.malformed):
		return SkippedSuccess
	case here.malformed:
		return Overwritten
	case incoming == record.Success:
		return Overwritten
	default:
		return SkippedFailure
	}
}

// Decide returns what Import would do, and changes nothing.
func (c *Curator) Decide(ctx context.Context, in *Incoming) (Outcome, error) {
	here, err := c.onRecord(ctx, in.Key, in.Status.ExecutionID)
	if err != nil {
		return 0, fmt.Errorf("execution %s: %w", in.Status.ExecutionID, err)
	}
	if in.Status.State != record.Running && here.running() {
		alive, err := c.Alive(ctx, in.Key, in.Status.ExecutionID)
		if alive || err != nil {
			return SkippedRunning, err
		}
	}
	return c.outcome(ctx, in, &here)
}

// outcome follows the collision table, except for a torn log, which makes the record here malformed.
func (c *Curator) outcome(ctx context.Context, in *Incoming, here *onRecord) (Outcome, error) {
	out := collide(in.Status.State, *here)
	if out != SkippedSuccess && out != SkippedFailure {
		return out, nil
	}
	torn, err := c.torn(ctx, in, *here)
	if err != nil || !torn {
		return out, err
	}
	here.malformed = true
	return Overwritten, nil
}

// Import adds an execution, by the rules of Outcome. If it is on record here as running but its process is dead, it is
// closed first. Status, detail and rejection keep their bytes.
//
// Everything that the execution names must be stored and durable, and the caller has the generation open (Begin).
// Nothing is synced. An interrupted import may leave logs without a record, or have removed the failure that it was to
// replace. It must be repeated as a whole.
func (c *Curator) Import(ctx context.Context, in *Incoming) (Outcome, error) {
	if err := in.Check(); err != nil {
		return 0, err
	}
	if in.Status.State == record.Running {
		return SkippedUnfinished, nil
	}
	id := in.Status.ExecutionID
	out, err := c.importOne(ctx, in)
	if err != nil {
		return 0, fmt.Errorf("import execution %s: %w", id, err)
	}
	return out, nil
}

func (c *Curator) importOne(ctx context.Context, in *Incoming) (Outcome, error) {
	id := in.Status.ExecutionID
	claim, err := c.hold(ctx, in.Key, id)
	if errors.Is(err, errAlive) {
		return SkippedRunning, nil
	}
	if err != nil {
		return 0, err
	}
	defer claim.Unlock()
	for {
		here, err := c.onRecord(ctx, in.Key, id)
		if err != nil {
			return 0, err
		}
		if here.running() {
			switch _, err := c.closeStale(ctx, in.Key, id); {
			case errors.Is(err, errAlive):
				return SkippedRunning, nil
			case err != nil:
				return 0, err
			}
			continue
		}
		out, err := c.outcome(ctx, in, &here)
		if err != nil || out.Skipped() {
			return out, err
		}
		err = c.put(ctx, in, here)
		if !errors.Is(err, refstore.ErrConflict) {
			return out, err
		}
		// A writer without the claim was faster, such as an execution that ends at once: read the record again.
	}
}

// checkSize refuses an execution that states a wrong size for its output, if lookups here would believe it.
func (c *Curator) checkSize(ctx context.Context, in *Incoming) error {
	if !c.presumes || in.Status.State != record.Success || in.Detail == nil {
		return nil
	}
	detail, err := record.DecodeDetail(in.Detail)
	if err != nil || detail.BytesOut < 0 {
		return err
	}
	h, err := objectstore.ParseHash(in.Status.OutputHash)
	if err != nil {
		return err
	}
	size, err := c.objects.Stat(ctx, h)
	if err == nil && size != detail.BytesOut {
		err = fmt.Errorf("%w: its record says that its output has %d bytes, but it has %d", ErrMalformed, detail.BytesOut, size)
	}
	return err
}

// put writes the record and its logs over what is here.
func (c *Curator) put(ctx context.Context, in *Incoming, here onRecord) error {
	if err := c.checkSize(ctx, in); err != nil {
		return err
	}
	key := recordKey(in.Key, in.Status.ExecutionID)
	rec := refstore.Record{Key: key, Value: in.Status.Encode(), Version: here.version}
	add := func(name string, value []byte) {
		if value != nil {
			rec.Fields = append(rec.Fields, refstore.Field{Name: name, Value: value})
		}
	}
	add(fieldDetail, in.Detail)
	add(fieldRejected, in.Rejection)
	add(fieldSignature, in.Signature)
	last := &in.Provenance.Steps[len(in.Provenance.Steps)-1]
	add(fieldMetadata, (&record.Metadata{ExecutionID: in.Status.ExecutionID, Origin: record.Origin{SourceRepo: last.Source(), ImportedAt: last.ImportedAt}}).Encode())
	add(fieldProvenance, in.Provenance.Encode())
	if in.Status.State == record.Success {
		rec.Fields = append(rec.Fields, outputField(in.Status))
	}
	stale := here.malformed
	for _, name := range here.fields {
		_, given := rec.Field(name)
		stale = stale || !given
	}
	if stale { // a put keeps the fields that it does not name
		if err := c.records.Delete(ctx, key, here.version); err != nil {
			return err
		}
		rec.Version = refstore.Absent
	}
	for _, log := range []struct {
		stream Stream
		open   func() (io.ReadCloser, int64, error)
	}{{Stdout, in.Stdout}, {Stderr, in.Stderr}} {
		text, err := c.importLog(ctx, logKey(in.Key, in.Status.ExecutionID, log.stream), log.open)
		if err != nil {
			return fmt.Errorf("%s: %w", log.stream, err)
		}
		add(string(log.stream), text)
	}
	_, err := c.records.Put(ctx, rec)
	return err
}

// logPiece is the part of a long log that is held in memory.
const logPiece = 256 << 10

// importLog replaces a log. A short log is returned, to go with the record; a longer one is written to its stream.
func (c *Curator) importLog(ctx context.Context, key refstore.Key, open func() (io.ReadCloser, int64, error)) ([]byte, error) {
	// An existing log is that of the replaced failure, or of an interrupted import.
	if err := c.records.Remove(ctx, key); err != nil && !errors.Is(err, refstore.ErrNotFound) {
		return nil, err
	}
	if open == nil {
		return nil, nil
	}
	r, size, err := open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	limited := io.LimitReader(r, size+1)
	if size <= inlineLog {
		text, err := io.ReadAll(limited)
		if err == nil {
			err = checkLength(size, int64(len(text)))
		}
		if size == 0 {
			text = nil
		}
		return text, err
	}
	out := bufio.NewWriterSize(&appender{ctx: ctx, records: c.records, key: key}, logPiece)
	n, err := io.Copy(out, limited)
	if err == nil {
		err = checkLength(size, n)
	}
	if err == nil {
		return nil, out.Flush()
	}
	undo := c.records.Remove(context.WithoutCancel(ctx), key)
	if errors.Is(undo, refstore.ErrNotFound) {
		undo = nil
	}
	return nil, errors.Join(err, undo)
}

func checkLength(size, got int64) error {
	switch {
	case got > size:
		return fmt.Errorf("it is longer than the declared %d bytes", size)
	case got < size:
		return fmt.Errorf("it ends after %d of the declared %d bytes", got, size)
	}
	return nil
}

// appender writes a stream from its beginning.
type appender struct {
	ctx     context.Context
	records refstore.Streams
	key     refstore.Key
	offset  int64
}

func (a *appender) Write(p []byte) (int, error) {
	if err := a.records.Append(a.ctx, a.key, a.offset, p); err != nil {
		return 0, err
	}
	a.offset += int64(len(p))
	return len(p), nil
}

// torn tells whether a loss of power has cut off or zeroed a log of the record here, which otherwise is the incoming
// execution with the same provenance. Only the log shows that, so a repeated import reads it.
func (c *Curator) torn(ctx context.Context, in *Incoming, here onRecord) (bool, error) {
	if here.provenance == nil || here.status == nil || !bytes.Equal(here.status, in.Status.Encode()) || !bytes.Equal(route(here.provenance), route(in.Provenance)) {
		return false, nil
	}
	for _, log := range []struct {
		stream Stream
		open   func() (io.ReadCloser, int64, error)
	}{{Stdout, in.Stdout}, {Stderr, in.Stderr}} {
		if log.open == nil {
			continue
		}
		is, err := c.tornLog(ctx, in, log.stream, log.open)
		if err != nil || is {
			return is, err
		}
	}
	return false, nil
}

// route is the encoded provenance without the fields that differ from import to import.
func route(p *record.Provenance) []byte {
	steps := append([]record.Step(nil), p.Steps...)
	if n := len(steps); n > 0 {
		last := record.Step{By: steps[n-1].By, Repository: steps[n-1].Repository, At: steps[n-1].At, Version: steps[n-1].Version, Signer: steps[n-1].Signer}
		steps[n-1] = last
	}
	return (&record.Provenance{Steps: steps}).Encode()
}

func (c *Curator) tornLog(ctx context.Context, in *Incoming, stream Stream, open func() (io.ReadCloser, int64, error)) (bool, error) {
	id := in.Status.ExecutionID
	size, err := c.LogSize(ctx, in.Key, id, stream)
	if err != nil {
		return false, err
	}
	theirs, want, err := open()
	if err != nil {
		return false, err
	}
	defer theirs.Close()
	if size != want {
		return size < want, nil
	}
	ours, err := c.OpenLog(ctx, in.Key, id, stream, 0)
	if err != nil {
		return false, err
	}
	defer ours.Close()
	// Lost bytes read as zeros. Any other difference has another cause.
	a, b := make([]byte, 32<<10), make([]byte, 32<<10)
	for {
		n, err := io.ReadFull(ours, a)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, err
		}
		if m, err := io.ReadFull(theirs, b[:n]); err != nil {
			return false, fmt.Errorf("%s: it ends %d bytes before its declared length: %w", stream, n-m, err)
		}
		for i := range n {
			if a[i] == 0 && b[i] != 0 {
				return true, nil
			}
		}
	}
}
