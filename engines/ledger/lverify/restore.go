package lverify

import (
	"bytes"
	"context"
	"fmt"

	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// restoreBase makes the derived tables as they were at the horizon, and then says so in
// ledger/flush.
func restoreBase(ctx context.Context, s *store.Store, rows int) error {
	var err error
	for c := (restore{rows: rows}); err == nil && !c.done; {
		c, err = store.Commit(ctx, s, store.Work, c)
	}
	for c := (rename{rows: rows}); err == nil && !c.done; {
		c, err = store.Commit(ctx, s, store.Work, c)
	}
	if err == nil {
		_, err = store.Commit(ctx, s, store.Work, reach{})
	}
	return err
}

// restore is the command that writes the derived rows of the base, from one on. It answers the next
// restore.
type restore struct {
	from tables.BaseRow
	rows int
	done bool
}

var _ store.Command[restore] = restore{}

// Kind names the command.
func (restore) Kind() string { return "ledger.rebuild/1" }

// Apply writes rows.
func (c restore) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (next restore, err error) {
	n := 0
	for row := range tables.BaseOf(r).RowsFrom(c.from) {
		if n++; n > c.rows {
			return restore{from: tables.BaseRow{Kind: row.Kind, Key: bytes.Clone(row.Key)}, rows: c.rows}, nil
		}
		if err := row.Restore(w); err != nil {
			return c, err
		}
	}
	return restore{done: true}, nil
}

// rename is the command that leads from the names in ledger/refs to their refs, from one on. It
// answers the next rename.
type rename struct {
	from tables.NameChange
	rows int
	done bool
}

var _ store.Command[rename] = rename{}

// Kind names the command.
func (rename) Kind() string { return "ledger.rebuild/1" }

// Apply writes names.
func (c rename) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (next rename, err error) {
	n := 0
	for name := range tables.Names(r, c.from) {
		if n++; n > c.rows {
			return rename{from: name, rows: c.rows}, nil
		}
		name.Put(w)
	}
	return rename{done: true}, nil
}

// reach is the command that says that the derived tables have come to the horizon. It writes the
// peaks of the log up to there.
type reach struct{}

var _ store.Command[struct{}] = reach{}

// Kind names the command.
func (reach) Kind() string { return "ledger.rebuild/1" }

// Apply writes the rows.
func (reach) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	h := tables.GetHorizon(r)
	s := tables.StatementOf(r, h.Period)
	at := merkle.LogPeaks(h.Batch)
	if len(at) != len(s.Peaks) {
		return done, fmt.Errorf("the statement of period %d has %d peaks, its log %d", h.Period, len(s.Peaks), len(at))
	}
	nodes := make([]merkle.LogNode, 0, len(at))
	for i, pos := range at {
		nodes = append(nodes, merkle.LogNode{Pos: pos, Hash: s.Peaks[i]})
	}
	tables.PutLogNodes(w, nodes...)
	tables.PutFlushed(w, tables.Flushed{Seq: h.Seq, Batches: h.Batch})
	return done, nil
}
