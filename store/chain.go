package store

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
)

// ChainReport is what a walk over audit rows has found. The chain holds within itself; that it is whole, an export of the file says of
// itself, and of rows alone Last and Head against those of the node tell.
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

// ends holds the chain against what the meta bucket says of it.
func (c *chain) ends(head position) error {
	switch {
	case c.rows == 0 && head.auditSeq > 0:
		return fmt.Errorf("%w: there are no audit rows, the head is row %d", ErrCorrupt, head.auditSeq)
	case c.rows > 0 && c.first != head.auditFirst:
		return fmt.Errorf("%w: the audit chain begins at row %d, not at row %d", ErrCorrupt, c.first, head.auditFirst)
	case c.last != head.auditSeq || c.head != head.auditHead:
		return fmt.Errorf("%w: the audit chain ends at row %d, its head is row %d", ErrCorrupt, c.last, head.auditSeq)
	}
	return nil
}

// maxAuditLine is more than any audit row takes as JSON, bytes.
const maxAuditLine = 4 << 20

// CheckAudit walks the audit rows of an NDJSON stream: rows as Audit gives them ({"seq", "at", "event", …, "prev", "hash"}), or an export of
// the file, of which it takes the bucket of the audit chain and the rows of meta that say where the chain begins and ends. Each row is hashed
// again from its members. What does not hold is ErrCorrupt and names the row.
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

// metaLines are the rows of meta that an export of the file has.
type metaLines struct {
	met             bool // lines of such an export
	position, first []byte
}

// head is where the chain begins and ends.
func (m *metaLines) head() (p position, err error) {
	if m.position == nil {
		return p, fmt.Errorf("%w: the export was cut short, it does not say where the audit chain ends", ErrCorrupt)
	}
	if p, err = parsePosition(m.position); err == nil {
		err = p.readFirst(m.first)
	}
	if err != nil {
		return p, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return p, nil
}

// take keeps a row of meta that tells of the chain.
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
		Event: l.Event, Decision: l.Decision, Reason: l.Reason, CorrID: l.CorrID, CapID: l.CapID, Principal: l.Principal, UID: l.UID,
		Detail: l.Detail,
	}}
	stored, err := encodeCBOR(auditValue{At: row.At, Prev: row.Prev[:], Event: row.Event})
	if err == nil && b3.Sum(stored) != row.Hash {
		err = fmt.Errorf("%w: audit row %d is not what its hash says", ErrCorrupt, row.Seq)
	}
	return row, false, err
}
