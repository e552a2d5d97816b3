package tables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sort"

	"ronbox/store"
)

// References of closed periods are kept for ever, in blocks of sorted entries. An entry has the
// first 12 bytes of the guard's key and the number of the period. It says that a payment was made,
// not with which words. Two references with the same 12 bytes, which an attacker could look for,
// have an entry each.

// MaxPeriod is the largest number of a period that an entry holds.
const MaxPeriod = 1<<16 - 1

// blockEntries is the largest number of entries of a block: a page of the file has room for one
// such block, and not for two.
const blockEntries = 240

const (
	entryHash = 12
	entrySize = entryHash + 2
)

// closedEntry is the begin of a guard's key, and a period.
type closedEntry [entrySize]byte

func newEntry(key [16]byte, period uint64) (e closedEntry) {
	if period == 0 || period > MaxPeriod {
		panic(fmt.Sprintf("tables: a reference of period %d", period)) // the closing has checked it
	}
	copy(e[:entryHash], key[:])
	binary.BigEndian.PutUint16(e[entryHash:], uint16(period))
	return e
}

func (e *closedEntry) hash() []byte { return e[:entryHash] }

func (e *closedEntry) period() uint64 { return uint64(binary.BigEndian.Uint16(e[entryHash:])) }

// closedBlock is a row of ledger/closed. Its slices are valid until the end of the view.
type closedBlock struct {
	key     []byte // of its first entry; nil: there is no such block
	entries []byte // entrySize bytes each
}

func (b *closedBlock) len() int { return len(b.entries) / entrySize }

func (b *closedBlock) at(i int) *closedEntry { return (*closedEntry)(b.entries[i*entrySize:]) }

const closedVersion = 1

var (
	errBlock = errors.New("its first entry is not its key")
	errOrder = errors.New("rows or entries are out of order")
)

// decodeBlock checks a row of ledger/closed, except for the order of its entries. It ends the
// command or the view in a RowError.
func decodeBlock(key, row []byte) closedBlock {
	value, err := store.CutSum(key, row)
	switch {
	case err != nil:
	case len(value) == 0 || value[0] != closedVersion:
		err = errVersion
	case len(value) == 1 || (len(value)-1)%entrySize != 0 || len(value) > 1+blockEntries*entrySize:
		err = errLength
	case !bytes.Equal(value[1:1+entryHash], key):
		err = errBlock
	}
	if err != nil {
		panic(wrong(bClosed, key, "%w", err))
	}
	return closedBlock{key, value[1:]}
}

// closedBlocks walks the blocks in order.
func closedBlocks(r store.Reader) iter.Seq[closedBlock] {
	return func(yield func(closedBlock) bool) {
		for key, row := range r.Range(bClosed, nil, nil) {
			if !yield(decodeBlock(key, row)) {
				return
			}
		}
	}
}

// after returns the smallest key above a hash.
func after(hash []byte) []byte { return append(slices.Clip(hash), 0) }

// blockBefore returns the last block that begins at or before a hash.
func blockBefore(r store.Reader, hash []byte) closedBlock {
	for key, row := range r.RangeBack(bClosed, nil, after(hash)) {
		b := decodeBlock(key, row)
		if bytes.Compare(key, hash) > 0 {
			panic(wrong(bClosed, key, "%w", errOrder))
		}
		return b
	}
	return closedBlock{}
}

// blockAfter returns the first block that begins after a hash.
func blockAfter(r store.Reader, hash []byte) closedBlock {
	for key, row := range r.Range(bClosed, after(hash), nil) {
		b := decodeBlock(key, row)
		if bytes.Compare(key, hash) <= 0 {
			panic(wrong(bClosed, key, "%w", errOrder))
		}
		return b
	}
	return closedBlock{}
}

