package store

import (
	"context"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

// BucketStats tells of one bucket.
type BucketStats struct {
	Name  string
	Class Class
	Rows  uint64 // of its sub-buckets too
	Bytes int64  // of its pages; what is small lies in the page that names the bucket, and counts 0
	Depth int    // levels of its tree
}

// Stats tells of the file and of the commits since the store was opened.
type Stats struct {
	Bytes        int64 // length of the file
	MaxBytes     int64
	PageSize     int
	UsedBytes    int64 // pages that hold something
	FreePages    int64 // taken first by new rows
	PendingPages int64 // free once older readers have gone, or at the next commit
	DiskFree     int64 // negative: not known
	Reserve      int64 // of DiskFree, that work may not use
	Full         bool  // work is refused
	Buckets      []BucketStats
	Readers      int64
	OldestReader time.Duration
	Groups       uint64    // transactions committed
	Commands     uint64    // in them
	Commit       Quantiles // ns of a commit
	Sync         Quantiles // ns of it that went into writing pages and both syncs
	Batch        Quantiles // commands in one transaction
}

// Stats reads what the file holds, bucket by bucket, each in a read transaction of its own: it visits the pages of all, and with gigabytes
// that takes seconds. A second one at the same time is ErrBusy, so that asking often pins no more pages. Other errors: ErrPoisoned, ErrClosed,
// the cause of ctx.
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
		Bytes: s.Bytes(), MaxBytes: s.maxBytes(), PageSize: PageSize, FreePages: pages.free, PendingPages: pages.pending,
		Full: s.room.full(), Readers: s.views.open.Load(), OldestReader: time.Duration(s.views.oldest(s.mono())),
		Commit: s.metrics.pace.commit.quantiles(), Sync: s.metrics.pace.sync.quantiles(), Batch: s.metrics.pace.batch.quantiles(),
		Commands: s.metrics.pace.commands.Load(),
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

// bucketStats is one read transaction.
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

// Stats reads what the file holds; of commits it knows nothing.
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

// phaseNames are the values of the phase label, in the order of phases.
var phaseNames = [...]string{"apply", "spill", "grow", "sync", "commit"}

// phases splits one commit by what bbolt measures of it.
type phases struct {
	apply  time.Duration // commands and their merge, before the commit
	spill  time.Duration // rows to pages
	grow   time.Duration // list of free pages, growth of the file
	sync   time.Duration // writing pages, and both syncs
	commit time.Duration // spill, grow and sync
}

// phasesOf reads the statistics of a transaction that has ended.
func phasesOf(tx bolt.TxStats, apply, commit time.Duration) phases {
	p := phases{apply: apply, commit: commit, spill: tx.GetRebalanceTime() + tx.GetSpillTime(), sync: tx.GetWriteTime()}
	p.grow = max(commit-p.spill-p.sync, 0)
	return p
}
