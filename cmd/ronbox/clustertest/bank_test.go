package clustertest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// The bank has three accounts, so that its clients contend for them.
const (
	accounts    = 3
	openingEach = 1_000
	mostMoved   = 400
)

// balances is the state of the model of the bank.
type balances [accounts]uint64

func (b balances) sum() (all uint64) {
	for _, n := range b {
		all += n
	}
	return all
}

// bankIn is a transfer, or a read of the balance of from if amount is 0.
type bankIn struct {
	from, to int
	amount   uint64
}

// bankOut is the answer: whether the transfer was made, or the balance. The model ignores seq and
// place, which are for people.
type bankOut struct {
	made    bool
	balance uint64
	seq     uint64 // of the record, or of the last record in the balance
	place   int    // that answered
}

// bankStep is the sequential model of three accounts.
func bankStep(state, input, output any) (bool, any) {
	s, in, out := state.(balances), input.(bankIn), output.(bankOut)
	if in.amount == 0 {
		return out.balance == s[in.from], s
	}
	suffices := s[in.from] >= in.amount
	if out.made && suffices {
		s[in.from] -= in.amount
		s[in.to] += in.amount
	}
	return out.made == suffices, s
}

// bank is the load of transfers, over all rounds.
type bank struct {
	loud
	svc    service
	prefix string // of all keys

	mu       sync.Mutex
	receipts map[string][]byte // of acknowledged transfers, by key; guarded by mu
	sent     map[string]bankIn // all transfers, by key; guarded by mu
	open     []openTransfer    // of this round; guarded by mu
	latest   []string          // keys that this round acknowledged; guarded by mu
	given    map[string]bool   // keys of transfers that certainly were not made; guarded by mu
}

// openTransfer is a transfer whose outcome is not known yet.
type openTransfer struct {
	id   int
	key  string
	in   bankIn
	call int64
	late bool // a request may have been executed
}

func newBank(svc service, prefix string) *bank {
	return &bank{
		svc: svc, prefix: prefix, receipts: map[string][]byte{}, sent: map[string]bankIn{}, given: map[string]bool{},
	}
}

func (b *bank) model(start balances) porcupine.Model {
	return porcupine.Model{Init: func() any { return start }, Step: bankStep}
}

// run is one client. It transfers and reads at random until ctx ends.
func (b *bank) run(ctx context.Context, h *history, id int, d *rand.Rand, pause time.Duration) {
	for n := 0; ctx.Err() == nil; n++ {
		in := bankIn{from: d.IntN(accounts), to: d.IntN(accounts - 1), amount: 1 + d.Uint64N(mostMoved)}
		if in.to >= in.from {
			in.to++
		}
		if d.IntN(3) == 0 {
			b.readAt(ctx, h, id, in.from, d.IntN(b.svc.places()))
		} else {
			b.transfer(ctx, h, openTransfer{id: id, key: fmt.Sprintf("%s-%d-%x", b.prefix, id, d.Uint64()), in: in}, d)
		}
		shortPause(ctx, d, pause)
	}
}

// readAt reads a balance at a node. A read without an answer had no effect.
func (b *bank) readAt(ctx context.Context, h *history, id, account, place int) {
	call := h.now()
	balance, seq, err := b.svc.balance(ctx, place, account)
	if verdictOf(err, "") == fault {
		b.fault("read of account %d: %w", account, err)
	}
	if err == nil {
		h.add(id, bankIn{from: account}, call, bankOut{balance: balance, seq: seq, place: place}, h.now())
	}
}

// transfer repeats a transfer under its key, at random nodes, until the answer is final or ctx ends.
func (b *bank) transfer(ctx context.Context, h *history, o openTransfer, d *rand.Rand) {
	b.mu.Lock()
	b.sent[o.key] = o.in
	b.mu.Unlock()
	o.call = h.now()
	if !b.settle(ctx, h, &o, d) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.open = append(b.open, o)
	}
}

