package executions

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/beneath"
	"e3/internal/host/runner"
)

// A Batch is one command for the items of several requests. Each request has its own key, claim, folder, output and
// record; they share the command and what it prints.
//
// The command starts when every request has either joined, with its own inputs staged, or left: because the answer was
// known, because it failed before, or because it has to wait for another process. None waits for another process after
// it has joined, so two runs with the same items never wait for each other.
type Batch struct {
	turn    sync.Mutex // held while a command of one of the requests waits to be admitted or runs
	mu      sync.Mutex
	missing int // requests that have neither joined nor left
	joined  []*attempt
	formed  chan struct{}
}

// NewBatch returns a batch of n requests, which name it as Request.Batch, each with a Place of its own.
func NewBatch(n int) *Batch { return &Batch{missing: n, formed: make(chan struct{})} }

// A Place is the place of a request in its batch. Its methods do nothing if it is nil.
type Place struct {
	Batch *Batch
	Index int // in the order of the items
	away  bool
}

// A shared is the command of the attempts that have joined a batch and have everything in common that is not an item's
// own.
type shared struct {
	members    []*attempt
	began, end time.Time // of the command
	res        runner.Result
	err        error // of the command
	fault      error // nothing ran
	done       chan struct{}
}

// Leave says that the request does not join any more. It may be called several times, and after join.
func (p *Place) Leave() {
	if p == nil || p.away {
		return
	}
	p.away = true
	p.Batch.arrive(nil)
}

// join waits until the batch is complete. It returns nil if the request has left.
func (p *Place) join(a *attempt) *shared {
	if p == nil || p.away {
		return nil
	}
	p.away = true
	p.Batch.arrive(a)
	<-p.Batch.formed
	return a.shared
}

// arrive counts a request; with the last one it divides those that have joined.
func (b *Batch) arrive(a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a != nil {
		b.joined = append(b.joined, a)
	}
	if b.missing--; b.missing > 0 {
		return
	}
	slices.SortFunc(b.joined, func(a, c *attempt) int { return cmp.Compare(a.req.Place.Index, c.req.Place.Index) })
	groups := map[string]*shared{}
	for _, a := range b.joined {
		same := a.common()
		if groups[same] == nil {
			groups[same] = &shared{done: make(chan struct{})}
		}
		a.shared = groups[same]
		a.shared.members = append(a.shared.members, a)
	}
	close(b.formed)
}

// common is equal for attempts that one command can serve: what the command gets beside the items.
func (a *attempt) common() string {
	t := *a.spec
	t.Env, t.Inputs = nil, nil
	var b strings.Builder
	for _, e := range a.spec.Env {
		if !a.spec.Batch.Owns(e.Name) {
			t.Env = append(t.Env, e)
		}
	}
	for i, in := range a.spec.Inputs {
		if !a.ownsInput(in) {
			t.Inputs = append(t.Inputs, in)
			b.Write(a.req.Inputs[i][:])
		}
	}
	b.Write(t.Encode())
	b.WriteString(a.req.Step)
	return b.String()
}

// ownsInput tells whether an input belongs to the item that a batch serves.
func (a *attempt) ownsInput(in record.Input) bool {
	return a.spec.Batch != nil && !in.Kind.OfMachine() && a.spec.Batch.Owns(in.Name)
}

// Where the command of a batch finds its items, in its working directory. The folder of each is named by its number.
const (
	batchFolder = ".e3-batch"
	batchFile   = batchFolder + "/items.json"
	batchEnv    = "E3_BATCH"
)

func itemFolder(number int) string { return batchFolder + "/" + strconv.Itoa(number) }

// inFolder returns a task with everything that belongs to the item in the item's folder. Each item is number 0 in its
// own sandbox.
func inFolder(t *record.Task) *record.Task {
	if t.Batch == nil {
		return t
	}
	moved := *t
	moved.Inputs = slices.Clone(t.Inputs)
	for i := range moved.Inputs {
		if in := &moved.Inputs[i]; in.Path != "" && t.Batch.Owns(in.Name) {
			in.Path = path.Join(itemFolder(0), in.Path)
		}
	}
	moved.Output.Entries = slices.Clone(t.Output.Entries)
	for i := range moved.Output.Entries {
		moved.Output.Entries[i].Path = path.Join(itemFolder(0), moved.Output.Entries[i].Path)
	}
	return &moved
}

