package idem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"sort"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// The keys of a run lie in blocks, in order: the row of a block is its number, and its keys, each with the seq it leads to, behind them a
// checksum. Keys are uniform, so the number follows from the key; every block has a row, so that one which is not there is damage, as one
// that does not check is. Whatever bit of them a disk has changed, no key is taken for one that was never used, or for another.
const (
	blockKeys = 32 // in the mean: some 800 bytes, so that a page of the file takes five
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

// get reads a key; 0 if the run lacks it, or is dropped as rd sees it: whoever asks may have taken the run from memory before.
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

// dropped tells whether rd has no run but those behind r, each under its own name: the oldest go first.
func (r *run) dropped(rd store.Reader) bool {
	for b := range store.Subs(rd, tables.Idem) {
		if m, whole := readMeta(rd, b); whole && m.First <= r.meta.Last {
			return false
		}
	}
	return true
}
