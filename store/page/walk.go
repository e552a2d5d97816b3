package page

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Size is the size of the pages of every file, in bytes.
const Size = 4096

// ErrCorrupt is returned for a file that is damaged.
var ErrCorrupt = errors.New("store: file is damaged")

// Flags of a bbolt page and of a leaf element.
const (
	Branch       = 0x01
	Leaf         = 0x02
	freelistPage = 0x10
	bucketEntry  = 0x01
	ElementLen   = 16 // of the header of an element
	bucketHead   = 16 // root page and sequence, before an inline page
	MaxDepth     = 64 // of a tree
)

// TreeMax is more than the size of any branch or leaf page: bbolt does not split pages of up to
// four rows, each of at most MaxKey and MaxValue.
const TreeMax = 16 << 20

// Walk follows every page from the root with plain reads and checks each bound before it uses it.
type Walk struct {
	f    io.ReaderAt
	Meta Meta
	seen []uint64 // bitmap of the visited pages, used or free
	met  uint64
	Each func(met uint64) error // called every walkTold pages; an error ends the walk; may be nil
}

// walkTold is a MiB of pages.
const walkTold = 1 << 20 / Size

// NewWalk returns a walk of a file of size bytes, after Preflight.
func NewWalk(f io.ReaderAt, size int64) (*Walk, error) {
	m, err := Preflight(f, size)
	if err != nil {
		return nil, err
	}
	return &Walk{f: f, Meta: m, seen: make([]uint64, m.HighWater/64+1)}, nil
}

// All checks the structure of the file: page ids, page types, element bounds, key order, and that
// each page is either used or free, once. It detects damage that would lead a reader outside of the
// map. It does not detect changed values.
func (w *Walk) All() error {
	if _, err := w.Freelist(); err != nil {
		return err
	}
	if err := w.page(w.Meta.root, Span{}, 0); err != nil {
		return err
	}
	if lost := w.Meta.HighWater - 2 - w.met; lost != 0 {
		return fmt.Errorf("%w: %d pages are neither used nor free", ErrCorrupt, lost)
	}
	return nil
}

// mark records n pages from id on as visited.
func (w *Walk) mark(id, n uint64) error {
	if id < 2 || id >= w.Meta.HighWater || n > w.Meta.HighWater-id {
		return damaged(id, "is out of bounds")
	}
	for ; n > 0; id, n = id+1, n-1 {
		if w.seen[id/64]&(1<<(id%64)) != 0 {
			return damaged(id, "is used twice")
		}
		w.seen[id/64] |= 1 << (id % 64)
		if w.met++; w.met%walkTold == 0 && w.Each != nil {
			if err := w.Each(w.met); err != nil {
				return err
			}
		}
	}
	return nil
}

// pageHead is the header of a page.
type pageHead struct {
	flags uint16
	count int
	size  int64 // bytes, header and overflow included
}

// head reads the header of a page of at most most bytes and marks the page.
func (w *Walk) head(id uint64, most int64) (h pageHead, err error) {
	var b [Header]byte
	if id >= w.Meta.HighWater {
		return h, damaged(id, "is out of bounds")
	}
	if _, err := w.f.ReadAt(b[:], int64(id)*Size); err != nil {
		return h, damaged(id, err.Error())
	}
	le := binary.LittleEndian
	if le.Uint64(b[:]) != id {
		return h, damaged(id, "has a wrong id")
	}
	n := uint64(le.Uint32(b[12:])) + 1
	h = pageHead{flags: le.Uint16(b[8:]), count: int(le.Uint16(b[10:])), size: int64(n) * Size}
	if h.size > most {
		return h, damaged(id, "is too large")
	}
	return h, w.mark(id, n)
}

// Freelist marks and counts the free pages.
func (w *Walk) Freelist() (free uint64, err error) {
	h, err := w.head(w.Meta.Freelist, Header+8*int64(w.Meta.HighWater+1)+Size) // one id per page, rounded up
	if err != nil {
		return 0, err
	}
	if h.flags != freelistPage {
		return 0, damaged(w.Meta.Freelist, "is not a freelist")
	}
	ids := bufio.NewReader(io.NewSectionReader(w.f, int64(w.Meta.Freelist)*Size+Header, h.size-Header))
	var b [8]byte
	count := uint64(h.count)
	if count == 0xFFFF { // the count is the first number
		if _, err := io.ReadFull(ids, b[:]); err != nil {
			return 0, damaged(w.Meta.Freelist, err.Error())
		}
		count = binary.LittleEndian.Uint64(b[:])
	}
	for range count {
		if _, err := io.ReadFull(ids, b[:]); err != nil {
			return 0, damaged(w.Meta.Freelist, "is shorter than its count")
		}
		if err := w.mark(binary.LittleEndian.Uint64(b[:]), 1); err != nil {
			return 0, fmt.Errorf("freelist: %w", err)
		}
	}
	return count, nil
}