// GetClosed returns the closed period in which the reference with a guard's key was bound, and
// reports whether there is one. A reference counts as absent only if the blocks before and after
// its place are sound.
func GetClosed(r store.Reader, key [16]byte) (period uint64, known bool) {
	hash := key[:entryHash]
	b := blockBefore(r, hash)
	i := sort.Search(b.len(), func(i int) bool { return bytes.Compare(b.at(i).hash(), hash) >= 0 })
	if i < b.len() && bytes.Equal(b.at(i).hash(), hash) {
		return b.at(i).period(), true
	}
	blockAfter(r, hash)
	return 0, false
}

// FindOnce reads the row of a permanent id or a guard, as GetOnce does. Of a reference that was
// merged into ledger/closed it returns the period alone.
func FindOnce(r store.Reader, k OnceKey) (Once, bool) {
	o, known := GetOnce(r, k)
	if !known && k.Guard {
		o.Period, known = GetClosed(r, k.Key)
	}
	return o, known
}

// PeriodOf returns the closed period of the record seq, which is at or below the horizon.
func PeriodOf(r store.Reader, seq uint64) uint64 {
	before := sort.Search(int(GetHorizon(r).Period)-1, func(i int) bool {
		s := StatementOf(r, uint64(i)+1)
		return s.ToSeq >= seq
	})
	return 1 + uint64(before)
}

// mergeBlocks bounds the blocks that one MergeClosed writes anew, some 800 KiB.
const mergeBlocks = 240

// MergeClosed moves references up to h from ledger/once to ledger/closed: of up to n guards, from
// the key cursor on. It returns the cursor to go on from, nil at the end, and the number of moved
// references. The command moves each as a whole, so that no view has it in neither table. Guards of
// settlements stay.
func MergeClosed(r store.Reader, w *store.Writes, h Horizon, cursor []byte, n int) (next []byte, moved int) {
	from := OnceKey{Guard: true}
	if cursor != nil {
		from.Key = [16]byte(cursor)
	}
	m, newest, base := merger{r: r, w: w}, StatementOf(r, h.Period), BaseAt(r, h.Generation)
	for k, row := range onces.Range(r, from, OnceKey{}) {
		if n--; n < 0 {
			next = k.Key[:]
			break
		}
		if row.Seq > h.Seq {
			continue
		}
		if _, settles := base.Once(k); settles {
			continue
		}
		period := newest.Period
		if row.Seq < newest.FromSeq { // an earlier merge was left unfinished
			period = PeriodOf(r, row.Seq)
		}
		if !m.add(newEntry(k.Key, period)) {
			next = k.Key[:]
			break
		}
		onces.Delete(w, k)
		moved++
	}
	m.end()
	return next, moved
}

// merger adds entries to blocks, in ascending order. Blocks that follow one another are filled
// anew, one after the other, so that a merge that touches all blocks leaves them full.
type merger struct {
	r     store.Reader
	w     *store.Writes
	block closedBlock   // at hand
	next  closedBlock   // the one after it
	fresh []closedEntry // for the block at hand
	run   []closedEntry // of the blocks before it that are not written yet
	read  [][]byte      // keys of the blocks that are replaced
	put   map[[entryHash]byte]bool
}

// add takes the next entry. It returns false if the entry belongs to one block too many.
func (m *merger) add(e closedEntry) bool {
	if m.fresh == nil || m.next.key != nil && bytes.Compare(e.hash(), m.next.key) >= 0 {
		if len(m.read) == mergeBlocks {
			return false
		}
		m.open(e.hash())
	}
	m.fresh = append(m.fresh, e)
	return true
}

// open finishes the block at hand and goes on to the one of a hash: the last that begins before it,
// or the first of all.
func (m *merger) open(hash []byte) {
	m.merge()
	before := m.next.key
	if m.block = blockBefore(m.r, hash); m.block.key == nil {
		m.block = blockAfter(m.r, hash)
	}
	if !bytes.Equal(m.block.key, before) {
		m.write(true)
	}
	m.next = closedBlock{}
	if m.block.key != nil {
		m.read = append(m.read, m.block.key)
		m.next = blockAfter(m.r, m.block.key)
	}
}

