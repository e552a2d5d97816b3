package store

import (
	"fmt"

	"ronbox/appliance/b3"
)

// Tap is given each change of the file, in order. The committer calls it.
type Tap interface {
	// Last returns the sum of the last entry that was written and not undone, or zero. It is not
	// called in a cluster, whose log has the chain of entries.
	Last() b3.Digest
	// Write is called before a commit, with the entries that it brings into the file. They must not
	// be kept. Write cannot refuse them: a tap that cannot write says so to its own reader.
	Write(entries ...[]byte)
	// Undo is called if nothing of the entries of the last Write came into the file. It is not
	// called if that is unknown: the store is then poisoned.
	Undo()
}

// rowWriter is a bucket that rows are written into: a *bolt.Bucket, or an ownBucket.
type rowWriter interface {
	Put(key, value []byte) error
	Delete(key []byte) error
}

// pen writes the rows of the committer's transaction. Every change of a bucket goes through it, but
// for the rows of the bucket local, which are of this node alone.
type pen struct {
	capture bool   // there is a Replicator or a Tap: keep the changes for the entry
	raw     []byte // the encoded changes, after room for the head of an entry
	large   int    // bytes of values that take more than half a page
	names   nameLog
}

// write makes one change.
func (p *pen) write(c *write) error {
	p.names.note(c.t.home().Bucket, c.t.rows, c.op())
	if err := c.merge(); err != nil {
		return fmt.Errorf("merge into %s: %w", c.t.Name, err)
	}
	if p.capture {
		p.raw = appendOp(p.raw, c.op())
		if len(c.value) > PageSize/2 {
			p.large += len(c.value)
		}
	}
	return nil
}

// reset forgets the changes. It keeps the capacity, unless that is larger than most groups need.
func (p *pen) reset() {
	p.names.changes = p.names.changes[:0]
	if !p.capture {
		return
	}
	if cap(p.raw) > 2*maxGroupBytes {
		p.raw = nil
	}
	if p.raw == nil {
		p.raw = make([]byte, entryLen)
	}
	p.raw, p.large = p.raw[:entryLen], 0
}

// bytes returns the size of the encoded changes.
func (p *pen) bytes() int { return max(len(p.raw)-entryLen, 0) }

// entry returns the changes as an entry with the head e. The log may keep it.
func (p *pen) entry(e *entry) []byte {
	raw := make([]byte, 0, len(p.raw))
	raw = appendEntryHead(raw, e)
	raw = append(raw, p.raw[entryLen:]...)
	sealEntry(raw)
	return raw
}

// lend returns the changes as an entry with the head e, in the memory of the pen.
func (p *pen) lend(e *entry) []byte {
	appendEntryHead(p.raw[:0], e) // into the room that reset has left
	sealEntry(p.raw)
	return p.raw
}

// op returns the change as an entry holds it.
func (c *write) op() op {
	o := op{kind: opPut, bucket: c.t.home().Name, key: c.key, value: c.value}
	if c.t.in != nil {
		o.sub = c.t.Name
	}
	switch {
	case c.key == nil && c.t.in != nil:
		o.kind = opDrop
	case c.key == nil:
		o.kind = opClear
	case c.value == nil:
		o.kind = opDelete
	}
	return o
}

// size returns the number of bytes that the change takes in an entry.
func (c *write) size() int {
	n := opLen + len(c.t.Name) + len(c.key) + len(c.value)
	if c.t.in != nil {
		n += len(c.t.in.Name)
	}
	return n
}

// ownBucket is a bucket of the store itself in the committer's transaction.
type ownBucket struct {
	*table
	pen *pen
}

// Put sets a row.
func (p *ownBucket) Put(key, value []byte) error { return p.pen.write(&write{p.table, key, value}) }

// Delete removes a row.
func (p *ownBucket) Delete(key []byte) error { return p.pen.write(&write{p.table, key, nil}) }
