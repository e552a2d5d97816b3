package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Stats reads the size of each bucket in a read transaction of its own. It visits all pages, which
// takes seconds for gigabytes. It returns ErrBusy if another call is running, so that frequent
// calls do not pin more pages, or else ErrPoisoned, ErrClosed or the cause of ctx.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	if err := s.readable(ctx); err != nil {
		return Stats{}, err
	}
	if !s.counting.CompareAndSwap(false, true) {
		return Stats{}, fmt.Errorf("the file is being counted for another request: %w", ErrBusy)
	}
	defer s.counting.Store(false)
	pages := s.pages()
	out := Stats{
		Bytes:        s.Bytes(),
		MaxBytes:     s.maxBytes(),
		PageSize:     PageSize,
		FreePages:    pages.free,
		PendingPages: pages.pending,
		Full:         s.room.full(),
		Readers:      s.views.open.Load(),
		OldestReader: time.Duration(s.views.oldest(s.mono())),
		Commit:       s.metrics.pace.commit.quantiles(),
		Sync:         s.metrics.pace.sync.quantiles(),
		Batch:        s.metrics.pace.batch.quantiles(),
		Commands:     s.metrics.pace.commands.Load(),
	}
	out.Groups = out.Batch.Count
	if p := s.room.last.Load(); p != nil {
		out.UsedBytes, out.DiskFree, out.Reserve = p.used, p.disk, max(p.reserve(), 0)
	}
	for _, d := range s.schema.sorted() {
		b, err := s.bucketStats(ctx, d.Bucket)
		if err != nil {
			return out, err
		}
		out.Buckets = append(out.Buckets, b)
	}
	return out, nil
}

// bucketStats reads one bucket in a read transaction.
func (s *Store) bucketStats(ctx context.Context, b *Bucket) (out BucketStats, err error) {
	if err := s.readable(ctx); err != nil {
		return out, err
	}
	slot := s.views.begin(s.mono())
	defer s.views.end(slot)
	err = readRows(s.db, s.schema, func(r *txReader) error {
		out = r.stats(b)
		return nil
	})
	return out, s.readError(err)
}

func (r *txReader) stats(b *Bucket) BucketStats {
	out := BucketStats{Name: b.Name, Class: b.Class}
	t := r.table(b)
	if t.rows == nil {
		return out
	}
	r.inside = true
	st := t.rows.Stats()
	r.inside = false
	out.Rows, out.Bytes, out.Depth = uint64(st.KeyN), int64(st.BranchAlloc+st.LeafAlloc), st.Depth
	if b.Subs {
		out.Rows -= uint64(st.BucketN - 1) // each sub-bucket is an entry of its bucket
	}
	return out
}

// Stats reads the sizes of the file and its buckets. The result has no commit figures.
func (r *ReadOnly) Stats(ctx context.Context) (Stats, error) {
	out := Stats{Bytes: r.size, PageSize: PageSize, FreePages: r.FreeBytes() / PageSize, DiskFree: -1}
	err := readRows(r.db, nil, func(rd *txReader) error {
		out.UsedBytes = rd.tx.Size() - out.FreePages*PageSize
		for _, b := range r.buckets {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			out.Buckets = append(out.Buckets, rd.stats(b))
		}
		return nil
	})
	return out, err
}

// usedBytes returns the used bytes as of the last look.
func (s *Store) usedBytes() int64 {
	if p := s.room.last.Load(); p != nil {
		return p.used
	}
	return 0
}

// BytesLeft returns the bytes that the file can still take until work is refused, as of the last
// look, or -1 if that is unknown.
func (s *Store) BytesLeft() int64 {
	if p := s.room.last.Load(); p != nil {
		return p.left()
	}
	return -1
}

// BytesSpare returns the bytes that the file can still take of commands that a full store takes, as
// of the last look, or a very large number if that is unknown. limit is store.max_bytes, or 0 if
// the disk has less.
func (s *Store) BytesSpare() (spare, limit int64) {
	p := s.room.last.Load()
	if p == nil {
		return spaceMax, 0
	}
	spare, limit = max(p.capacity-p.used, 0), s.maxBytes()
	if onDisk := p.size - p.used + p.disk; p.disk >= 0 && onDisk < spare {
		return max(onDisk, 0), 0
	}
	return spare, limit
}

// DiskSpare returns the bytes that other files may take on the disk of the file before writers lack
// space, as of the last look, or a very large number if that is unknown.
func (s *Store) DiskSpare() int64 {
	p := s.room.last.Load()
	if p == nil || p.disk < 0 {
		return spaceMax
	}
	return p.disk - p.reserve() - p.growth()
}

// viewSlots is the number of concurrent views with a tracked age. Further views are only counted.
const viewSlots = 64

// viewGauge counts the open read transactions and tracks their age.
type viewGauge struct {
	open  atomic.Int64
	next  atomic.Uint32
	began [viewSlots]atomic.Int64 // ns on the store's clock; 0: free
}

// begin registers a view and returns the slot to pass to end, or -1.
func (g *viewGauge) begin(now int64) (slot int) {
	g.open.Add(1)
	slot = int(g.next.Add(1) % viewSlots)
	if !g.began[slot].CompareAndSwap(0, max(now, 1)) {
		return -1
	}
	return slot
}

func (g *viewGauge) end(slot int) {
	if slot >= 0 {
		g.began[slot].Store(0)
	}
	g.open.Add(-1)
}

// oldest returns the age of the oldest tracked view in ns, or 0.
func (g *viewGauge) oldest(now int64) int64 {
	var age int64
	for i := range g.began {
		if began := g.began[i].Load(); began != 0 {
			age = max(age, now-began)
		}
	}
	return age
}
