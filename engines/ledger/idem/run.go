package idem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sort"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// A run is a sub-bucket of ledger/idem, named by the first seq it covers. Its rows are blocks of
// keys, see block. After them come chunks of the filter, the number of the next slice, and last
// the meta row. A run without a meta row does not count.
const (
	tagFilter = 'f' // and the chunk's number
	tagMeta   = 'm'
	tagPart   = 'p'
)

// Meta describes a run. It is its last row.
type Meta struct {
	First, Last     uint64 // seqs it covers
	FirstAt, LastAt int64  // times of its oldest and newest key, Unix ns
	Keys            uint64
	Words           uint64    // 64 bits each, of the filter
	Filter          b3.Digest // of the filter's bytes
}

// run is a sealed slot as readers see it. It is immutable.
type run struct {
	meta   Meta
	filter filter
	bucket *store.Bucket
}

const (
	metaVersion = 1
	metaSize    = 1 + 6*8 + b3.Size // and a checksum
)

var errRow = errors.New("not a row of a run")

func bucketOf(first uint64) *store.Bucket {
	return tables.Idem.Sub(string(binary.BigEndian.AppendUint64(nil, first)))
}

// firstOf is the other way round; not ok for a name that is no run's.
func firstOf(b *store.Bucket) (first uint64, ok bool) {
	if len(b.Name) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64([]byte(b.Name)), true
}

// behind is a row's key behind every block.
func behind(tag byte, n ...uint32) []byte {
	k := make([]byte, 16, 21)
	for i := range k {
		k[i] = 0xff
	}
	k = append(k, tag)
	for _, n := range n {
		k = binary.BigEndian.AppendUint32(k, n)
	}
	return k
}

// readMeta reads the meta row of a run. Only a complete run has one.
func readMeta(r store.Reader, b *store.Bucket) (m Meta, whole bool) {
	key := behind(tagMeta)
	row := r.Get(b, key)
	if row == nil {
		return m, false
	}
	row, err := store.CutSum(key, row)
	if err == nil {
		m, err = decodeMeta(row)
	}
	if first, ok := firstOf(b); err == nil && (!ok || first != m.First) {
		err = errors.New("it is the row of another run")
	}
	if err != nil {
		panic(rowError(b, key, err))
	}
	return m, true
}

// misplaced tells why b cannot stand where it does: it does not begin where the run before it ends,
// so that one is missing between them, or the one before has lost its meta row, and the keys of
// either would be forgotten. last is where the runs before it end, 0 if there are none; half says
// that one was not sealed to its end: that is the last.
func misplaced(b *store.Bucket, whole bool, last uint64, half bool) error {
	first, named := firstOf(b)
	if !named || half || first != last+1 && (last != 0 || !whole) {
		return fmt.Errorf("a run that begins with record %d should be there, each whole but the last", last+1)
	}
	return nil
}

// readRun reads the filter described by m.
func readRun(r store.Reader, b *store.Bucket, m Meta) *run {
	raw := make([]byte, 0, 8*m.Words)
	for _, chunk := range r.Range(b, behind(tagFilter, 0), behind(tagFilter+1)) {
		if raw = append(raw, chunk...); uint64(len(raw)) > 8*m.Words {
			break
		}
	}
	if uint64(len(raw)) != 8*m.Words || b3.Sum(raw) != m.Filter {
		panic(rowError(b, behind(tagFilter), errors.New("the filter is not the one that the meta row names")))
	}
	return &run{m, filterOf(raw), b}
}

func readPart(r store.Reader, b *store.Bucket) uint32 {
	row := r.Get(b, behind(tagPart))
	if row == nil {
		return 0
	}
	if len(row) != 4 {
		panic(rowError(b, behind(tagPart), errRow))
	}
	return binary.LittleEndian.Uint32(row)
}

func (m *Meta) encode() []byte {
	b := append(make([]byte, 0, metaSize+store.SumSize), metaVersion)
	for _, n := range [...]uint64{m.First, m.Last, uint64(m.FirstAt), uint64(m.LastAt), m.Keys, m.Words} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return store.AddSum(behind(tagMeta), append(b, m.Filter[:]...))
}

func decodeMeta(b []byte) (m Meta, err error) {
	if len(b) != metaSize || b[0] != metaVersion {
		return m, errRow
	}
	u64 := func(i int) uint64 { return binary.LittleEndian.Uint64(b[1+8*i:]) }
	m = Meta{First: u64(0), Last: u64(1), FirstAt: int64(u64(2)), LastAt: int64(u64(3)), Keys: u64(4), Words: u64(5)}
	copy(m.Filter[:], b[metaSize-b3.Size:])
	return m, m.check()
}

// check refuses what no slot gives.
func (m *Meta) check() error {
	if m.First == 0 || m.Last < m.First || m.LastAt < m.FirstAt || m.Keys == 0 || m.Words == 0 || m.Words > maxWords {
		return fmt.Errorf("a run of %d keys, seqs %d to %d and %d words of filter", m.Keys, m.First, m.Last, m.Words)
	}
	return nil
}

