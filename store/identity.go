package store

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
)

// Schema is the version of the file layout that this program writes. Since schema 2, every row
// that no hash or signature covers ends in a checksum. Since schema 3, the rows of this copy of the
// file are in bucket local. Since schema 4, the names of rows are counted. Since schema 5, records
// of the ledger may set the decimals of an asset. Since schema 6, rows of the edge hold when the
// host of an object was last asked, and what was found in a pack. Since schema 7, the ledger has
// tables of closed periods. An older file is migrated when it is opened.
const Schema = 7

// Identity identifies a node and one incarnation of its file.
type Identity struct {
	NodeID      string    // ULID, for the life of the node
	Incarnation string    // ULID, new after each restore
	CreatedAt   time.Time // when the file was created
}

// NewIdentity returns an identity with new ids.
func NewIdentity(now time.Time) (Identity, error) {
	node, err := newID(now)
	if err != nil {
		return Identity{}, err
	}
	inc, err := newID(now)
	return Identity{NodeID: node, Incarnation: inc, CreatedAt: now}, err
}

func newID(now time.Time) (string, error) {
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("draw an id: %w", err)
	}
	return id.String(), nil
}

// Info is the state stored in the meta bucket. A published value is never changed.
type Info struct {
	NodeID       string
	Incarnation  string
	Schema       int
	AuthEpoch    uint64 // tokens of older epochs are invalid
	Restored     bool   // restored from a snapshot and not accepted yet
	RestoredFrom string // the incarnation of the snapshot
	CreatedAt    int64  // Unix ns
	Clean        bool   // the last stop before this boot was orderly
	Seq          uint64 // commands accepted since the file was created
	At           int64  // stamp of the last command, Unix ns
	AuditSeq     uint64 // rows ever written to the audit chain
	AuditHead    b3.Digest
	AuditFirst   uint64 // the oldest row kept
}

// identRow is the part of Info that rarely changes.
type identRow struct {
	NodeID       string `cbor:"1,keyasint"`
	Incarnation  string `cbor:"2,keyasint"`
	Schema       int    `cbor:"3,keyasint"`
	AuthEpoch    uint64 `cbor:"4,keyasint"`
	Restored     bool   `cbor:"5,keyasint"`
	RestoredFrom string `cbor:"6,keyasint"`
	CreatedAt    int64  `cbor:"7,keyasint"`
}

func (i Info) row() identRow {
	return identRow{i.NodeID, i.Incarnation, i.Schema, i.AuthEpoch, i.Restored, i.RestoredFrom, i.CreatedAt}
}

// Keys of the meta bucket.
var (
	keyIdent    = []byte("ident")
	keyPosition = []byte("position")
	keyAudit1   = []byte("audit_first") // 8 bytes; absent until rows were deleted
)

// Each row of meta ends in a checksum. A file of an older program lacks them until its first boot
// by this one. The length of a fixed-size row, or the version byte of a CBOR row, shows whether it
// has a checksum.

// fixedRow removes the checksum of a row of meta with a value of n bytes.
func fixedRow(key, row []byte, n int) ([]byte, error) {
	if len(row) == n {
		return row, nil
	}
	return CutSum(key, row)
}

// position is the part of Info that changes with every group: 56 bytes and a checksum, plus the
// number of the oldest audit row in a row of its own.
type position struct {
	seq        uint64
	at         int64
	auditSeq   uint64
	auditHead  b3.Digest
	auditFirst uint64
}

const (
	positionLen = 3*8 + b3.Size // without its checksum
	positionMax = 1 << 62       // limit of each number, far below overflow
)

// row encodes the position.
func (p position) row() []byte {
	b := make([]byte, 0, positionLen+SumSize)
	b = binary.BigEndian.AppendUint64(b, p.seq)
	b = binary.BigEndian.AppendUint64(b, uint64(p.at))
	b = binary.BigEndian.AppendUint64(b, p.auditSeq)
	return AddSum(keyPosition, append(b, p.auditHead[:]...))
}

