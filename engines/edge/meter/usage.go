package meter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ronbox/engines/fleet/usage"
	"ronbox/store"
)

// The buckets of usage, which exist only in a fleet. They are derived, so that the state hash of a
// file does not depend on whether the program that opens it is in a fleet.
var (
	bCounts     = &store.Bucket{Name: "edge/counts", Class: store.Derived}           // by epoch, until it is final
	bSeen       = &store.Bucket{Name: "edge/seen", Class: store.Derived, Subs: true} // a set of objects for each
	bStatements = &store.Bucket{Name: "edge/usage", Class: store.Derived}            // by epoch, once it is final
)

// Buckets returns the buckets of usage.
func Buckets() []*store.Bucket { return []*store.Bucket{bCounts, bSeen, bStatements} }

// The tables.
var (
	counts     = store.NewTable(bCounts, store.U64(), store.CBOR[countRow]()).Summed().Alone()
	statements = store.NewTable(bStatements, store.U64(), statementValue()).Summed() // a bad row costs its epoch alone
)

// Bounds of kept statements.
const (
	// statementsFor is the least time that a statement is kept after the end of its epoch.
	statementsFor = 90 * 24 * time.Hour
	// maxStatements bounds their number. Statements of epochs of less than 32 minutes are kept for
	// a shorter time.
	maxStatements = 4096
)

// countRow is a row of edge/counts: what was received in an epoch that is not final.
type countRow struct {
	Length      int64  `cbor:"1,keyasint"` // of the epoch, in seconds
	Incarnation string `cbor:"2,keyasint"` // that counted last
	Objects     uint64 `cbor:"3,keyasint"`
	Bytes       uint64 `cbor:"4,keyasint"`
	// by node; sorted
	Nodes []nodeCount `cbor:"5,keyasint"`
}

// nodeCount counts the bytes received from one node.
type nodeCount struct {
	Node    string `cbor:"1,keyasint"`
	Asked   uint64 `cbor:"2,keyasint"`
	Placed  uint64 `cbor:"3,keyasint"`
	Objects uint64 `cbor:"4,keyasint"`
}

func (c *countRow) length() time.Duration { return time.Duration(c.Length) * time.Second }

// rows returns the rows of the statement.
func (c *countRow) rows() (rows []usage.Row) {
	for _, n := range c.Nodes {
		rows = append(rows, usage.Row(n))
	}
	return rows
}

// add counts an object, unless it exceeds a bound of a statement.
func (c *countRow) add(r receipt) bool {
	at, known := slices.BinarySearchFunc(c.Nodes, r.Node,
		func(n nodeCount, id string) int { return strings.Compare(n.Node, id) })
	if c.Objects >= maxCounted || r.Size > usage.MaxBytes-c.Bytes || !known && len(c.Nodes) == usage.MaxNodes {
		return false
	}
	if !known {
		c.Nodes = slices.Insert(c.Nodes, at, nodeCount{Node: r.Node})
	}
	n := &c.Nodes[at]
	if r.Placed {
		n.Placed += r.Size
	} else {
		n.Asked += r.Size
	}
	n.Objects, c.Objects, c.Bytes = n.Objects+1, c.Objects+1, c.Bytes+r.Size
	return true
}

// countReceived counts objects in the epoch of its stamp, each once. It counts nothing if the epoch
// is final, or if its number has another length.
type countReceived struct {
	Length      int64 // of an epoch, in seconds
	Incarnation string
	Receipts    []receipt
}

func (countReceived) Kind() string { return "edge.count/1" }

func (c countReceived) Size() int { return 128 + 64*len(c.Receipts) }

func (c countReceived) Apply(r store.Reader, at store.Stamp, w *store.Writes) (counted int, err error) {
	epoch := usage.EpochOf(time.Unix(0, at.At), time.Duration(c.Length)*time.Second)
	row, open := counts.Get(r, epoch)
	if open && row.Length != c.Length || !open && (statements.Has(r, epoch) || epochsOpen(r) >= maxOpenEpochs) {
		return 0, nil
	}
	row.Length, row.Incarnation = c.Length, c.Incarnation
	seen := seenIn(epoch)
	for _, one := range c.Receipts {
		if !seen.Has(r, one.Object[:]) && row.add(one) {
			seen.Put(w, one.Object[:], struct{}{})
			counted++
		}
	}
	counts.Put(w, epoch, row)
	return counted, nil
}

// seenIn returns the set of the objects that were counted in an epoch.
func seenIn(epoch uint64) store.Table[[]byte, struct{}] {
	return store.NewTable(bSeen.Sub(seenName(epoch)), store.Bytes(), store.None()).Summed()
}

func epochsOpen(r store.Reader) (n int) {
	for range r.Range(bCounts, nil, nil) {
		n++
	}
	return n
}

// errNotOver is returned by finishEpoch if the epoch is not over by the clock of the committer, or
// was counted in since its row was read.
var errNotOver = errors.New("the epoch is not over")

// finishEpoch makes a statement final. Without a statement it drops the counts of the epoch: they
// are of another incarnation, which may have made another statement.
type finishEpoch struct {
	Epoch     uint64
	Row       countRow // that the statement was made of
	Statement []byte
}

func (finishEpoch) Kind() string { return "edge.finish_epoch/1" }

func (c finishEpoch) Size() int { return 256 + 2*len(c.Statement) }