// numbered is a path of item 0 as one of another item.
func numbered(p string, number int) string {
	if rest, own := strings.CutPrefix(p, itemFolder(0)+"/"); own {
		return itemFolder(number) + "/" + rest
	}
	return p
}

// itemsJSON is the file of a batch.
type itemsJSON struct {
	Items []itemJSON `json:"items"`
}

// write writes the file, in which each item has a line.
func (l *itemsJSON) write(in *beneath.Dir, file string) error {
	var b bytes.Buffer
	b.WriteString("{\"items\": [")
	for i := range l.Items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(&l.Items[i]); err != nil {
			return err
		}
		b.Truncate(b.Len() - 1) // its newline
	}
	b.WriteString("\n]}\n")
	return writeFile(in, file, b.Bytes())
}

// itemJSON is an item in the file of a batch.
type itemJSON struct {
	Matrix map[string]string `json:"matrix"`
	In     map[string]string `json:"in"`
	Out    map[string]string `json:"out"`
}

// item describes the attempt's item to its command.
func (a *attempt) item(number int) itemJSON {
	it := itemJSON{Matrix: map[string]string{}, In: map[string]string{}, Out: map[string]string{}}
	for _, e := range a.spec.Env {
		if a.spec.Batch.Owns(e.Name) {
			it.Matrix[e.Name] = e.Value
		}
	}
	for i, in := range a.spec.Inputs {
		if a.ownsInput(in) {
			it.In[in.Name] = numbered(a.texts[i], number)
		}
	}
	for _, out := range a.spec.Output.Entries {
		it.Out[out.Name] = numbered(out.Path, number)
	}
	return it
}

// perform runs the command of a task once its own inputs are staged: that of the attempt alone, or that of a batch, which
// the first of its members runs. A fault means that nothing ran.
func (a *attempt) perform(ctx, lasting context.Context, env []string) (res runner.Result, err, fault error) {
	if a.spec.Batch == nil {
		a.req.Place.Leave()
		return a.admitted(ctx, lasting, env)
	}
	g := a.req.Place.join(a)
	switch {
	case g == nil || len(g.members) == 1:
		a.shared = nil
	case g.members[0] != a:
		<-g.done
		return g.res, g.err, g.fault
	default:
		defer close(g.done)
	}
	if p := a.req.Place; p != nil {
		p.Batch.turn.Lock()
		defer p.Batch.turn.Unlock()
	}
	members := a.served()
	defer func() {
		if back := a.giveBack(members); back != nil && fault == nil && err == nil {
			err = back
		}
		if g != nil {
			g.res, g.err, g.fault = res, err, fault
		}
	}()
	if env, fault = a.takeItems(ctx, members); fault != nil {
		return res, nil, fmt.Errorf("stage inputs: %w", fault)
	}
	res, err, fault = a.admitted(ctx, lasting, env)
	if a.shared != nil && fault == nil {
		a.shared.began, a.shared.end = a.startedAt, a.x.opts.Now().Truncate(time.Millisecond)
		if err == nil {
			err = a.copyLogs(members)
		}
	}
	return res, err, fault
}

// served are the attempts whose items the attempt's command serves.
func (a *attempt) served() []*attempt {
	if a.shared == nil {
		return []*attempt{a}
	}
	return a.shared.members
}

