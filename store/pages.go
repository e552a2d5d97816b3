package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Flags of a bbolt page and of a leaf element.
const (
	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketEntry  = 0x01
	elementLen   = 16
	bucketHead   = 16 // root page and sequence, before an inline page
	maxDepth     = 64
)

// treePageMax is more than the size of any branch or leaf page: bbolt does not split pages of up to
// four rows, each of at most MaxKey and MaxValue.
const treePageMax = 16 << 20

// pageWalk follows every page from the root with plain reads and checks each bound before it uses
// it.
type pageWalk struct {
	f    io.ReaderAt
	meta metaPage
	seen []uint64 // bitmap of the visited pages, used or free
	met  uint64
	each func(met uint64) error // called every walkTold pages; an error ends the walk; may be nil
}

// walkTold is a MiB of pages.
const walkTold = 1 << 20 / PageSize

func newPageWalk(f io.ReaderAt, size int64) (*pageWalk, error) {
	m, err := preflight(f, size)
	if err != nil {
		return nil, err
	}
	return &pageWalk{f: f, meta: m, seen: make([]uint64, m.highWater/64+1)}, nil
}

// all checks the structure of the file: page ids, page types, element bounds, key order, and that
// each page is either used or free, once. It detects damage that would lead a reader outside of the
// map. It does not detect changed values.
func (w *pageWalk) all() error {
	if _, err := w.freelist(); err != nil {
		return err
	}
	if err := w.page(w.meta.root, span{}, 0); err != nil {
		return err
	}
	if lost := w.meta.highWater - 2 - w.met; lost != 0 {
		return fmt.Errorf("%w: %d pages are neither used nor free", ErrCorrupt, lost)
	}
	return nil
}

