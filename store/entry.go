package store

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"ronbox/appliance/b3"
)

// Limits of a node of a cluster, in bytes.
const (
	MaxEntry      = 8 << 20 // an entry
	maxCommand    = 4 << 20 // the rows of one command as an entry holds them
	maxGroupBytes = 1 << 20 // the commands of one group, and their rows as an entry holds them
)

// ErrFormat is returned for an entry of another release, which this program cannot apply.
var ErrFormat = errors.New("store: an entry of another release")

// entryFormat is the version of the layout of an entry:
//
//	format    1 byte
//	sum       32 bytes: BLAKE3 of all that follows
//	nonce     16 bytes
//	prev      32 bytes: the sum of the entry before it
//	from, to  64 bytes each: the position before and after
//	ops       until the end
//
// An op is its kind (1 byte), the name of the bucket (length 1 byte), the name of the sub-bucket
// (length 2 bytes, 0: none), the key (length 2 bytes) and the value (length 4 bytes). All numbers
// are big-endian. There is one encoding of an entry.
const entryFormat = 1

const (
	nonceLen = 16
	placeLen = 4*8 + b3.Size // an encoded position
	sumEnd   = 1 + b3.Size
	entryLen = sumEnd + nonceLen + b3.Size + 2*placeLen
	opLen    = 1 + 1 + 2 + 2 + 4 // an op without its names and row
)

// opKind is the kind of a change.
type opKind uint8

const (
	opPut    opKind = 1
	opDelete opKind = 2
	opDrop   opKind = 3 // a sub-bucket
	opClear  opKind = 4 // a bucket
)

// MaxTapped is the maximum size of an entry that [ReadEntry] and [Replay] accept, bytes. The group
// of a node alone may have a larger one.
const MaxTapped = 64 << 20

// Position identifies the state of a file: what [Info] has of its commands and of its audit chain.
type Position [placeLen]byte

// Position returns the position of the file.
func (i Info) Position() Position { return Position(i.position().append(nil)) }

// Seq returns the number of commands accepted since the file was created.
func (p Position) Seq() uint64 { return positionAt(p[:]).seq }

// At returns the stamp of the last command, Unix ns.
func (p Position) At() int64 { return positionAt(p[:]).at }

// MarshalText implements encoding.TextMarshaler.
func (p Position) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, p[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Position) UnmarshalText(text []byte) error {
	raw, err := hex.DecodeString(string(text))
	if err == nil && len(raw) != len(p) {
		err = fmt.Errorf("a position of %d bytes", len(raw))
	}
	if err == nil {
		*p = Position(raw)
	}
	return err
}

// EntryHead is the part of an entry before its rows.
type EntryHead struct {
	Sum  b3.Digest
	Prev b3.Digest // sum of the entry before it
	From Position
	To   Position
}

// ReadEntry returns the head of an entry that a [Tap] was given. It returns ErrFormat if another
// release wrote it and ErrCorrupt if it is damaged.
func ReadEntry(raw []byte) (EntryHead, error) {
	if err := checkEntry(raw, MaxTapped); err != nil {
		return EntryHead{}, err
	}
	if raw[0] != entryFormat {
		return EntryHead{}, formatError(raw)
	}
	return HeadOf(raw), nil
}

// HeadOf is ReadEntry for an entry in the memory of the process that made it, which is not checked.
func HeadOf(raw []byte) EntryHead {
	return EntryHead{
		Sum: entrySum(raw), Prev: b3.Digest(raw[sumEnd+nonceLen:]),
		From: Position(raw[entryLen-2*placeLen:]), To: Position(raw[entryLen-placeLen:]),
	}
}

// entry is a transaction as the log of a cluster, or a Tap, holds it.
type entry struct {
	nonce [nonceLen]byte
	sum   b3.Digest
	prev  b3.Digest // sum of the entry before it
	from  position
	to    position
	ops   []op
}

// op is one change of a row. Its slices belong to the encoded entry.
type op struct {
	kind   opKind
	bucket string
	sub    string // "": a row of the bucket itself
	key    []byte
	value  []byte
}

// entrySum returns the sum that the encoded entry e has. Each sum covers the one before it, so it
// is also that of the chain of entries.
func entrySum(e []byte) b3.Digest { return b3.Digest(e[1:]) }

// sealEntry sets the sum of an entry that is otherwise complete.
func sealEntry(e []byte) {
	sum := b3.Sum(e[sumEnd:])
	copy(e[1:], sum[:])
}

// CheckEntry returns ErrCorrupt if e is not as it was proposed. It accepts entries of other
// releases.
func CheckEntry(e []byte) error { return checkEntry(e, MaxEntry) }

func checkEntry(e []byte, most int) error {
	switch {
	case len(e) > 0 && e[0] != entryFormat:
		return nil
	case len(e) < entryLen || len(e) > most:
		return fmt.Errorf("%w: an entry of %d bytes", ErrCorrupt, len(e))
	case b3.Sum(e[sumEnd:]) != entrySum(e):
		return fmt.Errorf("%w: an entry differs from its checksum", ErrCorrupt)
	}
	return nil
}

