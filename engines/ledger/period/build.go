package period

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// passAccounts is how many accounts one pass over the records builds: some 64 MiB of memory.
const passAccounts = 1 << 17

// Bytes that rows take in a page, with their keys and what bbolt keeps of each.
const (
	recordRow = 16 + 8                       // beside the record
	batchRows = 16 + 8 + 104 + 2*(16+8+1+36) // a header and two nodes of the log
	onceRow   = 105
)

// commandRows is how many rows one command writes or deletes.
const commandRows = 2048

// errCanceled says that a closing was canceled, or replaced.
var errCanceled = fmt.Errorf("the closing is no longer under way")

// builder builds the base of one closing.
type builder struct {
	store *store.Store
	c     tables.Closing
	prev  tables.Horizon
	rest  func(context.Context)    // between two views; nil: no rest
	tell  func(done, total uint64) // of the records, of all passes; nil: nobody asks
	pass  uint64                   // accounts of a pass

	done, total uint64 // records

	counted
}

// counted is what the first pass over the records finds.
type counted struct {
	accounts   uint64
	assets     map[uint32]tables.BaseAsset // that the period declared, or gave decimals
	open       map[uint64]bool             // holds, and whether the base before has the hold
	onces      map[tables.OnceKey]tables.Once
	batch      uint64 // of the record at hand
	references uint64
	bytes      uint64 // that the rows of the period take in the file, about
	rows       uint64 // their number
}

// Build makes the base of the closing under way and its statement, and leaves the closing at
// Exporting. It begins from nothing: rows of an attempt before are removed. rest is called between
// two views, and tell with the records done and to do, each as often as there are passes over them;
// either may be nil.
func Build(ctx context.Context, s *store.Store, rest func(context.Context), tell func(done, total uint64)) error {
	b := &builder{store: s, rest: rest, tell: tell, pass: passAccounts}
	return b.build(ctx)
}

func (b *builder) build(ctx context.Context) error {
	err := b.store.View(ctx, func(r store.Reader) error {
		b.prev, b.c = tables.GetHorizon(r), tables.GetClosing(r)
		head, _ := tables.GetHead(r)
		b.total = (b.c.Seq - b.prev.Seq) * (1 + (head.Accounts+b.pass-1)/b.pass)
		if b.c.Step != tables.Building || b.c.Period != b.prev.Period+1 {
			return errCanceled
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		b.wipe, b.count, b.buildAccounts, b.buildHolds, b.buildOnces, b.buildAssets, b.appendNames, b.seal,
	} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("build the base of period %d: %w", b.c.Period, err)
		}
	}
	return nil
}

// write sends a command that writes rows of the base, unless the closing was canceled.
func (b *builder) write(ctx context.Context, rows int, fill func(r store.Reader, w *store.Writes) error) error {
	return commit(ctx, b.store, change{
		kind: "ledger.close_build/1", size: rows * 128,
		fill: func(r store.Reader, w *store.Writes) error {
			if err := goesOn(r, &b.c); err != nil {
				return err
			}
			return fill(r, w)
		},
	})
}

// wipe removes what an attempt before has left.
func (b *builder) wipe(ctx context.Context) error {
	return clearGeneration(ctx, b.store, b.c.Period, b.prev.Names(), b.c.Attempt)
}

