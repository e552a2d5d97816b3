package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
)

// Event is the content of an audit row: an action, its actor and the decision.
type Event struct {
	Event     string            `cbor:"1,keyasint"` // "db.accept_restore"
	Decision  string            `cbor:"2,keyasint"` // "allow", "deny"
	Reason    string            `cbor:"3,keyasint,omitempty"`
	CorrID    string            `cbor:"4,keyasint,omitempty"`
	CapID     string            `cbor:"5,keyasint,omitempty"` // token id
	Principal string            `cbor:"6,keyasint,omitempty"`
	UID       string            `cbor:"7,keyasint,omitempty"` // user id of a socket peer
	Detail    map[string]string `cbor:"8,keyasint,omitempty"`
}

// Bounds of an Event. Longer values are truncated, so that a change never fails because of its
// audit row.
const (
	maxField  = 4 << 10 // bytes
	maxDetail = 64      // members
)

// bounded returns a copy of e within the bounds, independent of the caller's map.
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

// AuditRow is an Event and its place in the chain.
type AuditRow struct {
	Seq  uint64 // from 1
	At   int64  // stamp, Unix ns
	Prev b3.Digest
	Hash b3.Digest // hash of the stored row, which is Prev of the next row
	Event
}

// auditValue is the stored form of a row. The chain hashes these bytes.
type auditValue struct {
	At    int64  `cbor:"1,keyasint"`
	Prev  []byte `cbor:"2,keyasint"`
	Event Event  `cbor:"3,keyasint"`
}

// auditTrim is the number of old rows that one new row deletes at most, after the ring was made
// shorter.
const auditTrim = 1000

// noRing is a ring length that deletes no row.
const noRing = 1 << 63