func (c finishEpoch) Apply(r store.Reader, at store.Stamp, w *store.Writes) (struct{}, error) {
	row, open := counts.Get(r, c.Epoch)
	now := time.Unix(0, at.At)
	if !open || row.Incarnation != c.Row.Incarnation || row.Objects != c.Row.Objects ||
		now.Before(finalAt(c.Epoch, row.length())) {
		return struct{}{}, errNotOver
	}
	counts.Delete(w, c.Epoch)
	w.Drop(bSeen.Sub(seenName(c.Epoch)))
	if c.Statement == nil || statements.Has(r, c.Epoch) {
		return struct{}{}, nil
	}
	_, end := usage.Window(c.Epoch, row.length())
	statements.Put(w, c.Epoch, statementRow{End: end.Unix(), Signed: c.Statement})
	dropStatements(r, w, now)
	return struct{}{}, nil
}

// dropStatements deletes statements that were kept long enough, and the oldest one if there are too
// many.
func dropStatements(r store.Reader, w *store.Writes, now time.Time) {
	const most = 16 // deletes of one command
	var oldest []byte
	var first int64
	n, deleted := 0, 0
	for key, raw := range r.Range(bStatements, nil, nil) { // undecoded, because statements are long
		if len(raw) < 8 {
			continue
		}
		end := int64(binary.BigEndian.Uint64(raw))
		switch {
		case now.Sub(time.Unix(end, 0)) > statementsFor && deleted < most:
			w.Delete(bStatements, slices.Clone(key))
			deleted++
		case oldest == nil || end < first:
			oldest, first = slices.Clone(key), end
		}
		n++
	}
	if n-deleted >= maxStatements {
		w.Delete(bStatements, oldest)
	}
}

// resetCounts drops all counts of epochs that are not final, because one of their rows does not
// read. The open epochs count less than was received.
type resetCounts struct{}

func (resetCounts) Kind() string { return "edge.reset_counts/1" }

func (resetCounts) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Clear(bCounts)
	for b := range store.Subs(r, bSeen) {
		w.Drop(b)
	}
	return struct{}{}, nil
}

// statementRow is a row of edge/usage.
type statementRow struct {
	End    int64 // of the epoch, Unix seconds
	Signed []byte
}

func statementValue() store.Value[statementRow] {
	return store.Value[statementRow]{
		Encode: func(s statementRow) ([]byte, error) {
			return append(binary.BigEndian.AppendUint64(nil, uint64(s.End)), s.Signed...), nil
		},
		Decode: func(b []byte) (s statementRow, err error) {
			if len(b) < 8 {
				return s, errors.New("it is too short")
			}
			return statementRow{int64(binary.BigEndian.Uint64(b)), slices.Clone(b[8:])}, nil
		},
	}
}

// OpenEpochError is returned for the statement of an epoch that is not final yet.
type OpenEpochError struct {
	Epoch uint64
	Final time.Time // the earliest time of the statement
}

func (e *OpenEpochError) Error() string {
	return fmt.Sprintf("the statement of epoch %d is not final before %s, and is made within a minute after that",
		e.Epoch, e.Final.UTC().Format(time.RFC3339))
}

// ErrNoStatement is returned for an epoch in which this node did not run in a fleet, for one that
// is too old, and for one that has not begun.
var ErrNoStatement = errors.New("this node has no statement of the epoch")

// Statement returns the signed statement of an epoch. It returns an *OpenEpochError before it is
// final, and ErrNoStatement if there is none.
func (m *Meter) Statement(ctx context.Context, epoch uint64) (signed []byte, err error) {
	if m == nil || epoch > usage.MaxEpoch {
		return nil, ErrNoStatement
	}
	err = m.d.Store.View(ctx, func(r store.Reader) error {
		if row, final := statements.Get(r, epoch); final {
			signed = row.Signed
			return nil
		}
		if row, open := counts.Get(r, epoch); open {
			return &OpenEpochError{epoch, finalAt(epoch, row.length())}
		}
		view := m.d.View()
		if view != nil && view.Epoch >= time.Second && usage.EpochOf(m.d.Now(), view.Epoch) == epoch {
			return &OpenEpochError{epoch, finalAt(epoch, view.Epoch)}
		}
		return ErrNoStatement
	})
	return signed, err
}

// Check reads every row of the buckets of usage and returns an error for the first bad row.
func Check(r store.Reader) error {
	for epoch, row := range counts.All(r) {
		sum := countRow{Length: row.Length, Incarnation: row.Incarnation}
		for _, n := range row.Nodes {
			sum.Objects, sum.Bytes = sum.Objects+n.Objects, sum.Bytes+n.Asked+n.Placed
		}
		if row.Length < 1 || sum.Objects != row.Objects || sum.Bytes != row.Bytes {
			return &store.RowError{Bucket: bCounts.Name, Key: store.U64().Append(nil, epoch),
				Cause: errors.New("its sums are not those of its nodes")}
		}
	}
	for epoch, row := range statements.All(r) {
		s, err := usage.Parse(row.Signed)
		_, end := usage.Window(epoch, max(time.Second, s.Length))
		if err == nil && (s.Epoch != epoch || end.Unix() != row.End) {
			err = errors.New("it is of another epoch")
		}
		if err != nil {
			return &store.RowError{Bucket: bStatements.Name, Key: store.U64().Append(nil, epoch), Cause: err}
		}
	}
	return nil
}