// merge appends the block at hand, with the fresh entries, to the run.
func (m *merger) merge() {
	i := 0
	for _, e := range m.fresh {
		for ; i < m.block.len() && bytes.Compare(m.block.at(i).hash(), e.hash()) <= 0; i++ {
			m.run = append(m.run, *m.block.at(i))
		}
		m.run = append(m.run, e)
	}
	for ; i < m.block.len(); i++ {
		m.run = append(m.run, *m.block.at(i))
	}
	m.fresh, m.block = m.fresh[:0], closedBlock{}
	m.write(false)
}

// write writes full blocks of the run: all of the run if it ends here, else what its last two
// blocks do not need.
func (m *merger) write(ends bool) {
	for len(m.run) >= 2*blockEntries {
		m.cut(blockEntries)
	}
	if !ends {
		return
	}
	if n := len(m.run); n > blockEntries {
		m.cut(n / 2)
	}
	if n := len(m.run); n > 0 {
		m.cut(n)
	}
}

// cut writes the first n entries of the run as a block.
func (m *merger) cut(n int) {
	key := [entryHash]byte(m.run[0].hash())
	if m.put[key] {
		panic("tables: two blocks of references begin with the same entry")
	}
	value := make([]byte, 1, 1+n*entrySize+store.SumSize)
	value[0] = closedVersion
	for i := range m.run[:n] {
		value = append(value, m.run[i][:]...)
	}
	m.w.Put(bClosed, key[:], store.AddSum(key[:], value))
	if m.put == nil {
		m.put = map[[entryHash]byte]bool{}
	}
	m.put[key] = true
	m.run = m.run[:copy(m.run, m.run[n:])]
}

// end writes what is left, and deletes the blocks that were replaced.
func (m *merger) end() {
	m.merge()
	m.write(true)
	for _, key := range m.read {
		if !m.put[[entryHash]byte(key)] {
			m.w.Delete(bClosed, bytes.Clone(key))
		}
	}
}

// CheckClosed returns an error unless ledger/closed has the references that the statements count,
// less those that ledger/once still has. It calls step for each row. If step returns false, the
// check ends, and its error counts for nothing.
func CheckClosed(r store.Reader, step func() bool) error {
	h, base := GetHorizon(r), BaseOf(r)
	want, got := uint64(0), uint64(0)
	for n := range h.Period {
		s := StatementOf(r, n+1)
		want += s.References
	}
	for k, row := range onces.Range(r, OnceKey{Guard: true}, OnceKey{}) {
		if h.Period == 0 || !step() {
			break
		}
		if _, settles := base.Once(k); !settles && row.Seq <= h.Seq {
			got++
		}
	}
	var last closedEntry
	for b := range closedBlocks(r) {
		for i := range b.len() {
			e := b.at(i)
			if bytes.Compare(e.hash(), last.hash()) < 0 {
				return wrong(bClosed, b.key, "%w", errOrder)
			}
			if n := e.period(); n == 0 || n > h.Period {
				return wrong(bClosed, b.key, "it has a reference of period %d, and %d are closed", n, h.Period)
			}
			last = *e
			got++
		}
		if !step() {
			return nil
		}
	}
	if got != want {
		return fmt.Errorf("%d references of closed periods, the statements count %d", got, want)
	}
	return nil
}

// CheckUnmerged returns an error if a row of ledger/once is damaged while it may be a reference of
// a closed period that is not merged yet: without the row the reference would count as free.
func CheckUnmerged(r store.Reader) error {
	h, c := GetHorizon(r), GetClosing(r)
	if h.Period == 0 || c.Step == 0 || c.Step == Dropping && c.Dropped.Table > 0 {
		return nil // all references up to the horizon are merged
	}
	for key, value := range r.Range(bOnce, nil, nil) {
		value, err := store.CutSum(key, value)
		if err == nil {
			_, err = onceKeys().Decode(key)
		}
		if err == nil {
			_, err = onceValue().Decode(value)
		}
		if err != nil {
			return wrong(bOnce, key, "%w; it may be a reference of a closed period: restore a snapshot", err)
		}
	}
	return nil
}
