package appliance

import (
	"context"
	"fmt"
	"time"

	"ronbox/engines"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// DBInfo is what the open file says of itself.
func (n *Node) DBInfo(context.Context) (wire.DBInfo, error) {
	info := n.store.Info()
	if info == nil {
		return wire.DBInfo{}, errNotOpen
	}
	return wire.DBInfo{
		File: n.store.Path(), NodeID: info.NodeID, Incarnation: info.Incarnation, Schema: info.Schema, Seq: info.Seq, Clean: info.Clean,
		Restored: info.Restored, RestoredFrom: info.RestoredFrom, AuthEpoch: info.AuthEpoch, PageSize: store.PageSize,
		Bytes: n.store.Bytes(), MaxBytes: n.maxBytes(), FreeBytes: n.store.FreeBytes(),
	}, nil
}

// DBStats visits the pages of every bucket, which takes seconds on a file of gigabytes.
func (n *Node) DBStats(ctx context.Context) (wire.DBStats, error) {
	s, err := n.store.Stats(ctx)
	if err != nil {
		return wire.DBStats{}, err
	}
	ms := func(ns float64) float64 { return ns / float64(time.Millisecond) }
	out := wire.DBStats{
		Bytes: s.Bytes, MaxBytes: s.MaxBytes, FreeBytes: (s.FreePages + s.PendingPages) * int64(s.PageSize), DiskFreeBytes: max(s.DiskFree, 0),
		PageSize: s.PageSize, FreePages: int(s.FreePages), PendingPages: int(s.PendingPages), Buckets: []wire.BucketStats{},
		Readers: int(s.Readers), OldestReaderSeconds: s.OldestReader.Seconds(), Groups: s.Groups, Commands: s.Commands,
		CommitP50MS: ms(float64(s.Commit.P50)), CommitP99MS: ms(float64(s.Commit.P99)),
		BatchP50: float64(s.Batch.P50), BatchP99: float64(s.Batch.P99),
	}
	for _, b := range s.Buckets {
		out.Buckets = append(out.Buckets, wire.BucketStats{
			Name: b.Name, Class: b.Class.String(), Rows: b.Rows, Bytes: b.Bytes, Depth: b.Depth,
		})
	}
	return out, nil
}

// AcceptRestore lets a restored node write again. On a node that is not restored it changes nothing.
func (n *Node) AcceptRestore(ctx context.Context, by engines.Actor, corrID string) error {
	if err := n.store.AcceptRestore(ctx, auditEvent("db.accept_restore", by, corrID, nil)); err != nil {
		return fmt.Errorf("accept restore: %w", err)
	}
	n.board.Set(ownService, "accept_restore", nil)
	n.redeclareAssets(ctx)
	return nil
}