// appendAudit appends a row after the head in p, moves the head, and deletes the oldest rows beyond
// the ring.
func appendAudit(rows rowWriter, p *position, ring uint64, at int64, e Event) (AuditRow, error) {
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

// Audit reads at most limit rows from seq on. It returns ErrCorrupt if a row between them is
// missing.
func Audit(r Reader, from uint64, limit int) ([]AuditRow, error) {
	var out []AuditRow
	for k, raw := range r.Range(auditBucket, auditKey(from), nil) {
		if len(out) >= limit {
			break
		}
		row, err := parseAudit(k, raw)
		if n := len(out); err == nil && n > 0 && (row.Seq != out[n-1].Seq+1 || row.Prev != out[n-1].Hash) {
			err = &RowError{auditBucket.Name, bytes.Clone(k), fmt.Errorf("it does not follow row %d", out[n-1].Seq)}
		}
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

// errEnd is the cause of a RowError for a row that is not the end of the audit chain.
var errEnd = errors.New("it is not the end of the chain")

// checkAuditEnd returns ErrCorrupt if the last row of the chain is missing or another one.
func checkAuditEnd(r Reader, head position) error {
	if head.auditSeq == 0 {
		return nil
	}
	key := auditKey(head.auditSeq)
	raw := r.Get(auditBucket, key)
	if raw == nil || b3.Sum(raw) != head.auditHead {
		return &RowError{auditBucket.Name, key, errEnd}
	}
	return nil
}

// checkAudit verifies the chain from the oldest kept row to the head, both recorded in the meta
// bucket.
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

// ChainReport is the result of CheckAudit. It shows that the rows form a chain. An export of the
// file also proves that the chain is complete; for rows alone, compare Last and Head with those of
// the node.
type ChainReport struct {
	Rows  uint64    `json:"rows"`
	First uint64    `json:"first"` // its Prev is not checked
	Last  uint64    `json:"last"`
	Head  b3.Digest `json:"head"`
}

// chain verifies rows, each of which must follow the one before it.
type chain struct {
	rows, first, last uint64
	head              b3.Digest
}

func (c *chain) add(row AuditRow) error {
	switch {
	case c.rows == 0 && row.Seq == 1 && !row.Prev.IsZero():
		return fmt.Errorf("%w: audit row 1 has a predecessor", ErrCorrupt)
	case c.rows == 0:
		c.first = row.Seq
	case row.Seq != c.last+1 || row.Prev != c.head:
		return fmt.Errorf("%w: audit row %d does not follow row %d", ErrCorrupt, row.Seq, c.last)
	}
	c.last, c.head, c.rows = row.Seq, row.Hash, c.rows+1
	return nil
}

// ends compares the chain with the position in the meta bucket.
func (c *chain) ends(head position) error {
	switch {
	case c.rows == 0 && head.auditSeq > 0:
		return fmt.Errorf("%w: there are no audit rows, but the head is row %d", ErrCorrupt, head.auditSeq)
	case c.rows > 0 && c.first != head.auditFirst:
		return fmt.Errorf("%w: the audit chain begins at row %d, not at row %d", ErrCorrupt, c.first, head.auditFirst)
	case c.last != head.auditSeq || c.head != head.auditHead:
		return fmt.Errorf("%w: the audit chain ends at row %d, its head is row %d", ErrCorrupt, c.last, head.auditSeq)
	}
	return nil
}

// maxAuditLine is the maximum length of an audit row as JSON, bytes.
const maxAuditLine = 4 << 20

// CheckAudit verifies the audit rows of an NDJSON stream. The stream holds either rows as Audit
// returns them ({"seq", "at", "event", …, "prev", "hash"}) or an export of the file, of which the
// rows of the audit bucket and the position in the meta bucket are used. The hash of each row is
// recomputed. CheckAudit returns ErrCorrupt and names the row if the chain does not hold.
func CheckAudit(r io.Reader) (ChainReport, error) {
	var c chain
	var meta metaLines
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxAuditLine)
	for n := 1; lines.Scan(); n++ {
		row, skip, err := meta.parseLine(lines.Bytes())
		if err == nil && !skip {
			err = c.add(row)
		}
		if err != nil {
			return c.report(), fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil || !meta.met {
		return c.report(), err
	}
	head, err := meta.head()
	if err == nil {
		err = c.ends(head)
	}
	return c.report(), err
}

// metaLines holds the rows of the meta bucket in an export.
type metaLines struct {
	met             bool // the stream is an export
	position, first []byte
}

// head returns the position of the chain.
func (m *metaLines) head() (p position, err error) {
	if m.position == nil {
		return p, fmt.Errorf("%w: the export is incomplete: it has no end of the audit chain", ErrCorrupt)
	}
	if p, err = parsePosition(m.position); err == nil {
		err = p.readFirst(m.first)
	}
	if err != nil {
		return p, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return p, nil
}

// take keeps a row of the meta bucket that describes the chain.
func (m *metaLines) take(l exportLine) {
	switch {
	case l.Bucket != metaBucket.Name:
	case string(l.Key) == string(keyPosition):
		m.position = l.Value
	case string(l.Key) == string(keyAudit1):
		m.first = l.Value
	}
}

func (c *chain) report() ChainReport { return ChainReport{c.rows, c.first, c.last, c.head} }

// line is one line of either form; members of the other form are absent.
type line struct {
	exportLine
	Seq       uint64            `json:"seq,omitzero"`
	At        time.Time         `json:"at,omitzero"`
	Event     string            `json:"event,omitzero"`
	Decision  string            `json:"decision,omitzero"`
	Reason    string            `json:"reason,omitzero"`
	CorrID    string            `json:"corr_id,omitzero"`
	CapID     string            `json:"cap_id,omitzero"`
	Principal string            `json:"principal,omitzero"`
	UID       string            `json:"uid,omitzero"`
	Detail    map[string]string `json:"detail,omitempty"`
	Prev      b3.Digest         `json:"prev,omitzero"`
	Hash      b3.Digest         `json:"hash,omitzero"`
}

// MarshalJSON encodes the row as one line of an audit export.
func (r AuditRow) MarshalJSON() ([]byte, error) {
	return json.Marshal(line{
		Seq:       r.Seq,
		At:        time.Unix(0, r.At).UTC(),
		Event:     r.Event.Event,
		Decision:  r.Decision,
		Reason:    r.Reason,
		CorrID:    r.CorrID,
		CapID:     r.CapID,
		Principal: r.Principal,
		UID:       r.UID,
		Detail:    r.Detail,
		Prev:      r.Prev,
		Hash:      r.Hash,
	}, json.Deterministic(true))
}

// parseLine parses one line. skip reports that it holds no audit row.
func (m *metaLines) parseLine(raw []byte) (row AuditRow, skip bool, err error) {
	if len(raw) == 0 {
		return row, true, nil
	}
	var l line
	if err := json.Unmarshal(raw, &l, json.RejectUnknownMembers(true)); err != nil {
		return row, false, fmt.Errorf("%w: not an audit row: %w", ErrCorrupt, err)
	}
	if l.Bucket != "" {
		m.met = true
		m.take(l.exportLine)
		if l.Bucket != auditBucket.Name {
			return row, true, nil
		}
		row, err = parseAudit(l.Key, l.Value)
		return row, false, err
	}
	row = AuditRow{Seq: l.Seq, At: l.At.UnixNano(), Prev: l.Prev, Hash: l.Hash, Event: Event{
		Event:     l.Event,
		Decision:  l.Decision,
		Reason:    l.Reason,
		CorrID:    l.CorrID,
		CapID:     l.CapID,
		Principal: l.Principal,
		UID:       l.UID,
		Detail:    l.Detail,
	}}
	stored, err := encodeCBOR(auditValue{At: row.At, Prev: row.Prev[:], Event: row.Event})
	if err == nil && b3.Sum(stored) != row.Hash {
		err = fmt.Errorf("%w: audit row %d does not match its hash", ErrCorrupt, row.Seq)
	}
	return row, false, err
}