// Span bounds the keys below a branch element: lo is included, hi is not; nil means no bound.
type Span struct{ Lo, Hi []byte }

// holds reports whether key is within s and may follow before on its page. before is nil for the
// first key.
func (s Span) holds(before, key []byte) bool {
	if s.Hi != nil && bytes.Compare(key, s.Hi) >= 0 {
		return false
	}
	if before == nil {
		return bytes.Compare(s.Lo, key) <= 0
	}
	return bytes.Compare(before, key) < 0
}

func (w *Walk) page(id uint64, keys Span, depth int) error {
	h, err := w.head(id, TreeMax)
	if err != nil {
		return err
	}
	if depth > MaxDepth || h.flags != Branch && h.flags != Leaf || h.flags == Branch && h.count == 0 {
		return damaged(id, "is neither branch nor leaf")
	}
	page := make([]byte, h.size)
	if _, err := w.f.ReadAt(page, int64(id)*Size); err != nil {
		return damaged(id, err.Error())
	}
	return w.elements(id, page, h, keys, depth)
}

// elements checks the elements of a page, which may be inline in the value of a bucket, and the
// pages below.
func (w *Walk) elements(id uint64, page []byte, h pageHead, keys Span, depth int) error {
	if len(page) < Header+h.count*ElementLen {
		return damaged(id, "is shorter than its count")
	}
	var before Element
	for i := range h.count {
		e, err := ElementAt(page, Header+i*ElementLen, h.flags)
		if err != nil {
			return damaged(id, fmt.Sprintf("element %d: %v", i, err))
		}
		if !keys.holds(before.Key, e.Key) {
			return damaged(id, fmt.Sprintf("element %d: keys are not in order", i))
		}
		if i > 0 {
			err = w.down(id, before, Span{before.Key, e.Key}, h.flags, depth)
		}
		if err != nil {
			return err
		}
		before = e
	}
	if h.count == 0 {
		return nil
	}
	return w.down(id, before, Span{before.Key, keys.Hi}, h.flags, depth)
}

// down checks the page below an element: a page of the same tree, with bounds on its keys, or the
// tree of a bucket.
func (w *Walk) down(id uint64, e Element, keys Span, flags uint16, depth int) error {
	le := binary.LittleEndian
	switch {
	case flags == Branch:
		return w.page(e.Child, keys, depth+1)
	case e.flags&bucketEntry == 0:
		return nil
	case len(e.value) < bucketHead:
		return damaged(id, "has a bucket without a head")
	}
	if root := le.Uint64(e.value); root != 0 {
		return w.page(root, Span{}, depth+1)
	}
	inline := e.value[bucketHead:]
	if len(inline) < Header || le.Uint16(inline[8:]) != Leaf || depth > MaxDepth {
		return damaged(id, "has an inline bucket without a leaf")
	}
	return w.elements(id, inline, pageHead{flags: Leaf, count: int(le.Uint16(inline[10:]))}, Span{}, depth+1)
}

// Element is one element of a branch or a leaf.
type Element struct {
	flags      uint32
	Child      uint64
	Key, value []byte
}

// ElementAt reads the element with the header at page[at:]. Its positions are relative to at.
func ElementAt(page []byte, at int, flags uint16) (e Element, err error) {
	le, head := binary.LittleEndian, page[at:at+ElementLen]
	pos, ksize, vsize := le.Uint32(head), le.Uint32(head[4:]), uint32(0)
	if flags == Leaf {
		e.flags = le.Uint32(head)
		pos, ksize, vsize = le.Uint32(head[4:]), le.Uint32(head[8:]), le.Uint32(head[12:])
	} else {
		e.Child = le.Uint64(head[8:])
	}
	start := uint64(at) + uint64(pos)
	if start+uint64(ksize)+uint64(vsize) > uint64(len(page)) {
		return e, errors.New("reaches beyond its page")
	}
	e.Key = page[start : start+uint64(ksize)]
	e.value = page[start+uint64(ksize) : start+uint64(ksize)+uint64(vsize)]
	return e, nil
}

func damaged(page uint64, what string) error {
	return fmt.Errorf("%w: page %d %s", ErrCorrupt, page, what)
}