// takeItems makes the sandbox of the command ready: with what its items have in common, the folders of all items, and the
// file that lists them. It returns the command's environment.
func (a *attempt) takeItems(ctx context.Context, members []*attempt) ([]string, error) {
	env, err := a.stageCommon(ctx)
	if err != nil {
		return nil, err
	}
	var items itemsJSON
	for number, m := range members {
		items.Items = append(items.Items, m.item(number))
		if m == a {
			continue
		}
		if err := m.box.work.Rename(filepath.FromSlash(itemFolder(0)), a.box.work, filepath.FromSlash(itemFolder(number))); err != nil {
			return nil, err
		}
		m.moved = true
	}
	file := filepath.FromSlash(batchFile)
	if err := a.box.file(file); err != nil {
		return nil, err
	}
	if err := items.write(a.box.work, file); err != nil {
		return nil, err
	}
	return env, a.box.fix(file, stagedFile)
}

// giveBack moves the folders of items to where they came from. A folder that the command has removed or replaced stays
// away: its item then lacks its output.
func (a *attempt) giveBack(members []*attempt) error {
	for number, m := range members {
		if !m.moved {
			continue
		}
		m.moved = false
		from := filepath.FromSlash(itemFolder(number))
		if !a.box.work.IsDir(from) {
			continue
		}
		if err := a.box.work.Rename(from, m.box.work, filepath.FromSlash(itemFolder(0))); err != nil {
			return fmt.Errorf("take an item out of its batch: %w", err)
		}
	}
	return nil
}

// mostCopied bounds how much of each log of a batch is kept with the items after the first, which has all of it.
const mostCopied = 16 << 10

// copyLogs gives each item what the command of its batch has printed.
func (a *attempt) copyLogs(members []*attempt) error {
	for i, log := range a.logs() {
		if log.file == nil {
			continue
		}
		text := make([]byte, mostCopied+1)
		n, err := log.file.ReadAt(text, 0)
		if n == 0 {
			continue
		}
		if text = text[:n]; n > mostCopied {
			text = append(text[:mostCopied], fmt.Sprintf("\n[e3: the rest is in the log of execution %s, the first of this batch]\n", a.id)...)
		} else if err != nil && err != io.EOF {
			return fmt.Errorf("copy the log of a batch: %w", err)
		}
		for _, m := range members {
			if m == a {
				continue
			}
			if _, err := m.logs()[i].file.Write(text); err != nil {
				return fmt.Errorf("copy the log of a batch: %w", err)
			}
		}
	}
	return nil
}

// batch is the batch in which the attempt's command served its item.
func (a *attempt) batch() record.Batched {
	if a.shared == nil {
		return record.Batched{}
	}
	return record.Batched{ID: a.shared.members[0].id, Items: len(a.shared.members)}
}

// divide gives the attempt its part of the time of its batch: equal parts, one after the other in the order of the items.
// e3 does not see which item the command was at.
func (a *attempt) divide(end time.Time, res *runner.Result) time.Time {
	g := a.shared
	if g == nil || g.end.IsZero() {
		return end
	}
	n := time.Duration(len(g.members))
	number := time.Duration(slices.Index(g.members, a))
	took := g.end.Sub(g.began)
	a.startedAt = g.began.Add(took * number / n).Truncate(time.Millisecond)
	res.UserCPU, res.SystemCPU = res.UserCPU/n, res.SystemCPU/n
	return g.began.Add(took * (number + 1) / n).Truncate(time.Millisecond)
}

// ofBatch turns the failure of a batch's command, or of an item in it, into one that says nothing about the item, which
// is then tried alone.
func (a *attempt) ofBatch(v verdict) verdict {
	if a.shared == nil || v.err != nil {
		return v
	}
	how := v.message
	switch v.reason {
	case ReasonNone, ReasonSuspended:
		if v.state == record.Success {
			return v
		}
		how = fmt.Sprintf("exit code %d", a.shared.res.ExitCode)
	case ReasonTimeout, ReasonOOM, ReasonSignal, ReasonStart:
	case ReasonOutput: // its folder is its own again
		how = strings.ReplaceAll(how, itemFolder(0)+"/", itemFolder(slices.Index(a.shared.members, a))+"/")
	default:
		return v
	}
	return verdict{state: record.Error, reason: ReasonBatch, message: fmt.Sprintf("in a batch of %d: %s", len(a.shared.members), how)}
}
