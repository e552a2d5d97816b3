package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
)

func account(n uint64) string { return "acct/" + strconv.FormatUint(n, 10) }

func (b *bench) fund(ctx context.Context) error {
	ops := []ledger.Op{{Code: record.OpAsset, Asset: "ron"}}
	for n := range uint64(accounts) {
		ops = append(ops, ledger.Op{
			Code: record.OpIssue, To: account(n), Asset: "ron", Amount: engines.AmountOf(0, fortune),
		})
	}
	for part := range slices.Chunk(ops, 1000) {
		if err := b.commit(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// commit makes a call, again while the store is full.
func (b *bench) commit(ctx context.Context, ops []ledger.Op) error {
	for {
		outs, err := b.ledger.Commit(ctx, ops)
		if errors.Is(err, ledger.ErrFull) {
			b.full.Add(1)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		for _, o := range outs {
			if err == nil && o.Reject != nil {
				err = o.Reject
			}
		}
		return err
	}
}

// payment returns the next payment. Each payer pays from accounts of its own.
func (b *bench) payment(payer uint64) ledger.Op {
	n := b.keys.Add(1)
	key := strconv.FormatUint(n, 36)
	o := ledger.Op{
		Code: record.OpTransfer, From: account(n*payers%accounts/payers*payers + payer), To: account((n * 7919) % accounts),
		Asset: "ron", Amount: engines.AmountOf(0, 1), Principal: "uid:1000", CapID: "cap-1",
		Dedupe: ledger.DedupeKey{Scope: "uid:1000", Key: key}, Idem: key, TTL: 24 * time.Hour,
	}
	if o.To == o.From {
		o.To = account((n*7919 + 1) % accounts)
	}
	binary.LittleEndian.PutUint64(o.Fingerprint[:], n)
	if n%2 == 0 {
		o.Reference = "order-" + key
		b.refs.Add(1)
	}
	return o
}

// figures describe payments.
type figures struct {
	rate  float64 // a second
	p50   float64 // of a call, ms
	bytes float64 // that reached the page cache for the disk, a payment
}

// pay makes n payments and measures them.
func (b *bench) pay(ctx context.Context, n int) (f figures, err error) {
	var all sync.WaitGroup
	errs, took := make([]error, payers), make([][]time.Duration, payers)
	begun, wrote := time.Now(), written()
	for p := range payers {
		all.Go(func() {
			ops := make([]ledger.Op, burst)
			for k := range n / payers / burst {
				if b.rate != 0 { // a payer that is late pays on at once
					time.Sleep(time.Until(begun.Add(time.Duration(k) * time.Second * payers * burst / time.Duration(b.rate))))
				}
				for i := range ops {
					ops[i] = b.payment(uint64(p))
				}
				at := time.Now()
				if errs[p] = b.commit(ctx, ops); errs[p] != nil {
					return
				}
				took[p] = append(took[p], time.Since(at))
				b.paid.Add(burst)
			}
		})
	}
	all.Wait()
	each := slices.Concat(took...)
	if err := errors.Join(errs...); err != nil || len(each) == 0 {
		return f, errors.Join(err, errors.New("too few payments"))
	}
	slices.Sort(each)
	made := float64(len(each) * burst)
	return figures{
		rate: made / time.Since(begun).Seconds(), p50: each[len(each)/2].Seconds() * 1000,
		bytes: float64(written()-wrote) / made,
	}, nil
}

// lonely makes payments one second apart, and returns the bytes that each has written. Before it
// waits until the rows that a burst changed are written, and its free pages are used.
func (b *bench) lonely(ctx context.Context) (float64, error) {
	time.Sleep(settle)
	one := func(rest time.Duration) error {
		time.Sleep(rest)
		return b.commit(ctx, []ledger.Op{b.payment(0)})
	}
	for range most {
		if b.store.PageUse().Free < few {
			break
		}
		if err := one(time.Second / 5); err != nil {
			return 0, err
		}
	}
	if err := one(2 * time.Second); err != nil {
		return 0, err
	}
	wrote := written()
	for range loners {
		if err := one(time.Second); err != nil {
			return 0, err
		}
	}
	return float64(written()-wrote) / loners, nil
}

// written returns the bytes that this process has sent to disks.
func written() (n uint64) {
	raw, _ := os.ReadFile("/proc/self/io")
	_, rest, _ := bytes.Cut(raw, []byte("\nwrite_bytes: "))
	text, _, _ := bytes.Cut(rest, []byte("\n"))
	n, _ = strconv.ParseUint(string(text), 10, 64)
	return n
}

// fill pays until the store is full, some days by its clock, and closes what no key counts for.
func (b *bench) fill(ctx context.Context) error {
	for n := 1; ; n++ {
		b.ahead.Add(int64(15 * time.Minute))
		if n%32 == 0 { // slots of keys are sealed and dropped once a second
			time.Sleep(2 * time.Second)
		}
		ops := make([]ledger.Op, 512)
		for i := range ops {
			ops[i] = b.payment(0)
		}
		_, err := b.ledger.Commit(ctx, ops)
		if errors.Is(err, ledger.ErrFull) {
			break
		}
		if err != nil {
			return err
		}
	}
	fmt.Printf("full (507) after %d payments, with %.1f MiB used\n", b.keys.Load(), mib(b.used()))
	p, err := b.closer.Close(ctx, period.Ask{Before: b.now()})
	if err == nil {
		b.periods = p.Period
		err = b.closed(ctx, b.periods)
	}
	return err
}
