package store

import (
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

// pageWalk follows every page from the root with plain reads, each bound checked before it is used.
type pageWalk struct {
	f    io.ReaderAt
	meta metaPage
	seen []bool // by page
}

// walkPages checks the structure of a file: page ids, kinds, element bounds, key order, no page reached twice. It finds damage that would
// send a reader of the map outside of it; it does not see a changed value.
func walkPages(f io.ReaderAt, size int64) error {
	m, err := preflight(f, size)
	if err != nil {
		return err
	}
	w := &pageWalk{f: f, meta: m, seen: make([]bool, m.highWater)}
	if _, err := w.freelist(); err != nil {
		return err
	}
	return w.page(m.root, 0)
}

// load reads a page with its overflow and checks its header.
func (w *pageWalk) load(id uint64) (page []byte, flags uint16, count int, err error) {
	if id < 2 || id >= w.meta.highWater || w.seen[id] {
		return nil, 0, 0, damaged(id, "is out of bounds or used twice")
	}
	head := make([]byte, pageHeader)
	if _, err := w.f.ReadAt(head, int64(id)*PageSize); err != nil {
		return nil, 0, 0, damaged(id, err.Error())
	}
	le := binary.LittleEndian
	more := uint64(le.Uint32(head[12:]))
	if le.Uint64(head) != id || id+more >= w.meta.highWater {
		return nil, 0, 0, damaged(id, "has a wrong id or length")
	}
	for i := id; i <= id+more; i++ {
		if w.seen[i] {
			return nil, 0, 0, damaged(i, "is used twice")
		}
		w.seen[i] = true
	}
	page = make([]byte, (more+1)*PageSize)
	if _, err := w.f.ReadAt(page, int64(id)*PageSize); err != nil {
		return nil, 0, 0, damaged(id, err.Error())
	}
	return page, le.Uint16(head[8:]), int(le.Uint16(head[10:])), nil
}

// freelist counts the pages that are free.
func (w *pageWalk) freelist() (free int, err error) {
	page, flags, count, err := w.load(w.meta.freelist)
	if err != nil {
		return 0, err
	}
	if flags != freelistPage {
		return 0, damaged(w.meta.freelist, "is not a freelist")
	}
	ids := page[pageHeader:]
	if count == 0xFFFF { // the count did not fit: it is the first number
		count = int(min(binary.LittleEndian.Uint64(ids), w.meta.highWater))
		ids = ids[8:]
	}
	if count > len(ids)/8 {
		return 0, damaged(w.meta.freelist, "is shorter than its count")
	}
	for i := range count {
		if id := binary.LittleEndian.Uint64(ids[i*8:]); id < 2 || id >= w.meta.highWater {
			return 0, damaged(w.meta.freelist, "names a page out of bounds")
		}
	}
	return count, nil
}

func (w *pageWalk) page(id uint64, depth int) error {
	page, flags, count, err := w.load(id)
	if err != nil {
		return err
	}
	if depth > maxDepth || flags != branchPage && flags != leafPage {
		return damaged(id, "is neither branch nor leaf")
	}
	return w.elements(id, page, flags, count, depth)
}

// elements checks the elements of a page, which may be inline in the value of a bucket, and goes down.
func (w *pageWalk) elements(id uint64, page []byte, flags uint16, count, depth int) error {
	if len(page) < pageHeader+count*elementLen {
		return damaged(id, "is shorter than its count")
	}
	var last []byte
	for i := range count {
		at := pageHeader + i*elementLen
		e, err := element(page, at, flags)
		if err != nil {
			return damaged(id, fmt.Sprintf("element %d: %v", i, err))
		}
		if i > 0 && bytes.Compare(last, e.key) >= 0 {
			return damaged(id, fmt.Sprintf("element %d: keys are not in order", i))
		}
		last = e.key
		if err := w.down(id, e, flags, depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *pageWalk) down(id uint64, e pageElement, flags uint16, depth int) error {
	le := binary.LittleEndian
	switch {
	case flags == branchPage:
		return w.page(e.child, depth+1)
	case e.flags&bucketEntry == 0:
		return nil
	case len(e.value) < bucketHead:
		return damaged(id, "has a bucket without a head")
	}
	if root := le.Uint64(e.value); root != 0 {
		return w.page(root, depth+1)
	}
	inline := e.value[bucketHead:]
	if len(inline) < pageHeader || le.Uint16(inline[8:]) != leafPage || depth > maxDepth {
		return damaged(id, "has an inline bucket without a leaf")
	}
	return w.elements(id, inline, leafPage, int(le.Uint16(inline[10:])), depth+1)
}

// pageElement is one element of a branch or a leaf.
type pageElement struct {
	flags      uint32
	child      uint64
	key, value []byte
}

// element reads the element whose head is at page[at:]; positions count from there.
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
