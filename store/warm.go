package store

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"slices"
	"sort"

	"golang.org/x/sys/unix"

	"ronbox/store/page"
)

// Warm asks the kernel to read the pages that hold the rows of keys, in parallel. keys must be
// ascending. Warm blocks only for a few of the rows and for the branch pages above them; calls of
// Get would wait for each page in turn. It is a hint for tables larger than memory: it returns no
// error and uses the committed state. If all pages are in memory, it reads a few of the rows, which
// shows that, and does no more.
func Warm(r Reader, b *Bucket, keys [][]byte) {
	if r.(*txReader).file == nil || resident(r, b, keys) {
		return
	}
	spans := make([]page.Span, len(keys))
	for i, k := range keys {
		spans[i] = page.Span{Lo: k, Hi: k}
	}
	warm(r, b, spans)
}

// samples is about how many rows resident reads. If one page in twenty is not in memory, it notices
// 26 times of 27.
const samples = 64

// resident reads some of the rows and reports whether no page had to come from the disk. Other
// threads that wait for the disk meanwhile make it report false.
func resident(r Reader, b *Bucket, keys [][]byte) bool {
	before, known := majorFaults()
	for i := 0; i < len(keys) && known; i += max(1, len(keys)/samples) {
		r.Get(b, keys[i])
		if now, _ := majorFaults(); now != before {
			return false
		}
	}
	return known
}

// majorFaults returns how often the process has waited for a page from the disk.
func majorFaults() (n int64, known bool) {
	var used unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &used)
	return int64(used.Majflt), err == nil
}

// WarmRange is Warm for the rows from one key up to another; nil means no bound. All of the rows
// should fit into memory.
func WarmRange(r Reader, b *Bucket, from, to []byte) { warm(r, b, []page.Span{{Lo: from, Hi: to}}) }

func warm(r Reader, b *Bucket, spans []page.Span) {
	tr := r.(*txReader)
	t := tr.table(b)
	if tr.file == nil || t.rows == nil || t.rows.Root() == 0 { // in memory, no rows, or an inline bucket
		return
	}
	w := warming{
		f:     tr.file,
		pages: int(tr.tx.Size() / PageSize),
		ask:   func(pages []uint64) { willNeed(tr.file, pages) },
	}
	w.run(uint64(t.rows.Root()), spans)
}

// willNeed asks the kernel to read pages in the background.
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

// warming descends a tree level by level. It skips pages that it cannot read; a later Get reports
// the error.
type warming struct {
	f     io.ReaderAt
	pages int                  // pages of the file, the limit of a level
	ask   func(pages []uint64) // pages are ascending
}

// branch is a page that leads to the rows of spans. The upper bounds of spans are inclusive here,
// so at most one page too many is requested.
type branch struct {
	page  uint64
	spans []page.Span
}

func (w *warming) run(root uint64, spans []page.Span) {
	if len(spans) == 0 {
		return
	}
	level := []branch{{root, spans}}
	for range w.height(branch{root, spans[:1]}) {
		var below []branch
		for _, at := range level {
			below = at.children(w.read(at.page), below)
		}
		if len(below) > w.pages {
			return // a damaged file
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

// height returns the number of levels above the leaves, all of which are on one level.
func (w *warming) height(at branch) (levels int) {
	for levels < page.MaxDepth {
		below := at.children(w.read(at.page), nil)
		if len(below) == 0 {
			break
		}
		at = below[0]
		levels++
	}
	return levels
}

// read returns a branch page, or nil if the page is not one.
func (w *warming) read(id uint64) []byte {
	raw := make([]byte, PageSize)
	if _, err := w.f.ReadAt(raw, int64(id)*PageSize); err != nil {
		return nil
	}
	le := binary.LittleEndian
	size := (int64(le.Uint32(raw[12:])) + 1) * PageSize
	if le.Uint64(raw) != id || le.Uint16(raw[8:]) != page.Branch || size > page.TreeMax {
		return nil
	}
	if size > PageSize {
		raw = make([]byte, size)
		if _, err := w.f.ReadAt(raw, int64(id)*PageSize); err != nil {
			return nil
		}
	}
	if count := int(le.Uint16(raw[10:])); count == 0 || page.Header+count*page.ElementLen > len(raw) {
		return nil
	}
	return raw
}

// children appends the children of a branch page that spans reach, each with its spans.
func (at branch) children(raw []byte, to []branch) []branch {
	if raw == nil {
		return to
	}
	own, i, count := len(to), 0, int(binary.LittleEndian.Uint16(raw[10:]))
	child := func(i int) page.Element {
		e, err := page.ElementAt(raw, page.Header+i*page.ElementLen, page.Branch)
		if err != nil {
			return page.Element{}
		}
		return e
	}
	for k, s := range at.spans {
		if i+1 < count && bytes.Compare(child(i+1).Key, s.Lo) <= 0 { // not in the child of the span before
			i = max(sort.Search(count, func(i int) bool { return bytes.Compare(child(i).Key, s.Lo) > 0 })-1, 0)
		}
		for first := true; ; i, first = i+1, false {
			id := child(i).Child
			if n := len(to) - 1; first && n >= own && to[n].page == id {
				to[n].spans = at.spans[k-len(to[n].spans) : k+1]
			} else {
				to = append(to, branch{id, at.spans[k : k+1]})
			}
			if i+1 >= count || s.Hi != nil && bytes.Compare(child(i+1).Key, s.Hi) > 0 {
				break
			}
		}
	}
	return to
}
