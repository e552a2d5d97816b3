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
	Event
}

// auditValue is the stored form. The chain hashes these bytes.
type auditValue struct {
	At    int64  `cbor:"1,keyasint"`
	Prev  []byte `cbor:"2,keyasint"`
	Event Event  `cbor:"3,keyasint"`
}

// appendAudit writes one row behind the head in p, moves the head, and lets the oldest row of a full ring go.
func appendAudit(rows *bolt.Bucket, p *position, ring uint64, at int64, e Event) error {
	raw, err := encodeCBOR(auditValue{At: at, Prev: p.auditHead[:], Event: e})
	if err != nil {
		return fmt.Errorf("encode audit row: %w", err)
	}
	seq := p.auditSeq + 1
	if err := rows.Put(auditKey(seq), raw); err != nil {
		return fmt.Errorf("audit row %d: %w", seq, err)
	}
	if seq > ring {
		if err := rows.Delete(auditKey(seq - ring)); err != nil {
			return fmt.Errorf("audit row %d: %w", seq-ring, err)
		}
	}
	p.auditSeq, p.auditHead = seq, b3.Sum(raw)
	return nil
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
	return AuditRow{Seq: binary.BigEndian.Uint64(k), At: v.At, Prev: b3.Digest(v.Prev), Event: v.Event}, nil
}

// checkAudit walks the chain to the head the meta bucket records, from row 1 on, or from the oldest that a ring which has turned must
// still have; that one is taken as it stands.
func checkAudit(r Reader, head position, ring uint64) (rows uint64, err error) {
	var prev b3.Digest
	first := uint64(1)
	if head.auditSeq > ring {
		first = head.auditSeq - ring + 1
	}
	next := first
	for k, raw := range r.Range(auditBucket, nil, nil) {
		row, err := parseAudit(k, raw)
		if err != nil {
			return rows, err
		}
		if rows == 0 && first > 1 {
			prev = row.Prev
		}
		if row.Seq != next || row.Prev != prev {
			return rows, fmt.Errorf("%w: audit row %d does not follow the one before it", ErrCorrupt, row.Seq)
		}
		prev, next, rows = b3.Sum(raw), next+1, rows+1
	}
	if next != head.auditSeq+1 || prev != head.auditHead {
		return rows, fmt.Errorf("%w: the audit chain ends at row %d, its head is row %d", ErrCorrupt, next-1, head.auditSeq)
	}
	return rows, nil
}