// count goes over the records for all that is few: assets, holds, permanent ids, and numbers.
func (b *builder) count(ctx context.Context) error {
	b.counted = counted{
		accounts: b.prev.Accounts,
		assets:   map[uint32]tables.BaseAsset{},
		open:     map[uint64]bool{},
		onces:    map[tables.OnceKey]tables.Once{},
	}
	err := b.store.View(ctx, func(r store.Reader) error {
		for seq := range tables.BaseOf(r).Holds(0) {
			b.open[seq] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.records(ctx, b.countRecord)
}

func (b *builder) countRecord(r store.Reader, rec *record.Record) error {
	b.rows++
	b.bytes += recordRow + uint64(len(tables.Raw(r, rec.Seq)))
	if rec.Batch != b.batch {
		b.batch = rec.Batch
		b.rows += 3
		b.bytes += batchRows
	}
	if rec.Op.MovesMoney() && rec.Guard != (record.Guard{}) {
		b.references++
		b.rows++
		b.bytes += onceRow
	}
	switch rec.Op {
	case record.OpOpen:
		b.accounts++
	case record.OpAsset:
		b.assets[rec.Asset] = tables.BaseAsset{Seq: rec.Seq, DeclaredAt: rec.At}
	case record.OpScale:
		a, known := b.assets[rec.Asset]
		if !known {
			a, known = tables.BaseOf(r).Asset(rec.Asset)
		}
		if !known {
			return fmt.Errorf("%w: asset %d was not declared", store.ErrCorrupt, rec.Asset)
		}
		a.Scale = tables.Scale{Seq: rec.Seq, Decimals: rec.Decimals()}
		b.assets[rec.Asset] = a
	case record.OpHold:
		b.open[rec.Seq] = false
	case record.OpCapture, record.OpRelease, record.OpExpire:
		if _, known := b.open[rec.Hold]; !known {
			return fmt.Errorf("%w: hold %d is not open", store.ErrCorrupt, rec.Hold)
		}
		delete(b.open, rec.Hold)
	case record.OpOnce:
		b.countOnce(r, rec)
	}
	return nil
}

// countOnce keeps the permanent id of a settlement, and its guard unless an earlier one has bound
// it.
func (b *builder) countOnce(r store.Reader, rec *record.Record) {
	if rec.Flags&record.FlagInner != 0 {
		return // it repeats a reference
	}
	b.onces[tables.OnceKey{Key: rec.Dedupe.Key}] = tables.Once{Seq: rec.Seq, Digest: rec.Dedupe.Fingerprint}
	if rec.Guard == (record.Guard{}) {
		return
	}
	key := tables.OnceKey{Guard: true, Key: rec.Guard.Key}
	_, bound := b.onces[key]
	if !bound {
		_, bound = tables.BaseOf(r).Once(key)
	}
	if !bound {
		owner := tables.Once{Seq: rec.Seq}
		copy(owner.Digest[:], rec.Guard.Owner[:])
		b.onces[key] = owner
	}
}

// part is the accounts of one pass: those with the refs first to last, and their balances.
type part struct {
	first, last uint64
	accounts    []tables.BaseAccount // by ref, less first
	balances    map[tables.StateKey]tables.Balance
}

// buildAccounts writes accounts and balances, a part of them after each pass over the records.
func (b *builder) buildAccounts(ctx context.Context) error {
	for first := uint64(1); first <= b.accounts; first += b.pass {
		p := &part{first: first, last: min(first+b.pass-1, b.accounts)}
		p.accounts = make([]tables.BaseAccount, p.last-p.first+1)
		p.balances = map[tables.StateKey]tables.Balance{}
		if err := b.store.View(ctx, func(r store.Reader) error { p.load(tables.BaseOf(r)); return nil }); err != nil {
			return err
		}
		err := b.records(ctx, func(_ store.Reader, rec *record.Record) error { return p.take(rec) })
		if err == nil {
			err = b.putPart(ctx, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// load reads the rows of the base before.
func (p *part) load(before tables.Base) {
	for ref, a := range before.Accounts(p.first) {
		if ref > p.last {
			break
		}
		p.accounts[ref-p.first] = a
	}
	for k, bal := range before.Balances(tables.StateKey{Account: p.first}) {
		if k.Account > p.last {
			break
		}
		p.balances[k] = bal
	}
}

func (p *part) has(ref uint64) bool { return ref >= p.first && ref <= p.last }

// take adds what a record changes.
func (p *part) take(rec *record.Record) error {
	if tables.ChangesAccount(rec) && p.has(rec.From) {
		a := &p.accounts[rec.From-p.first]
		a.Account, _ = a.Account.After(rec)
		if rec.Op == record.OpOpen {
			a.OpenedAt = rec.At
		}
		if rec.Nonce != 0 {
			a.LastTx = rec.TxID()
		}
	}
	for i := range rec.Images {
		im := &rec.Images[i]
		if !p.has(im.Account) {
			continue
		}
		k := tables.StateKey{Account: im.Account, Asset: im.Asset}
		before := p.balances[k]
		if before.State.LastSeq != im.Prev {
			return fmt.Errorf("%w: account %d, asset %d: it follows record %d, and the balance record %d",
				store.ErrCorrupt, im.Account, im.Asset, im.Prev, before.State.LastSeq)
		}
		p.balances[k] = tables.Balance{State: im.State, Postings: before.Postings + 1}
	}
	return nil
}

// putPart writes the rows of a pass in the order of the file.
func (b *builder) putPart(ctx context.Context, p *part) error {
	for i := 0; i < len(p.accounts); i += commandRows {
		rows := p.accounts[i:min(i+commandRows, len(p.accounts))]
		err := b.write(ctx, len(rows), func(_ store.Reader, w *store.Writes) error {
			for k, a := range rows {
				ref := p.first + uint64(i+k)
				if a.OpenedSeq == 0 {
					return fmt.Errorf("%w: account %d was not opened", store.ErrCorrupt, ref)
				}
				tables.PutBaseAccount(w, b.c.Period, ref, a)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return putSorted(ctx, b, p.balances, compareStates, tables.PutBaseBalance)
}

// putSorted writes rows in the order of their keys.
func putSorted[K comparable, V any](ctx context.Context, b *builder, rows map[K]V, compare func(x, y K) int,
	put func(w *store.Writes, generation uint64, k K, v V),
) error {
	for keys := range slices.Chunk(slices.SortedFunc(maps.Keys(rows), compare), commandRows) {
		err := b.write(ctx, len(keys), func(_ store.Reader, w *store.Writes) error {
			for _, k := range keys {
				put(w, b.c.Period, k, rows[k])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func compareStates(x, y tables.StateKey) int {
	return cmp.Or(cmp.Compare(x.Account, y.Account), cmp.Compare(x.Asset, y.Asset))
}

func compareOnces(x, y tables.OnceKey) int {
	if x.Guard != y.Guard {
		if x.Guard {
			return -1
		}
		return 1
	}
	return slices.Compare(x.Key[:], y.Key[:])
}

// buildOnces writes the permanent ids and guards of settlements: those of before and those of the
// period.
func (b *builder) buildOnces(ctx context.Context) error {
	err := b.store.View(ctx, func(r store.Reader) error {
		for k, v := range tables.BaseOf(r).Onces() {
			b.onces[k] = v
		}
		return nil
	})
	if err != nil {
		return err
	}
	return putSorted(ctx, b, b.onces, compareOnces, tables.PutBaseOnce)
}

// buildAssets writes the assets.
func (b *builder) buildAssets(ctx context.Context) error {
	err := b.store.View(ctx, func(r store.Reader) error {
		for ref, a := range tables.BaseOf(r).Assets() {
			if _, changed := b.assets[ref]; !changed {
				b.assets[ref] = a
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return putSorted(ctx, b, b.assets, cmp.Compare[uint32], tables.PutBaseAsset)
}
