package exportimport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"e3/executions"
	"e3/internal/format/record"
	"e3/internal/format/zipfile"
	"e3/objectstore"
)

// incoming is an execution in the zip, where its files are consecutive.
type incoming struct {
	executions.Incoming
	id     string
	output []byte // of the output file; nil if there is none
	size   int64  // bytes of all its files
}

// maxStatus bounds the record of an execution: some 60,000 inputs.
const maxStatus = 4 << 20

// eachExecution yields the executions in the order of the zip. Called again, it yields the same, or an error.
func (m *importer) eachExecution(ctx context.Context, yield func(*incoming) error) error {
	var group []zipfile.Entry
	count := 0
	var key executions.Key
	var id string
	end := func() error {
		if len(group) == 0 {
			return nil
		}
		in, err := m.incoming(key, id, group)
		group, count = group[:0], count+1
		if err != nil {
			return err
		}
		return yield(in)
	}
	for e, err := range m.zip.Entries() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		n, err := parseName(e.Name)
		if err != nil || n.part != executionPart {
			continue // check has added a note
		}
		if n.key != key || n.id != id {
			if err := end(); err != nil {
				return err
			}
			key, id = n.key, n.id
		}
		group = append(group, e)
	}
	if err := end(); err != nil {
		return err
	}
	if m.checked && count != m.res.Executions {
		return refused("", "%w", errChanged)
	}
	return nil
}

// incoming reads the records of an execution and checks that they agree.
func (m *importer) incoming(key executions.Key, id string, files []zipfile.Entry) (*incoming, error) {
	in := &incoming{id: id, Incoming: executions.Incoming{Key: key, Provenance: m.origin.execution(id)}}
	status := ""
	for _, e := range files {
		n, err := parseName(e.Name)
		if err != nil {
			return nil, refused(e.Name, "%w", err)
		}
		in.size += e.Size
		var data []byte
		switch n.file {
		case fileStatus:
			status = e.Name
			if data, err = m.read(e, maxStatus); err != nil {
				return nil, err
			}
			if in.Status, err = record.DecodeStatus(data); err != nil {
				return nil, refused(e.Name, "%w", err)
			}
		case fileOutput:
			data, err = m.read(e, 2*hashText)
			in.output = data
		case fileDetail:
			data, err = m.read(e, maxSmall)
			in.Detail = data
		case fileRejected:
			data, err = m.read(e, maxSmall)
			in.Rejection = data
		case fileSignature:
			data, err = m.read(e, maxSmall)
			in.Signature = data
		case fileStdout:
			in.Stdout = m.log(e)
		case fileStderr:
			in.Stderr = m.log(e)
		}
		if err != nil {
			return nil, err
		}
	}
	if in.Status == nil {
		return nil, refused(files[0].Name, "the execution has no %s beside it", fileStatus)
	}
	if err := in.agree(); err != nil {
		return nil, refused(status, "%w", err)
	}
	if !m.checked {
		if err := in.checkLogs(); err != nil {
			return nil, refused(status, "%w", err)
		}
	}
	return in, nil
}

// checkLogs compares the logs with the sums in the execution's detail.
func (in *incoming) checkLogs() error {
	detail, err := record.DecodeDetail(in.Detail)
	if err != nil || in.Detail == nil {
		return nil // Check has made sure that an existing detail can be read
	}
	for _, l := range []struct {
		stream executions.Stream
		open   func() (io.ReadCloser, int64, error)
	}{{executions.Stdout, in.Stdout}, {executions.Stderr, in.Stderr}} {
		if l.open == nil {
			continue // absent or empty
		}
		r, _, err := l.open()
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, executions.CheckLog(r, detail, in.id, l.stream))
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
	}
	return nil
}

// hashText is the length of a hash as text.
const hashText = 64

// log returns a function that opens a log; nil for an empty one.
func (m *importer) log(e zipfile.Entry) func() (io.ReadCloser, int64, error) {
	if e.Size == 0 {
		return nil
	}
	return func() (io.ReadCloser, int64, error) {
		r, err := m.open(e)
		return r, e.Size, err
	}
}

// agree checks the record against its folder and against the files beside it.
func (in *incoming) agree() error {
	if in.Status.ExecutionID != in.id {
		return fmt.Errorf("it is the record of execution %q", shorten(in.Status.ExecutionID))
	}
	if err := in.Check(); err != nil {
		return err
	}
	has := strings.TrimSuffix(string(in.output), "\n")
	switch {
	case in.Status.State == record.Success && in.output != nil && has != in.Status.OutputHash:
		return fmt.Errorf("it says that the output is %s, and the file beside it that it is %q", in.Status.OutputHash, shorten(has))
	case in.Status.State != record.Success && in.output != nil:
		return fmt.Errorf("it is no success, and there is a file %q beside it", fileOutput)
	}
	return nil
}

// taken is the execution as the closure needs it.
func (in *incoming) taken() (*taken, error) {
	t := &taken{key: in.Key, id: in.id, state: in.Status.State}
	if t.state != record.Success {
		return t, nil
	}
	var err error
	t.output, err = objectstore.ParseHash(in.Status.OutputHash)
	return t, err
}

// errScattered refuses an execution whose files are not consecutive.
var errScattered = errors.New("the files of its execution do not follow each other")

// entry is the entry name of the record.
func (in *incoming) entry() string {
	return (&entryName{part: executionPart, key: in.Key, id: in.id, file: fileStatus}).String()
}
