package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"syscall"
)

type unixStat = syscall.Stat_t

// Layout of a bbolt meta page: a header of 16 bytes, then the fields, then FNV-64a over them.
const (
	metaMagic   = 0xED0CDAED
	metaVersion = 2
	pageHeader  = 16
	metaSummed  = 56
)

// metaPage is what preflight needs of one of the two meta pages.
type metaPage struct {
	root      uint64 // page of the root bucket
	freelist  uint64
	highWater uint64 // pages in use; the file is at least that long
	txid      uint64
	pageSize  uint32
}

// preflight reads the meta pages with plain reads, before anything is mapped: a mapped file that is too short would fault later. The file
// is locked by then, so no one is half way through writing them.
func preflight(f io.ReaderAt, size int64) (metaPage, error) {
	var best metaPage
	var errs []error
	for page := range int64(2) {
		m, err := readMeta(f, page)
		switch {
		case err != nil:
			errs = append(errs, err)
		case m.pageSize != PageSize: // whole, and so bbolt would believe it
			return m, fmt.Errorf("%w: meta page %d: pages of %d bytes, not %d", ErrCorrupt, page, m.pageSize, PageSize)
		case len(errs) == int(page) || m.txid > best.txid: // the first that is whole, or a newer one: as bbolt chooses
			best = m
		}
	}
	if len(errs) == 2 {
		return best, fmt.Errorf("%w: no valid meta page: %w", ErrCorrupt, errors.Join(errs...))
	}
	if need := int64(best.highWater) * PageSize; best.highWater > 1<<40 || need > size {
		return best, fmt.Errorf("%w: the file has %d bytes, its pages need %d: it was cut short", ErrCorrupt, size, need)
	}
	return best, nil
}

func readMeta(f io.ReaderAt, page int64) (metaPage, error) {
	b := make([]byte, pageHeader+metaSummed+8)
	if _, err := f.ReadAt(b, page*PageSize); err != nil {
		return metaPage{}, fmt.Errorf("meta page %d: %w", page, err)
	}
	b = b[pageHeader:]
	le := binary.LittleEndian
	if le.Uint32(b) != metaMagic || le.Uint32(b[4:]) != metaVersion {
		return metaPage{}, fmt.Errorf("meta page %d: not a database of version %d", page, metaVersion)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaSummed]) // never fails
	if sum.Sum64() != le.Uint64(b[metaSummed:]) {
		return metaPage{}, fmt.Errorf("meta page %d: wrong checksum", page)
	}
	return metaPage{
		root: le.Uint64(b[16:]), freelist: le.Uint64(b[32:]), highWater: le.Uint64(b[40:]), txid: le.Uint64(b[48:]),
		pageSize: le.Uint32(b[8:]),
	}, nil
}