func parsePosition(row []byte) (position, error) {
	b, err := fixedRow(keyPosition, row, positionLen)
	if err != nil {
		return position{}, fmt.Errorf("meta position: %w", err)
	}
	if len(b) != positionLen {
		return position{}, fmt.Errorf("meta position has %d bytes, not %d", len(b), positionLen)
	}
	p := position{
		seq:       binary.BigEndian.Uint64(b),
		at:        int64(binary.BigEndian.Uint64(b[8:])),
		auditSeq:  binary.BigEndian.Uint64(b[16:]),
		auditHead: b3.Digest(b[24:]),
	}
	if p.seq > positionMax || p.auditSeq > positionMax || p.at < 0 || p.at > positionMax {
		return position{}, errors.New("meta position is out of range")
	}
	return p, nil
}

// readFirst reads the number of the oldest audit row. A file without that row has kept a ring of
// auditRows.
func (p *position) readFirst(raw []byte) error {
	p.auditFirst = 1
	first, err := fixedRow(keyAudit1, raw, 8)
	switch {
	case raw == nil && p.auditSeq > auditRows:
		p.auditFirst = p.auditSeq - auditRows + 1
	case raw == nil:
	case err != nil:
		return fmt.Errorf("meta audit_first: %w", err)
	case len(first) != 8 || binary.BigEndian.Uint64(first) < 1 || binary.BigEndian.Uint64(first) > p.auditSeq+1:
		return errors.New("meta audit_first is out of range")
	default:
		p.auditFirst = binary.BigEndian.Uint64(first)
	}
	return nil
}

// put writes the position; from is the position in the file.
func (p position) put(meta rowWriter, from position) error {
	if p.auditFirst != from.auditFirst {
		if err := meta.Put(keyAudit1, AddSum(keyAudit1, auditKey(p.auditFirst))); err != nil {
			return err
		}
	}
	return meta.Put(keyPosition, p.row())
}

func (i Info) position() position {
	return position{i.Seq, i.At, i.AuditSeq, i.AuditHead, i.AuditFirst}
}

// with returns a copy of i at the given position.
func (i Info) with(p position) *Info {
	i.Seq, i.At, i.AuditSeq, i.AuditHead, i.AuditFirst = p.seq, p.at, p.auditSeq, p.auditHead, p.auditFirst
	return &i
}

// readInfo reads the meta bucket and whether the last stop was orderly. It returns ErrCorrupt if a
// bucket does not exist.
func readInfo(tx *bolt.Tx) (Info, error) {
	meta := tx.Bucket([]byte(metaBucket.Name))
	if meta == nil {
		return Info{}, fmt.Errorf("%w: no meta bucket", ErrCorrupt)
	}
	var row identRow
	if err := decodeSummed(keyIdent, meta.Get(keyIdent), &row); err != nil {
		return Info{}, fmt.Errorf("%w: meta identity: %w", ErrCorrupt, err)
	}
	p, err := parsePosition(meta.Get(keyPosition))
	if err == nil {
		err = p.readFirst(meta.Get(keyAudit1))
	}
	if err != nil {
		return Info{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	stopped, err := readClean(tx, row.Schema)
	if err != nil {
		return Info{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	i := Info{
		NodeID:       row.NodeID,
		Incarnation:  row.Incarnation,
		Schema:       row.Schema,
		AuthEpoch:    row.AuthEpoch,
		Restored:     row.Restored,
		RestoredFrom: row.RestoredFrom,
		CreatedAt:    row.CreatedAt,
		Clean:        stopped,
	}
	if i.Schema < 1 {
		return Info{}, fmt.Errorf("%w: schema %d", ErrCorrupt, i.Schema)
	}
	return *i.with(p), nil
}

// known returns ErrSchema if a newer program wrote the file.
func (i Info) known(schema int) error {
	if i.Schema > schema {
		return fmt.Errorf(
			"%w: the file has %d, the program %d; run the newer program, "+
				"or restore a snapshot older than the migration",
			ErrSchema,
			i.Schema,
			schema,
		)
	}
	return nil
}

// writeInfo writes the rows of meta and the clean row.
func writeInfo(tx *bolt.Tx, i Info) error {
	meta, err := tx.CreateBucketIfNotExists([]byte(metaBucket.Name))
	if err != nil {
		return err
	}
	ident, err := encodeSummed(keyIdent, i.row())
	if err != nil {
		return err
	}
	if i.Schema >= localSchema {
		err = splitMeta(tx, meta)
	}
	made := position{auditFirst: 1}
	return errors.Join(err, meta.Put(keyIdent, ident), i.position().put(meta, made), putClean(tx, i.Clean))
}
