package lverify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// ImportOptions are the options of Import.
type ImportOptions struct {
	Options
	// Key is the hash key of the exported ledger, which the export does not contain. Without it the
	// import does not recognize repetitions under idempotency keys. If it is zero, Import draws
	// one.
	Key tables.StoreKey
	// Now is the wall clock, nil time.Now: a ledger of the future is refused, as it could not be
	// gone on with.
	Now func() time.Time
}

// ErrNotEmpty: the file has a ledger, and not one that the export goes on from.
var ErrNotEmpty = errors.New("the file has another ledger already: import into a new data folder")

// Import writes the ledger of an export that begins with the first record: the same records,
// batches and roots, and the derived tables. The file's ledger must be empty, or a prefix of the
// export, as after an interrupted import. Import writes each batch once it is verified, so of a bad
// export the ledger has the batches before the first finding. s is open, its committer runs and its
// ledger does not.
func Import(ctx context.Context, s *store.Store, in io.Reader, o ImportOptions) (Report, error) {
	return importFrom(ctx, s, o, func(m *importer) (Report, error) {
		x := newExport(in, o.Options)
		m.x, x.each = x, m.batch
		err := x.all(ctx)
		return x.rep, err
	})
}

// ImportPeriods is Import from the files of closed periods in dir, from the first period on, and
// from the export in that goes on from the last file, unless in is nil. The ledger has all records,
// and no closed period: the records in it that close periods mean nothing to it. It returns a
// *FileError as OpenFiles does.
func ImportPeriods(ctx context.Context, s *store.Store, dir string, in io.Reader, o ImportOptions) (Report, error) {
	return importFrom(ctx, s, o, func(m *importer) (Report, error) {
		err := s.View(ctx, func(r store.Reader) error {
			if tables.GetHorizon(r).Period != 0 || tables.GetClosing(r).Step != 0 {
				return ErrNotEmpty // its next period would not be the next one of the records
			}
			return nil
		})
		if err == nil {
			_, err = OpenFiles(dir)
		}
		if err != nil {
			return Report{}, err
		}
		p := NewPeriods(o.Options)
		p.each = m.batch
		sum, err := p.Folder(ctx, dir)
		if err == nil && sum.OK && in != nil {
			err = p.Export(ctx, in, &sum)
		}
		return sum, err
	})
}

// importFrom writes the batches that check finds good.
func importFrom(
	ctx context.Context,
	s *store.Store,
	o ImportOptions,
	check func(m *importer) (Report, error),
) (rep Report, err error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Key == (tables.StoreKey{}) {
		_, _ = rand.Read(o.Key[:]) // never fails
	}
	m := &importer{ctx: ctx, s: s, o: o}
	err = s.View(ctx, func(r store.Reader) error {
		if err := tables.CheckFormat(r); err != nil {
			return err
		}
		m.had, _ = tables.GetHead(r)
		return nil
	})
	if err == nil {
		rep, err = check(m)
	}
	if err == nil {
		err = m.send()
	}
	if err != nil {
		return rep, fmt.Errorf("import: %w", err)
	}
	return rep, Rebuild(ctx, s, o.Options)
}

// importer collects batches for commands.
type importer struct {
	ctx  context.Context
	s    *store.Store
	o    ImportOptions
	x    *export     // the last one of which there was a batch
	had  tables.Head // of the file before
	next importSlice
	keys int
}

// batch takes a batch that was found good.
func (m *importer) batch(x *export, b record.Batch, raws [][]byte) error {
	m.x = x
	switch {
	case !x.rep.Whole:
		return errors.New("the export does not begin with the first record")
	case b.No == m.had.Batches && b.Root() != m.had.LastRoot:
		return ErrNotEmpty
	case b.At > m.o.Now().UnixNano():
		return fmt.Errorf("batch %d is of the future: the clock is wrong, or was where the export comes from", b.No)
	case b.No <= m.had.Batches:
		return nil
	}
	if m.keys > 0 && m.keys+len(raws)+1 > m.o.slice() {
		if err := m.send(); err != nil {
			return err
		}
	}
	if m.next.batches = append(m.next.batches, importBatch{b, raws}); x.chain.closing {
		m.next.closed = b.Last()
	}
	m.keys += len(raws) + 1
	c := x.chain // it has come to the end of b, and not beyond
	m.next.accounts, m.next.assets, m.next.holds = c.accounts.count(), uint32(len(c.issuers)), uint64(len(c.open))
	return nil
}

// send commits the collected batches. A file with more batches than the export has another ledger.
func (m *importer) send() error {
	if len(m.next.batches) == 0 {
		if m.x != nil && m.x.chain != nil && m.x.chain.batch < m.had.Batches {
			return ErrNotEmpty
		}
		return nil
	}
	if m.had.Batches == 0 {
		m.next.key = &m.o.Key
	}
	head, err := store.Commit(m.ctx, m.s, store.Work, m.next)
	m.had, m.next, m.keys = head, importSlice{}, 0
	return err
}

// importBatch is a batch as it was exported.
type importBatch struct {
	header record.Batch
	raws   [][]byte
}

// importSlice is the command that writes batches behind the head, and answers the new one.
type importSlice struct {
	key     *tables.StoreKey // of a ledger that begins
	batches []importBatch
	closed  uint64 // the last record that closes a period, 0: there is none

	// After the last one.
	accounts uint64
	assets   uint32
	holds    uint64
}

var _ store.Command[tables.Head] = importSlice{}

// Kind names the command.
func (importSlice) Kind() string { return "ledger.import/1" }

// Size returns the weight of the command in its group, bytes.
func (c importSlice) Size() (n int) {
	for _, b := range c.batches {
		for _, raw := range b.raws {
			n += len(raw)
		}
	}
	return n
}

// Apply refuses batches that do not follow on the head.
func (c importSlice) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (tables.Head, error) {
	head, known := tables.GetHead(r)
	if first := c.batches[0].header; first.No != head.Batches+1 || first.Prev != head.LastRoot {
		return head, ErrNotEmpty
	}
	if !known && c.key != nil {
		tables.PutGenesis(w, *c.key)
	}
	for i := range c.batches {
		tables.PutBatch(w, &head, &c.batches[i].header, c.batches[i].raws)
	}
	head.Accounts, head.Assets, head.OpenHolds = c.accounts, c.assets, c.holds
	tables.PutHead(w, head)
	if c.closed != 0 {
		tables.PutImported(w, c.closed)
	}
	return head, nil
}
