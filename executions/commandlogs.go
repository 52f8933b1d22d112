package executions

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
	"e3/objectstore"
	"e3/refstore"
)

// inlineLog is the size up to which a finished log is written together with its record.
const inlineLog = 64 << 10

// commandLogs are the two files that take what a command prints, on their way into the stores. Short ones become fields
// of the execution's record. Longer ones, and those of an announced execution, become streams: the store adopts the
// files, or a pump copies them.
type commandLogs struct {
	*assignment
	files   *sandboxLogs
	adopted bool     // a dead process began the execution
	pump    *logPump // nil if the store adopts the files
	streams bool     // the logs can be followed
}

// log is a file that a command writes to. file is nil if an adopted execution has lost it.
type log struct {
	stream Stream
	file   *os.File
}

func (l *commandLogs) both() [2]log {
	return [2]log{{Stdout, l.files.stdout}, {Stderr, l.files.stderr}}
}

// publish puts the log files where they can be followed, or begins to copy them there.
func (l *commandLogs) publish(ctx context.Context) error {
	l.streams = true
	adopter, ok := l.x.records.(streamAdopter)
	if !ok {
		return l.startPump(ctx)
	}
	for _, log := range l.both() {
		err := adoptStream(ctx, adopter, logKey(l.key, l.id, log.stream), log.file)
		if errors.Is(err, syscall.EXDEV) { // the sandbox is on another file system
			return l.startPump(ctx)
		}
		if err != nil {
			return fmt.Errorf("keep %s of execution %s: %w", log.stream, l.id, err)
		}
	}
	l.files.moved = true
	return nil
}

// needRecord tells whether streams need the record first: a folder without a record would be swept.
func (l *commandLogs) needRecord() bool {
	_, files := l.x.records.(streamAdopter)
	return files
}

// startPump begins to copy the logs, each once per Options.LogEvery if it has grown. An adopted log continues where the
// first process stopped.
func (l *commandLogs) startPump(ctx context.Context) error {
	p := &logPump{}
	for i, log := range l.both() {
		p.logs[i] = pumpedLog{streams: l.x.records, key: logKey(l.key, l.id, log.stream), file: log.file, shared: l.adopted}
		if !l.adopted {
			continue
		}
		info, err := l.x.records.Size(ctx, p.logs[i].key)
		if err != nil && !errors.Is(err, refstore.ErrNotFound) {
			return fmt.Errorf("%s of execution %s: %w", log.stream, l.id, err)
		}
		p.logs[i].sent, p.logs[i].unknown = info.Size, true
	}
	p.start(l.x)
	l.pump = p
	return nil
}

// finish completes the streams after the command's end.
func (l *commandLogs) finish(ctx context.Context) error {
	if l.pump == nil {
		return nil
	}
	return l.pump.finish(ctx)
}

// stop ends the copying.
func (l *commandLogs) stop() {
	if l.pump != nil {
		l.pump.stop()
	}
}

// restart lets the logs be published again, for an execution under another id.
func (l *commandLogs) restart() {
	l.stop()
	l.pump, l.streams = nil, false
}

// short returns the logs as fields of the record, without empty ones. It returns nil if one is too long for a field.
func (l *commandLogs) short() ([]refstore.Field, error) {
	fields := []refstore.Field{}
	for _, log := range l.both() {
		if log.file == nil {
			continue
		}
		info, err := log.file.Stat()
		if err != nil {
			return nil, err
		}
		if info.Size() == 0 {
			continue
		}
		if info.Size() > inlineLog {
			return nil, nil
		}
		text := make([]byte, info.Size())
		if _, err := log.file.ReadAt(text, 0); err != nil && err != io.EOF {
			return nil, err
		}
		fields = append(fields, refstore.Field{Name: string(log.stream), Value: text})
	}
	l.files.used = len(fields) > 0
	return fields, nil
}

// sums returns the sums of the complete logs, whether they are fields of the record or streams.
func (l *commandLogs) sums(ctx context.Context, fields []refstore.Field) record.Logs {
	stdout, err := l.sum(ctx, Stdout, fields)
	stderr, fault := l.sum(ctx, Stderr, fields)
	if err != nil || fault != nil {
		return record.Logs{} // the error shows when the log is read
	}
	return record.Logs{Known: true, Stdout: stdout, Stderr: stderr}
}

