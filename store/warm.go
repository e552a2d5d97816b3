package store

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"slices"
	"sort"

	"golang.org/x/sys/unix"
)

// Warm asks the kernel to read the pages in which the rows of keys, ascending, lie, all side by side, and waits only for those above them:
// Gets one after the other would wait for each in turn. It is a hint for tables that memory may not hold: it says nothing, reads what was
// committed, and costs one to three microseconds a key where all is in memory.
func Warm(r Reader, b *Bucket, keys [][]byte) {
	tr := r.(*txReader)
	t := tr.table(b)
	if tr.file == nil || t.rows == nil || t.rows.Root() == 0 { // memory; no rows; they lie within another page
		return
	}
	w := warming{f: tr.file, ask: func(pages []uint64) { willNeed(tr.file, pages) }}
	w.run(uint64(t.rows.Root()), keys)
}

// willNeed has pages read by and by.
func willNeed(f *os.File, pages []uint64) {
	_ = onFile(f, func(fd int) error {
		for i := 0; i < len(pages); {
			n := 1
			for i+n < len(pages) && pages[i+n] == pages[i]+uint64(n) {
				n++
			}
			if err := unix.Fadvise(fd, int64(pages[i])*PageSize, int64(n)*PageSize, unix.FADV_WILLNEED); err != nil {
				return err
			}
			i += n
		}
		return nil
	})
}

// warming goes down a tree level by level. What it cannot read it leaves out: whoever needs it will tell.
type warming struct {
	f   io.ReaderAt
	ask func(pages []uint64) // ascending
}

// branch is a page that leads to the rows of keys.
type branch struct {
	page uint64
	keys [][]byte
}

func (w *warming) run(root uint64, keys [][]byte) {
	level := []branch{{root, keys}}
	for range w.height(root, keys) {
		var below []branch
		for _, at := range level {
			below = at.children(w.read(at.page), below)
		}
		pages := make([]uint64, len(below))
		for i, at := range below {
			pages[i] = at.page
		}
		slices.Sort(pages)
		w.ask(pages)
		level = below
	}
}

// height counts the levels above the leaves: all leaves of a tree lie on one.
func (w *warming) height(root uint64, keys [][]byte) (levels int) {
	if len(keys) == 0 {
		return 0
	}
	at := []branch{{root, keys[:1]}}
	for len(at) == 1 && levels < maxDepth {
		if at = at[0].children(w.read(at[0].page), nil); len(at) == 1 {
			levels++
		}
	}
	return levels
}

// read gives a branch page; nil: it is none.
func (w *warming) read(id uint64) []byte {
	page := make([]byte, PageSize)
	if _, err := w.f.ReadAt(page, int64(id)*PageSize); err != nil {
		return nil
	}
	le := binary.LittleEndian
	size := (int64(le.Uint32(page[12:])) + 1) * PageSize
	if le.Uint64(page) != id || le.Uint16(page[8:]) != branchPage || size > treePageMax {
		return nil
	}
	if size > PageSize {
		page = make([]byte, size)
		if _, err := w.f.ReadAt(page, int64(id)*PageSize); err != nil {
			return nil
		}
	}
	if count := int(le.Uint16(page[10:])); count == 0 || pageHeader+count*elementLen > len(page) {
		return nil
	}
	return page
}

// children appends what the branch page leads to; each child has those of the keys that lie below it.
func (at branch) children(page []byte, to []branch) []branch {
	if page == nil {
		return to
	}
	count := int(binary.LittleEndian.Uint16(page[10:]))
	child := func(i int) pageElement {
		e, err := element(page, pageHeader+i*elementLen, branchPage)
		if err != nil {
			return pageElement{}
		}
		return e
	}
	for keys := at.keys; len(keys) > 0; {
		i := max(sort.Search(count, func(i int) bool { return bytes.Compare(child(i).key, keys[0]) > 0 })-1, 0)
		n := len(keys)
		if i+1 < count {
			hi := child(i + 1).key
			n = max(sort.Search(len(keys), func(k int) bool { return bytes.Compare(keys[k], hi) >= 0 }), 1)
		}
		to = append(to, branch{child(i).child, keys[:n]})
		keys = keys[n:]
	}
	return to
}
