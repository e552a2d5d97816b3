package page

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// Layout of a bbolt meta page: a 16-byte header, the fields, and the FNV-64a hash of the fields.
const (
	metaMagic   = 0xED0CDAED
	metaVersion = 2
	Header      = 16 // of every page
	MetaSummed  = 56 // bytes that the hash covers
)

// ErrNoDatabase is returned for a file whose meta pages both lack the mark of a database. It is
// ErrCorrupt.
var ErrNoDatabase error = noDatabase{}

type noDatabase struct{}

func (noDatabase) Error() string { return "store: not a database: the file lacks the mark of one" }

// Is reports whether target is ErrCorrupt.
func (noDatabase) Is(target error) bool { return target == ErrCorrupt }

var errNoMark = errors.New("no mark of a database")

// Meta holds the fields of a bbolt meta page that Preflight needs.
type Meta struct {
	root      uint64 // page of the root bucket
	Freelist  uint64
	HighWater uint64 // pages in use; the file is at least that long
	txid      uint64
	pageSize  uint32
}

// Preflight reads the meta pages with plain reads before the file is mapped: reading a mapped file
// that is too short would fault. The file must be locked, so that no other process is writing the
// pages.
func Preflight(f io.ReaderAt, size int64) (Meta, error) {
	var best Meta
	var errs []error
	for page := range int64(2) {
		m, err := readMeta(f, page)
		switch {
		case err != nil:
			errs = append(errs, err)
		case m.pageSize != Size: // valid, so bbolt would use it
			return m, fmt.Errorf("%w: meta page %d: pages of %d bytes, not %d", ErrCorrupt, page, m.pageSize, Size)
		case len(errs) == int(page) || m.txid > best.txid: // the first valid one, or a newer one, as bbolt chooses
			best = m
		}
	}
	if len(errs) == 2 {
		if errs[0] == errNoMark && errs[1] == errNoMark {
			return best, ErrNoDatabase
		}
		return best, fmt.Errorf("%w: no valid meta page: %w", ErrCorrupt, errors.Join(errs...))
	}
	if need := int64(best.HighWater) * Size; best.HighWater > 1<<40 || need > size {
		return best, fmt.Errorf("%w: the file has %d bytes but its pages need %d: it was truncated", ErrCorrupt, size,
			need)
	}
	return best, nil
}

func readMeta(f io.ReaderAt, page int64) (Meta, error) {
	b := make([]byte, Header+MetaSummed+8)
	_, err := f.ReadAt(b, page*Size)
	b = b[Header:]
	le := binary.LittleEndian
	if errors.Is(err, io.EOF) || err == nil && le.Uint32(b) != metaMagic {
		return Meta{}, errNoMark
	}
	if err != nil {
		return Meta{}, fmt.Errorf("meta page %d: %w", page, err)
	}
	if le.Uint32(b[4:]) != metaVersion {
		return Meta{}, fmt.Errorf("meta page %d: not a database of version %d", page, metaVersion)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:MetaSummed]) // never fails
	if sum.Sum64() != le.Uint64(b[MetaSummed:]) {
		return Meta{}, fmt.Errorf("meta page %d: wrong checksum", page)
	}
	return Meta{
		root: le.Uint64(b[16:]), Freelist: le.Uint64(b[32:]), HighWater: le.Uint64(b[40:]), txid: le.Uint64(b[48:]),
		pageSize: le.Uint32(b[8:]),
	}, nil
}
