package idem

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// A run is a sub-bucket of ledger/idem, named by the first seq it covers. Its rows are blocks of keys, see block, and behind all of them those
// that tell of it: chunks of the filter, the number of the next slice, and in the end the meta row, without which the run does not count.
const (
	tagFilter = 'f' // and the chunk's number
	tagMeta   = 'm'
	tagPart   = 'p'
)

// Meta tells of a run. It is its last row.
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

// readMeta reads the meta row of a run; there is none before its last slice.
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

// misplaced tells why b cannot stand where it does: it does not begin where the run before it ends, so that one is missing between them, or the
// one before has lost its meta row, and the keys of either would be forgotten. last is where the runs before it end, 0 if there are none; half
// says that one was not sealed to its end: that is the last.
func misplaced(b *store.Bucket, whole bool, last uint64, half bool) error {
	first, named := firstOf(b)
	if !named || half || first != last+1 && (last != 0 || !whole) {
		return fmt.Errorf("a run that begins with record %d should be there, each whole but the last", last+1)
	}
	return nil
}

// readRun reads the filter that m tells of.
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

// maxWords bounds a filter: 64 Mi keys, sixteen times what a slot may be set to hold.
const maxWords = 64 << 20 * filterBits / 64

func rowError(b *store.Bucket, key []byte, cause error) *store.RowError {
	return &store.RowError{Bucket: tables.Idem.Name + "/" + fmt.Sprintf("%x", b.Name), Key: key, Cause: cause}
}