// EntryNonce returns the random number of an entry. It reports false if e is not an entry that this
// program can apply.
func EntryNonce(e []byte) (nonce [16]byte, ok bool) {
	if len(e) < entryLen || e[0] != entryFormat {
		return nonce, false
	}
	return [nonceLen]byte(e[sumEnd:]), true
}

// appendEntryHead appends the part before the ops, which sealEntry completes.
func appendEntryHead(b []byte, e *entry) []byte {
	b = append(b, entryFormat)
	b = append(b, make([]byte, b3.Size)...)
	b = append(b, e.nonce[:]...)
	b = append(b, e.prev[:]...)
	return e.to.append(e.from.append(b))
}

// append appends the encoded position.
func (p position) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, p.seq)
	b = binary.BigEndian.AppendUint64(b, uint64(p.at))
	b = binary.BigEndian.AppendUint64(b, p.auditSeq)
	b = append(b, p.auditHead[:]...)
	return binary.BigEndian.AppendUint64(b, p.auditFirst)
}

func positionAt(b []byte) position {
	return position{
		seq:        binary.BigEndian.Uint64(b),
		at:         int64(binary.BigEndian.Uint64(b[8:])),
		auditSeq:   binary.BigEndian.Uint64(b[16:]),
		auditHead:  b3.Digest(b[24:]),
		auditFirst: binary.BigEndian.Uint64(b[24+b3.Size:]),
	}
}

func appendOp(b []byte, o op) []byte {
	b = append(b, byte(o.kind), byte(len(o.bucket)))
	b = append(b, o.bucket...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(o.sub)))
	b = append(b, o.sub...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(o.key)))
	b = append(b, o.key...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(o.value)))
	return append(b, o.value...)
}

// parseEntry decodes an entry of at most the given size. It returns ErrFormat if another release
// wrote it and ErrCorrupt if it is damaged.
func parseEntry(raw []byte, most int) (e entry, err error) {
	if err := checkEntry(raw, most); err != nil {
		return e, err
	}
	if raw[0] != entryFormat {
		return e, formatError(raw)
	}
	e.sum = entrySum(raw)
	e.nonce = [nonceLen]byte(raw[sumEnd:])
	e.prev = b3.Digest(raw[sumEnd+nonceLen:])
	e.from = positionAt(raw[entryLen-2*placeLen:])
	e.to = positionAt(raw[entryLen-placeLen:])
	c := cursor{left: raw[entryLen:]}
	for len(c.left) > 0 {
		o, err := c.op()
		if err != nil {
			return e, fmt.Errorf("%w: op %d of an entry: %w", ErrCorrupt, len(e.ops), err)
		}
		e.ops = append(e.ops, o)
	}
	return e, nil
}

func formatError(raw []byte) error {
	return fmt.Errorf("%w: format %d, this program applies %d", ErrFormat, raw[0], entryFormat)
}

// cursor reads an encoded entry.
type cursor struct {
	left  []byte
	short bool // it ended too early
}

// take returns the next n bytes.
func (c *cursor) take(n int) []byte {
	if n > len(c.left) {
		c.short, c.left = true, nil
		return nil
	}
	b := c.left[:n:n]
	c.left = c.left[n:]
	return b
}

// sized returns the bytes after a length of n bytes.
func (c *cursor) sized(n int) []byte {
	length := 0
	for _, b := range c.take(n) {
		length = length<<8 | int(b)
	}
	return c.take(length)
}

func (c *cursor) op() (o op, err error) {
	if kind := c.take(1); kind != nil {
		o.kind = opKind(kind[0])
	}
	o.bucket, o.sub = string(c.sized(1)), string(c.sized(2))
	o.key, o.value = c.sized(2), c.sized(4)
	if c.short {
		return o, errors.New("it is incomplete")
	}
	return o, o.check()
}

// check returns an error if no group can have written o.
func (o op) check() error {
	row, value := len(o.key) > 0, len(o.value) > 0
	ok := false
	switch o.kind {
	case opPut:
		ok = row
	case opDelete:
		ok = row && !value
	case opDrop:
		ok = !row && !value && o.sub != ""
	case opClear:
		ok = !row && !value && o.sub == ""
	}
	switch {
	case !ok:
		return fmt.Errorf("kind %d, key of %d bytes, value of %d bytes", o.kind, len(o.key), len(o.value))
	case o.bucket == "" || o.bucket == localBucket.Name:
		return fmt.Errorf("bucket %q", o.bucket)
	case len(o.sub) > MaxKey || len(o.key) > MaxKey || len(o.value) > MaxValue:
		return fmt.Errorf("names and key of %d and %d bytes, value of %d bytes", len(o.sub), len(o.key), len(o.value))
	}
	return nil
}

// newNonce returns a random number that identifies an entry.
func newNonce() (n [nonceLen]byte, err error) {
	_, err = rand.Read(n[:])
	return n, err
}
