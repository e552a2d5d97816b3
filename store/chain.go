package store

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
)

// ChainReport is what a walk over audit rows has found. The chain holds within itself; that it is whole, Last and Head against those of
// the node tell.
type ChainReport struct {
	Rows  uint64    `json:"rows"`
	First uint64    `json:"first"` // its Prev is taken as it stands
	Last  uint64    `json:"last"`
	Head  b3.Digest `json:"head"`
}

// chain follows rows, each of which must come after the one before it.
type chain struct {
	rows, first, last uint64
	head              b3.Digest
}

func (c *chain) add(row AuditRow) error {
	switch {
	case c.rows == 0 && row.Seq == 1 && !row.Prev.IsZero():
		return fmt.Errorf("%w: audit row 1 has one before it", ErrCorrupt)
	case c.rows == 0:
		c.first = row.Seq
	case row.Seq != c.last+1 || row.Prev != c.head:
		return fmt.Errorf("%w: audit row %d does not follow row %d", ErrCorrupt, row.Seq, c.last)
	}
	c.last, c.head, c.rows = row.Seq, row.Hash, c.rows+1
	return nil
}

// maxAuditLine is more than any audit row takes as JSON, bytes.
const maxAuditLine = 4 << 20

// CheckAudit walks the audit rows of an NDJSON stream: rows as Audit gives them ({"seq", "at", "event", …, "prev", "hash"}), or an export of
// the file, of which it takes the bucket of the audit chain. Each row is hashed again from its members. What does not hold is ErrCorrupt and
// names the row.
func CheckAudit(r io.Reader) (ChainReport, error) {
	var c chain
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxAuditLine)
	for n := 1; lines.Scan(); n++ {
		row, skip, err := parseLine(lines.Bytes())
		if err == nil && !skip {
			err = c.add(row)
		}
		if err != nil {
			return c.report(), fmt.Errorf("line %d: %w", n, err)
		}
	}
	return c.report(), lines.Err()
}

func (c *chain) report() ChainReport { return ChainReport{c.rows, c.first, c.last, c.head} }

// line is one line of either form; members of the other one are absent.
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

// MarshalJSON gives the row as one line of an audit export.
func (r AuditRow) MarshalJSON() ([]byte, error) {
	return json.Marshal(line{
		Seq: r.Seq, At: time.Unix(0, r.At).UTC(), Event: r.Event.Event, Decision: r.Decision, Reason: r.Reason, CorrID: r.CorrID,
		CapID: r.CapID, Principal: r.Principal, UID: r.UID, Detail: r.Detail, Prev: r.Prev, Hash: r.Hash,
	}, json.Deterministic(true))
}

// parseLine reads one line; skip is one without an audit row.
func parseLine(raw []byte) (row AuditRow, skip bool, err error) {
	if len(raw) == 0 {
		return row, true, nil
	}
	var l line
	if err := json.Unmarshal(raw, &l, json.RejectUnknownMembers(true)); err != nil {
		return row, false, fmt.Errorf("%w: not an audit row: %w", ErrCorrupt, err)
	}
	if l.Bucket != "" {
		if l.Bucket != auditBucket.Name {
			return row, true, nil
		}
		row, err = parseAudit(l.Key, l.Value)
		return row, false, err
	}
	row = AuditRow{Seq: l.Seq, At: l.At.UnixNano(), Prev: l.Prev, Hash: l.Hash, Event: Event{
		Event: l.Event, Decision: l.Decision, Reason: l.Reason, CorrID: l.CorrID, CapID: l.CapID, Principal: l.Principal, UID: l.UID,
		Detail: l.Detail,
	}}
	stored, err := encodeCBOR(auditValue{At: row.At, Prev: row.Prev[:], Event: row.Event})
	if err == nil && b3.Sum(stored) != row.Hash {
		err = fmt.Errorf("%w: audit row %d is not what its hash says", ErrCorrupt, row.Seq)
	}
	return row, false, err
}