func (l *commandLogs) sum(ctx context.Context, stream Stream, fields []refstore.Field) (record.LogSum, error) {
	switch {
	case fields != nil || l.pump == nil && !l.streams:
		text, _ := refstore.Record{Fields: fields}.Field(string(stream))
		return record.LogSum{Size: int64(len(text)), Sum: crc32.Checksum(text, castagnoli)}, nil
	case l.pump != nil:
		return l.pump.sum(stream)
	}
	in, err := l.x.OpenLog(ctx, l.key, l.id, stream, 0)
	if err != nil {
		return record.LogSum{}, err
	}
	defer in.Close() // opened for reading
	h := crc32.New(castagnoli)
	n, err := io.Copy(h, in)
	return record.LogSum{Size: n, Sum: h.Sum32()}, err
}

// reopen opens the log files that a dead process has left in the folder of a sandbox.
func (l *commandLogs) reopen(in *beneath.Dir, folder string, numbers [2]uint64) {
	l.files.stdout = openNumbered(in, filepath.Join(folder, "stdout"), numbers[0])
	l.files.stderr = openNumbered(in, filepath.Join(folder, "stderr"), numbers[1])
}

// openNumbered opens a log file by name if it has this inode number. It returns nil if the store has adopted the file,
// or if the command has removed or replaced it.
func openNumbered(in *beneath.Dir, name string, number uint64) *os.File {
	f, _, err := objectstore.OpenFileIn(in, name)
	if err != nil {
		return nil
	}
	if info, err := f.Stat(); err != nil || fileNumber(info) != number {
		f.Close()
		return nil
	}
	return f
}

// copyEarlier copies logs back into files: they were moved to the record of the execution that began the command.
func (l *commandLogs) copyEarlier(ctx context.Context, in *beneath.Dir) error {
	files := [2]**os.File{&l.files.stdout, &l.files.stderr}
	for i, log := range l.both() {
		if log.file != nil {
			continue
		}
		there, err := l.x.OpenLog(ctx, l.key, l.begun, log.stream, 0)
		if err != nil {
			return err
		}
		defer there.Close()
		f, err := in.OpenFile(string(log.stream), os.O_CREATE|os.O_TRUNC|os.O_RDWR, l.x.opts.Modes.File())
		if err != nil {
			return err
		}
		*files[i] = f
		if _, err := io.Copy(f, there); err != nil {
			return err
		}
	}
	return nil
}

// mostCopied bounds the copy of a batch's log, in bytes, that each item after the first keeps. The first has all of
// it.
const mostCopied = 16 << 10

// copyTo copies the beginning of each log to other items of a batch.
func (l *commandLogs) copyTo(others []*commandLogs) error {
	for i, log := range l.both() {
		if log.file == nil {
			continue
		}
		text := make([]byte, mostCopied+1)
		n, err := log.file.ReadAt(text, 0)
		if n == 0 {
			continue
		}
		if text = text[:n]; n > mostCopied {
			text = append(text[:mostCopied], fmt.Sprintf("\n[e3: the rest is in the log of execution %s, the first of this batch]\n", l.id)...)
		} else if err != nil && err != io.EOF {
			return fmt.Errorf("copy the log of a batch: %w", err)
		}
		for _, other := range others {
			if _, err := other.both()[i].file.Write(text); err != nil {
				return fmt.Errorf("copy the log of a batch: %w", err)
			}
		}
	}
	return nil
}

// streamAdopter is a store whose streams are plain files: a rename turns a log that is still being written into the
// stream.
type streamAdopter interface {
	AdoptStream(ctx context.Context, key refstore.Key, path string) error
}

// adoptStream makes the file of a log the stream of its execution. A command can reach the file's name: if it has
// deleted or replaced the file, there is no log.
func adoptStream(ctx context.Context, s streamAdopter, key refstore.Key, f *os.File) error {
	if f == nil {
		return nil
	}
	mine, err := f.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Lstat(f.Name()); err != nil || !os.SameFile(mine, there) {
		return nil
	}
	return s.AdoptStream(ctx, key, f.Name())
}
