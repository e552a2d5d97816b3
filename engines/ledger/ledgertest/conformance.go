package ledgertest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Rig is a client under test.
type Rig struct {
	Client ledger.Client
	// Sweep ends the holds that are overdue; nil leaves out what needs it.
	Sweep func() error
	// Reopen ends the client and begins a new one over the same state; nil leaves out what needs
	// it.
	Reopen func() Rig
}

// Conformance tests a client against the rules of ledger.Client. open returns an empty ledger with
// the wall clock clock, and registers its cleanup. The ledger must have no other client.
func Conformance(t *testing.T, open func(t *testing.T, clock *Clock) Rig) {
	for _, part := range []struct {
		name string
		run  func(*suite)
	}{
		{"idempotency", idempotency}, {"idempotency ends", idempotencyEnds},
		{"idempotency of batches", idempotencyOfBatches},
		{"references", references}, {"references of batches", referencesOfBatches},
		{"prepared", prepared}, {"batches", batches}, {"settle", settle}, {"refusals", refusals},
		{"precedence", precedence}, {"precedence of holds", precedenceOfHolds}, {"malformed", malformed},
		{"nonces", nonces}, {"decimals", decimals}, {"limits", limits}, {"days", days}, {"days of tokens", tokenDays},
		{"holds", holds}, {"hold expiry", holdExpiry}, {"hold at its expiry", holdAtExpiry}, {"flags", flags},
		{"balances", balances}, {"lists", lists}, {"payments", payments}, {"history", history},
		{"transactions", transactions}, {"roots", roots}, {"proofs", proofs},
		{"export", exports}, {"events", events}, {"contexts", contexts}, {"restart", restart},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(newSuite(t, open)) })
	}
	t.Run("model", func(t *testing.T) { againstModel(t, open) })
}

// suite is one ledger under test, with the asset ron declared.
type suite struct {
	*testing.T
	Rig
	clock  *Clock
	nonces map[string]uint64 // last taken
}

func newSuite(t *testing.T, open func(*testing.T, *Clock) Rig) *suite {
	clock := NewClock()
	s := &suite{T: t, Rig: open(t, clock), clock: clock, nonces: map[string]uint64{}}
	s.accept(ledger.Op{Code: record.OpAsset, Asset: "ron"})
	return s
}

// ron is n minor units.
func ron(n uint64) engines.Amount { return engines.AmountOf(0, n) }

// one commits a single op.
func (s *suite) one(o ledger.Op) ledger.Outcome {
	s.Helper()
	s.clock.Advance(time.Millisecond)
	outs, err := s.Client.Commit(s.Context(), []ledger.Op{o})
	if err != nil || len(outs) != 1 {
		s.Fatalf("%s: %d outcomes, %v", o.Code, len(outs), err)
	}
	return outs[0]
}

// accept commits an op that must be done, now and not before.
func (s *suite) accept(o ledger.Op) record.Receipt {
	s.Helper()
	out := s.one(o)
	if out.Reject != nil || out.Replayed {
		s.Fatalf("%s: %v, replayed %t, want it done", o.Code, out.Reject, out.Replayed)
	}
	return out.Receipt
}

// replay commits an op that was done before, and compares the bytes.
func (s *suite) replay(o ledger.Op, first record.Receipt) {
	s.Helper()
	out := s.one(o)
	if out.Reject != nil || !out.Replayed || text(out.Receipt) != text(first) {
		s.Fatalf("%s again: %v, replayed %t,\n%s\nwant\n%s", o.Code, out.Reject, out.Replayed, text(out.Receipt),
			text(first))
	}
}

// refuse commits an op that must be refused, and sees that nothing changed but overdue holds.
func (s *suite) refuse(o ledger.Op, code record.Result) *ledger.Reject {
	s.Helper()
	_, err := s.Client.Balance(s.Context(), "alice", "ron", 0) // ends them
	s.must(err)
	before := s.head()
	out := s.one(o)
	if out.Reject == nil || out.Reject.Code != code {
		s.Fatalf("%s: refusal %v, want %s", o.Code, out.Reject, code)
	}
	if after := s.head(); after != before {
		s.Fatalf("%s was refused, and the head went from %+v to %+v", o.Code, before, after)
	}
	return out.Reject
}

func text(r record.Receipt) string { return string(r.AppendJSON(nil)) }

func (s *suite) head() record.Head {
	s.Helper()
	h, err := s.Client.Head(s.Context())
	s.must(err)
	return h
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// wants fails unless err is want.
func (s *suite) wants(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("error %v, want %v", err, want)
	}
}

// nonce takes the next nonce of an account.
func (s *suite) nonce(account string) uint64 {
	s.nonces[account]++
	return s.nonces[account]
}

// The ops, each with the next nonce of the account that it debits.

func (s *suite) issue(to string, n uint64) ledger.Op {
	return ledger.Op{Code: record.OpIssue, To: to, Asset: "ron", Amount: ron(n), Nonce: s.nonce("sys:issue:ron")}
}

func (s *suite) transfer(from, to string, n uint64) ledger.Op {
	return ledger.Op{Code: record.OpTransfer, From: from, To: to, Asset: "ron", Amount: ron(n), Nonce: s.nonce(from)}
}

func (s *suite) burn(from string, n uint64) ledger.Op {
	return ledger.Op{Code: record.OpBurn, From: from, Asset: "ron", Amount: ron(n), Nonce: s.nonce(from)}
}

func (s *suite) hold(from, to string, n uint64, d time.Duration) ledger.Op {
	return ledger.Op{
		Code:      record.OpHold,
		From:      from,
		To:        to,
		Asset:     "ron",
		Amount:    ron(n),
		Nonce:     s.nonce(from),
		ExpiresIn: d,
	}
}

func capture(hold record.TxID, n uint64) ledger.Op {
	return ledger.Op{Code: record.OpCapture, Hold: hold, Amount: ron(n)}
}

func release(hold record.TxID) ledger.Op { return ledger.Op{Code: record.OpRelease, Hold: hold} }

// keyed returns the op with an idempotency key of a scope, and a fingerprint of its members.
func keyed(o ledger.Op, scope, key string) ledger.Op {
	o.Dedupe, o.Idem, o.Principal, o.TTL = ledger.DedupeKey{Scope: scope, Key: key}, key, scope, time.Hour
	o.Fingerprint = b3.Sum(
		fmt.Appendf(nil, "%s %s %s %s %s %d %v", o.Code, o.From, o.To, o.Asset, o.Amount, o.Nonce, o.Ops),
	)
	return o
}

// has fails unless an account has so much, of which so much is held.
func (s *suite) has(account string, posted, held uint64) {
	s.Helper()
	v, err := s.Client.Balance(s.Context(), account, "ron", 0)
	s.must(err)
	if v.Posted != ron(posted) || v.Held != ron(held) || v.Available != ron(posted-held) {
		s.Fatalf("%s has %s, %s held, %s available; want %d, %d held", account, v.Posted, v.Held, v.Available, posted,
			held)
	}
}

// Clock is a wall clock that a test sets. Safe for concurrent use.
type Clock struct{ ns atomic.Int64 }

// NewClock stands at 2026-03-01 12:00 UTC.
func NewClock() *Clock {
	c := new(Clock)
	c.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return c
}

// Now is the time the clock shows.
func (c *Clock) Now() time.Time { return time.Unix(0, c.ns.Load()).UTC() }

// Set turns the clock to t, back too.
func (c *Clock) Set(t time.Time) { c.ns.Store(t.UnixNano()) }

// Advance turns the clock on by d.
func (c *Clock) Advance(d time.Duration) { c.ns.Add(int64(d)) }
