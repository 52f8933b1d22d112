package executions

import (
	"context"
	"sync"
	"time"

	"e3/internal/format/record"
	"e3/internal/host/room"
	"e3/internal/host/runner"
	"e3/objectstore"
	"e3/objectstore/tree"
)

// MinCopied is how many bytes must have been copied again before a person is told: a disk is busy with them for a
// second, and commands that run at the same time fill it by as much.
const MinCopied = 256 << 20

// copies counts the large inputs that commands in the open room had copied although an earlier command had them: in a
// closed room commands share one copy. Where files share blocks with objects, nothing is counted.
type copies struct {
	mu    sync.Mutex
	known map[objectstore.Hash]bool // inputs that were copied once
	bytes int64
}

// add counts a copy.
func (c *copies) add(h objectstore.Hash, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[h] {
		c.bytes += size
		return
	}
	if c.known == nil {
		c.known = map[objectstore.Hash]bool{}
	}
	c.known[h] = true
}

// countCopy counts an input that was staged in the open room and that a closed room would have shown in its place. What
// cannot be measured is not counted.
func (b *box) countCopy(ctx context.Context, in record.Input, h objectstore.Hash, rel string) {
	if b.spec.Room.Closed || b.x.objects.Shares() {
		return
	}
	entry, ok, err := b.large(ctx, in, h, rel)
	size := treeSize{bytes: entry.Size}
	if ok && entry.Kind == tree.KindDir {
		size, err = b.x.checkouts.size(ctx, h)
	}
	if ok && err == nil {
		b.x.copies.add(h, size.bytes)
	}
}

// CopiedAgain returns the bytes of large inputs that commands in the open room had copied although an earlier command
// of this process had a copy.
func (x *Executor) CopiedAgain() int64 {
	x.copies.mu.Lock()
	defer x.copies.mu.Unlock()
	return x.copies.bytes
}

// RoomsShare finds out whether commands in closed rooms can share one copy of an input on this machine.
func (x *Executor) RoomsShare(ctx context.Context) bool {
	box, err := x.sandboxes.acquire()
	if err != nil {
		return false
	}
	defer box.drop() // it goes with the folder of this process
	const lower = "lower"
	for _, name := range []string{lower, scratchFolder} {
		if box.root.Mkdir(name, 0o700) != nil {
			return false
		}
	}
	within := box.root.Name() + "/"
	res, err := x.runner.Run(ctx, runner.Spec{
		Argv: []string{"true"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: box.work.Name(), Stdout: box.logs.stdout, Stderr: box.logs.stderr,
		Timeout: 10 * time.Second, Room: box.root.Name(), Marker: marker(box.name), Grace: x.opts.Grace,
		Closed: &room.Room{Base: box.in.Name(), Folder: box.room.Name(), Lower: []string{within + lower}, Scratch: within + scratchFolder},
	})
	return err == nil && res.Success()
}
