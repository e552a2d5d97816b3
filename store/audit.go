package store

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
)

// Event is one row of the node's audit chain: who did what, how it was decided.
type Event struct {
	Event     string            `cbor:"1,keyasint"` // "db.accept_restore"
	Decision  string            `cbor:"2,keyasint"` // "allow", "deny"
	Reason    string            `cbor:"3,keyasint,omitempty"`
	CorrID    string            `cbor:"4,keyasint,omitempty"`
	CapID     string            `cbor:"5,keyasint,omitempty"` // token id
	Principal string            `cbor:"6,keyasint,omitempty"`
	UID       string            `cbor:"7,keyasint,omitempty"` // of a socket peer
	Detail    map[string]string `cbor:"8,keyasint,omitempty"`
}

// Bounds of an Event: what is longer is cut, since an audit row must never be the reason that a change fails.
const (
	maxField  = 4 << 10 // bytes
	maxDetail = 64      // members
)

// bounded is e within the bounds, and independent of the caller's map.
func (e Event) bounded() Event {
	for _, f := range []*string{&e.Event, &e.Decision, &e.Reason, &e.CorrID, &e.CapID, &e.Principal, &e.UID} {
		*f = cut(*f)
	}
	detail := make(map[string]string, min(len(e.Detail), maxDetail))
	for _, k := range slices.Sorted(maps.Keys(e.Detail)) {
		if len(detail) < maxDetail {
			detail[cut(k)] = cut(e.Detail[k])
		}
	}
	e.Detail = detail
	return e
}

func cut(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxField)], "�")
}

// AuditRow is an Event in its place in the chain.
type AuditRow struct {
	Seq  uint64 // from 1
	At   int64  // stamp, Unix ns
	Prev b3.Digest
	Hash b3.Digest // of the stored row: the next one's Prev
	Event
}

// auditValue is the stored form. The chain hashes these bytes.
type auditValue struct {
	At    int64  `cbor:"1,keyasint"`
	Prev  []byte `cbor:"2,keyasint"`
	Event Event  `cbor:"3,keyasint"`
}

// auditTrim is how many old rows one new row lets go at most, for a ring that was made shorter.
const auditTrim = 1000

// noRing lets no old row go.
const noRing = 1 << 63

// appendAudit writes one row behind the head in p, moves the head, and lets the oldest rows go that are too many for the ring.
func appendAudit(rows *bolt.Bucket, p *position, ring uint64, at int64, e Event) (AuditRow, error) {
	raw, err := encodeCBOR(auditValue{At: at, Prev: p.auditHead[:], Event: e})
	if err != nil {
		return AuditRow{}, fmt.Errorf("encode audit row: %w", err)
	}
	row := AuditRow{Seq: p.auditSeq + 1, At: at, Prev: p.auditHead, Hash: b3.Sum(raw), Event: e}
	if err := rows.Put(auditKey(row.Seq), raw); err != nil {
		return row, fmt.Errorf("audit row %d: %w", row.Seq, err)
	}
	for n := 0; n < auditTrim && row.Seq-p.auditFirst >= ring; n++ {
		if err := rows.Delete(auditKey(p.auditFirst)); err != nil {
			return row, fmt.Errorf("audit row %d: %w", p.auditFirst, err)
		}
		p.auditFirst++
	}
	p.auditSeq, p.auditHead = row.Seq, row.Hash
	return row, nil
}

func auditKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64(nil, seq)
}

// Audit reads the rows from seq on, at most limit, for a listing.
func Audit(r Reader, from uint64, limit int) ([]AuditRow, error) {
	var out []AuditRow
	for k, raw := range r.Range(auditBucket, auditKey(from), nil) {
		if len(out) >= limit {
			break
		}
		row, err := parseAudit(k, raw)
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, nil
}

func parseAudit(k, raw []byte) (AuditRow, error) {
	var v auditValue
	if err := decodeCBOR(raw, &v); err != nil {
		return AuditRow{}, &RowError{auditBucket.Name, append([]byte{}, k...), err}
	}
	if len(k) != 8 || len(v.Prev) != b3.Size {
		return AuditRow{}, &RowError{auditBucket.Name, append([]byte{}, k...), errVersion}
	}
	return AuditRow{
		Seq: binary.BigEndian.Uint64(k), At: v.At, Prev: b3.Digest(v.Prev), Hash: b3.Sum(raw), Event: v.Event,
	}, nil
}

// checkAudit walks the chain from the oldest row that the meta bucket says is kept to the head it records.
func checkAudit(r Reader, head position) (rows uint64, err error) {
	var c chain
	for k, raw := range r.Range(auditBucket, nil, nil) {
		row, err := parseAudit(k, raw)
		if err == nil {
			err = c.add(row)
		}
		if err != nil {
			return c.rows, err
		}
	}
	return c.rows, c.ends(head)
}