// maxWords bounds a filter: 64 Mi keys, sixteen times the largest slot.
const maxWords = 64 << 20 * filterBits / 64

func rowError(b *store.Bucket, key []byte, cause error) *store.RowError {
	return &store.RowError{Bucket: tables.Idem.Name + "/" + fmt.Sprintf("%x", b.Name), Key: key, Cause: cause}
}

// The keys of a run are stored in blocks, in order. The row of a block holds its number, its keys,
// each with the seq of its record, and a checksum. Keys are uniformly distributed, so the key
// determines the number of its block. Every block has a row. A missing row or a wrong checksum is
// damage, so a flipped bit never makes a used key unused or maps it to another record.
const (
	blockKeys = 32 // on average; a block has about 800 bytes, so a page of the file holds five
	entrySize = len(Key{}) + 8
)

// blocks is in how many a run has its keys.
func blocks(keys uint64) uint32 { return uint32(keys/blockKeys) + 1 }

// blockOf is the number of the block of k, of so many.
func blockOf(k *Key, blocks uint32) uint32 {
	n, _ := bits.Mul64(k.head(), uint64(blocks))
	return uint32(n)
}

// blockKey is the key of a block's row.
func blockKey(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

var (
	errNoBlock = errors.New("the block is not there")
	errBlock   = errors.New("the block is not of whole keys in order")
)

// encodeBlock is the row of block n.
func encodeBlock(n uint32, entries []Entry) (key, row []byte) {
	key, row = blockKey(n), make([]byte, 0, entrySize*len(entries)+store.SumSize)
	for i := range entries {
		row = binary.LittleEndian.AppendUint64(append(row, entries[i].Key[:]...), entries[i].Seq)
	}
	return key, store.AddSum(key, row)
}

// block is the keys of a block as its row has them.
type block []byte

func decodeBlock(key, row []byte) (block, error) {
	if row == nil {
		return nil, errNoBlock
	}
	b, err := store.CutSum(key, row)
	if err == nil && len(b)%entrySize != 0 {
		err = errBlock
	}
	return b, err
}

func (b block) len() int { return len(b) / entrySize }

func (b block) key(i int) []byte { return b[i*entrySize:][:len(Key{})] }

func (b block) seq(i int) uint64 { return binary.LittleEndian.Uint64(b[i*entrySize+len(Key{}):]) }

// get is the seq of a key; 0 if the block lacks it.
func (b block) get(k *Key) uint64 {
	i := sort.Search(b.len(), func(i int) bool { return bytes.Compare(b.key(i), k[:]) >= 0 })
	if i < b.len() && bytes.Equal(b.key(i), k[:]) {
		return b.seq(i)
	}
	return 0
}

// get reads the seq of a key, 0 if the run lacks it or is dropped in rd: the caller may have taken
// the run from memory before.
func (r *run) get(rd store.Reader, k *Key) uint64 {
	key := blockKey(blockOf(k, blocks(r.meta.Keys)))
	b, err := decodeBlock(key, rd.Get(r.bucket, key))
	if err == errNoBlock && r.dropped(rd) {
		return 0
	}
	if err != nil {
		panic(rowError(r.bucket, key, err))
	}
	return b.get(k)
}

// dropped reports whether rd has only runs after r, each under its own name: the oldest are dropped
// first.
func (r *run) dropped(rd store.Reader) bool {
	for b := range store.Subs(rd, tables.Idem) {
		if m, whole := readMeta(rd, b); whole && m.First <= r.meta.Last {
			return false
		}
	}
	return true
}

// The filter of a run: 18 bits a key and 12 probes let one foreign key in 5,700 pass. Of ten
// million keys in twenty runs that is one look in 280 that reads a page in vain, so that 99 of 100
// looks for a new key wait for no disk; the filters take 22 MB.
const (
	filterBits   = 18
	filterHashes = 12
)

// filter is a Bloom filter over keys. It is built by one goroutine and immutable from then on.
type filter struct{ words []uint64 }

func newFilter(keys int) filter {
	return filter{make([]uint64, max(1, (keys*filterBits+63)/64))}
}

// filterOf decodes a filter from bytes. Their number is a positive multiple of 8.
func filterOf(b []byte) filter {
	f := filter{make([]uint64, len(b)/8)}
	for i := range f.words {
		f.words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return f
}

func (f filter) add(k *Key) {
	h, step, m := k.head(), k.tail()|1, uint64(len(f.words))*64
	for range filterHashes {
		bit, _ := bits.Mul64(h, m)
		f.words[bit/64] |= 1 << (bit % 64)
		h += step
	}
}

// has is false only of keys that were not added.
func (f filter) has(k *Key) bool {
	h, step, m := k.head(), k.tail()|1, uint64(len(f.words))*64
	for range filterHashes {
		bit, _ := bits.Mul64(h, m)
		if f.words[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
		h += step
	}
	return true
}

// bytes are words from one number up to another.
func (f filter) bytes(from, to int) []byte {
	out := make([]byte, 0, 8*(to-from))
	for _, word := range f.words[from:to] {
		out = binary.LittleEndian.AppendUint64(out, word)
	}
	return out
}