// mark records n pages from id on as visited.
func (w *pageWalk) mark(id, n uint64) error {
	if id < 2 || id >= w.meta.highWater || n > w.meta.highWater-id {
		return damaged(id, "is out of bounds")
	}
	for ; n > 0; id, n = id+1, n-1 {
		if w.seen[id/64]&(1<<(id%64)) != 0 {
			return damaged(id, "is used twice")
		}
		w.seen[id/64] |= 1 << (id % 64)
		if w.met++; w.met%walkTold == 0 && w.each != nil {
			if err := w.each(w.met); err != nil {
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
func (w *pageWalk) head(id uint64, most int64) (h pageHead, err error) {
	var b [pageHeader]byte
	if id >= w.meta.highWater {
		return h, damaged(id, "is out of bounds")
	}
	if _, err := w.f.ReadAt(b[:], int64(id)*PageSize); err != nil {
		return h, damaged(id, err.Error())
	}
	le := binary.LittleEndian
	if le.Uint64(b[:]) != id {
		return h, damaged(id, "has a wrong id")
	}
	n := uint64(le.Uint32(b[12:])) + 1
	h = pageHead{flags: le.Uint16(b[8:]), count: int(le.Uint16(b[10:])), size: int64(n) * PageSize}
	if h.size > most {
		return h, damaged(id, "is too large")
	}
	return h, w.mark(id, n)
}

// freelist marks and counts the free pages.
func (w *pageWalk) freelist() (free uint64, err error) {
	h, err := w.head(w.meta.freelist, pageHeader+8*int64(w.meta.highWater+1)+PageSize) // one id per page, rounded up
	if err != nil {
		return 0, err
	}
	if h.flags != freelistPage {
		return 0, damaged(w.meta.freelist, "is not a freelist")
	}
	ids := bufio.NewReader(io.NewSectionReader(w.f, int64(w.meta.freelist)*PageSize+pageHeader, h.size-pageHeader))
	var b [8]byte
	count := uint64(h.count)
	if count == 0xFFFF { // the count is the first number
		if _, err := io.ReadFull(ids, b[:]); err != nil {
			return 0, damaged(w.meta.freelist, err.Error())
		}
		count = binary.LittleEndian.Uint64(b[:])
	}
	for range count {
		if _, err := io.ReadFull(ids, b[:]); err != nil {
			return 0, damaged(w.meta.freelist, "is shorter than its count")
		}
		if err := w.mark(binary.LittleEndian.Uint64(b[:]), 1); err != nil {
			return 0, fmt.Errorf("freelist: %w", err)
		}
	}
	return count, nil
}

// span bounds the keys below a branch element: lo is included, hi is not; nil means no bound.
type span struct{ lo, hi []byte }

// holds reports whether key is within s and may follow before on its page. before is nil for the
// first key.
func (s span) holds(before, key []byte) bool {
	if s.hi != nil && bytes.Compare(key, s.hi) >= 0 {
		return false
	}
	if before == nil {
		return bytes.Compare(s.lo, key) <= 0
	}
	return bytes.Compare(before, key) < 0
}

func (w *pageWalk) page(id uint64, keys span, depth int) error {
	h, err := w.head(id, treePageMax)
	if err != nil {
		return err
	}
	if depth > maxDepth || h.flags != branchPage && h.flags != leafPage || h.flags == branchPage && h.count == 0 {
		return damaged(id, "is neither branch nor leaf")
	}
	page := make([]byte, h.size)
	if _, err := w.f.ReadAt(page, int64(id)*PageSize); err != nil {
		return damaged(id, err.Error())
	}
	return w.elements(id, page, h, keys, depth)
}

// elements checks the elements of a page, which may be inline in the value of a bucket, and the
// pages below.
func (w *pageWalk) elements(id uint64, page []byte, h pageHead, keys span, depth int) error {
	if len(page) < pageHeader+h.count*elementLen {
		return damaged(id, "is shorter than its count")
	}
	var before pageElement
	for i := range h.count {
		e, err := element(page, pageHeader+i*elementLen, h.flags)
		if err != nil {
			return damaged(id, fmt.Sprintf("element %d: %v", i, err))
		}
		if !keys.holds(before.key, e.key) {
			return damaged(id, fmt.Sprintf("element %d: keys are not in order", i))
		}
		if i > 0 {
			err = w.down(id, before, span{before.key, e.key}, h.flags, depth)
		}
		if err != nil {
			return err
		}
		before = e
	}
	if h.count == 0 {
		return nil
	}
	return w.down(id, before, span{before.key, keys.hi}, h.flags, depth)
}

// down checks the page below an element: a page of the same tree, with bounds on its keys, or the
// tree of a bucket.
func (w *pageWalk) down(id uint64, e pageElement, keys span, flags uint16, depth int) error {
	le := binary.LittleEndian
	switch {
	case flags == branchPage:
		return w.page(e.child, keys, depth+1)
	case e.flags&bucketEntry == 0:
		return nil
	case len(e.value) < bucketHead:
		return damaged(id, "has a bucket without a head")
	}
	if root := le.Uint64(e.value); root != 0 {
		return w.page(root, span{}, depth+1)
	}
	inline := e.value[bucketHead:]
	if len(inline) < pageHeader || le.Uint16(inline[8:]) != leafPage || depth > maxDepth {
		return damaged(id, "has an inline bucket without a leaf")
	}
	return w.elements(id, inline, pageHead{flags: leafPage, count: int(le.Uint16(inline[10:]))}, span{}, depth+1)
}

// pageElement is one element of a branch or a leaf.
type pageElement struct {
	flags      uint32
	child      uint64
	key, value []byte
}

// element reads the element with the header at page[at:]. Its positions are relative to at.
func element(page []byte, at int, flags uint16) (e pageElement, err error) {
	le, head := binary.LittleEndian, page[at:at+elementLen]
	pos, ksize, vsize := le.Uint32(head), le.Uint32(head[4:]), uint32(0)
	if flags == leafPage {
		e.flags = le.Uint32(head)
		pos, ksize, vsize = le.Uint32(head[4:]), le.Uint32(head[8:]), le.Uint32(head[12:])
	} else {
		e.child = le.Uint64(head[8:])
	}
	start := uint64(at) + uint64(pos)
	if start+uint64(ksize)+uint64(vsize) > uint64(len(page)) {
		return e, errors.New("reaches beyond its page")
	}
	e.key = page[start : start+uint64(ksize)]
	e.value = page[start+uint64(ksize) : start+uint64(ksize)+uint64(vsize)]
	return e, nil
}

func damaged(page uint64, what string) error {
	return fmt.Errorf("%w: page %d %s", ErrCorrupt, page, what)
}