// settle asks until the answer is final or ctx ends. It records the answer, and reports whether the
// transfer is settled: it is not if it was refused after an unclear answer, because then an earlier
// request may still be executed. Half of the transfers that certainly were not made are given up.
func (b *bank) settle(ctx context.Context, h *history, o *openTransfer, d *rand.Rand) bool {
	for {
		call := h.now()
		place := d.IntN(b.svc.places())
		got, v, err := b.svc.transfer(ctx, place, o.key, o.in)
		switch v {
		case done:
			if got.replayed {
				call = o.call // an earlier request made it
			}
			h.add(o.id, o.in, call, bankOut{made: true, seq: got.seq, place: place}, h.now())
			b.keep(o.key, got.receipt)
			return true
		case refused:
			h.add(o.id, o.in, call, bankOut{place: place}, h.now())
			return !o.late
		case unclear:
			o.late = true
		case nothing:
			if !o.late && d.IntN(2) == 0 {
				b.giveUp(o.key)
				return true
			}
		case fault:
			b.fault("transfer %s: %w", o.key, err)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		shortPause(ctx, d, 50*time.Millisecond)
	}
}

// giveUp notes that a transfer is not repeated, because it certainly was not made. The history does
// not have it.
func (b *bank) giveUp(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.given[key] = true
}

// keep notes the receipt of a transfer. Every answer under a key has the same receipt.
func (b *bank) keep(key string, receipt []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if was := b.receipts[key]; was != nil && !bytes.Equal(was, receipt) {
		b.fault("key %s has two receipts:\n%s\n%s", key, was, receipt)
	}
	if b.receipts[key] == nil {
		b.latest = append(b.latest, key)
	}
	b.receipts[key] = receipt
}

// settleOpen repeats every open transfer until its outcome is known. It is called when all nodes
// are well and the clients have stopped, so that no earlier request is executed afterwards.
func (b *bank) settleOpen(ctx context.Context, h *history, d *rand.Rand) (count int) {
	b.mu.Lock()
	open := b.open
	b.open = nil
	b.mu.Unlock()
	for _, o := range open {
		if b.settle(ctx, h, &o, d); ctx.Err() != nil {
			b.fault("transfer %s has no outcome: %w", o.key, ctx.Err())
		}
	}
	return len(open)
}

// repeatSome repeats acknowledged transfers of this round, at most the given number, and expects
// the same receipts.
func (b *bank) repeatSome(ctx context.Context, d *rand.Rand, most int) {
	b.mu.Lock()
	keys := b.latest
	b.latest = nil
	b.mu.Unlock()
	d.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, key := range keys[:min(most, len(keys))] {
		b.mu.Lock()
		in := b.sent[key]
		b.mu.Unlock()
		for {
			got, v, err := b.svc.transfer(ctx, d.IntN(b.svc.places()), key, in)
			if v == done {
				b.keep(key, got.receipt)
				if !got.replayed {
					b.fault("key %s was acknowledged, and its repetition is not said to be one", key)
				}
				break
			}
			if v == refused || v == fault || ctx.Err() != nil {
				b.fault("key %s was acknowledged, and its repetition is not: %v", key, err)
				break
			}
			shortPause(ctx, d, 50*time.Millisecond)
		}
	}
}

// now reads all balances of a bank that stands still.
func (b *bank) now(ctx context.Context, h *history, d *rand.Rand) (out balances, err error) {
	for i := range out {
		for {
			call := h.now()
			if out[i], _, err = b.svc.balance(ctx, d.IntN(b.svc.places()), i); err == nil {
				h.add(0, bankIn{from: i}, call, bankOut{balance: out[i]}, h.now())
				break
			}
			if ctx.Err() != nil {
				return out, err
			}
			shortPause(ctx, d, 50*time.Millisecond)
		}
	}
	return out, nil
}

// checkJournal expects every acknowledged transfer once in the journal, with the transaction of its
// receipt, and no transfer that was given up.
func (b *bank) checkJournal(journal map[string][]string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var faults loud
	for key, tx := range journal {
		if strings.HasPrefix(key, b.prefix) && (b.sent[key] == bankIn{} || b.given[key] || len(tx) != 1) {
			faults.fault("key %s: sent %+v, given up %t, transactions %v", key, b.sent[key], b.given[key], tx)
		}
	}
	for key, receipt := range b.receipts {
		if len(journal[key]) == 0 || !bytes.Contains(receipt, []byte(journal[key][0])) {
			faults.fault("key %s: the journal has transactions %v, the receipt is %s", key, journal[key], receipt)
		}
	}
	return faults.err()
}
