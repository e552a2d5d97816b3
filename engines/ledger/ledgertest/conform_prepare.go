package ledgertest

import (
	"context"
	"errors"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// prepared: ops are prepared one by one, and submitted together.
func prepared(s *suite) {
	s.accept(s.issue("alice", 100))
	one := keyed(s.transfer("alice", "bob", 10), "p", "k1")
	two := s.transfer("alice", "new", 10)
	two.Nonce = 0
	poor := s.transfer("alice", "bob", 1000)
	a, b, c := s.prepare(&one), s.prepare(&two), s.prepare(&poor)
	for _, p := range []*ledger.Prepared{a, b, c} {
		if p.Known != nil {
			s.Fatalf("known before it is done: %+v", p.Known)
		}
	}
	b.Op.Nonce = 2 // may be set until it is submitted
	before := s.head()
	outs := s.submit(a, b, c)
	if resultOf(outs[0]) != record.Accepted || resultOf(outs[1]) != record.Accepted || outs[1].Receipt.Nonce != 2 ||
		resultOf(outs[2]) != record.InsufficientFunds {
		s.Fatalf("submitted: %+v", outs)
	}
	if s.head().Batches != before.Batches+1 {
		s.Fatal("a submission is not one batch")
	}
	after := s.head()
	known := s.prepare(&one)
	if known.Known == nil || !known.Known.Replayed || text(known.Known.Receipt) != text(outs[0].Receipt) {
		s.Fatalf("done before: %+v", known.Known)
	}
	if again := s.submit(a, known); !again[0].Replayed || !again[1].Replayed ||
		text(again[0].Receipt) != text(outs[0].Receipt) {
		s.Fatalf("submitted again: %+v", again)
	}
	other := one
	other.Fingerprint[0]++
	if p := s.prepare(&other); p.Known == nil || p.Known.Reject == nil || p.Known.Reject.Code != record.IdemConflict {
		s.Fatalf("another op under the same key: %+v", p.Known)
	}
	if s.head() != after {
		s.Fatal("what was known is recorded again")
	}
	s.clock.Advance(2 * time.Hour)
	if p := s.prepare(&one); p.Known != nil {
		s.Fatalf("a key that is too old: %+v", p.Known)
	}
	ref := under(s.transfer("alice", "bob", 1), "p", "r1")
	s.nonces["alice"] = 3
	ref.Nonce = 3
	done := s.accept(ref)
	if p := s.prepare(&ref); p.Known == nil || text(p.Known.Receipt) != text(done) || !p.Known.Replayed {
		s.Fatalf("done under its reference: %+v", p.Known)
	}
	ref.Memo = "other"
	if p := s.prepare(&ref); p.Known == nil || p.Known.Reject == nil ||
		p.Known.Reject.Code != record.ReferenceConflict {
		s.Fatalf("another op under the same reference: %+v", p.Known)
	}
	s.unprepared()
	s.conserved()
}

// unprepared: a malformed op and a context that has ended.
func (s *suite) unprepared() {
	s.Helper()
	bad := s.transfer("alice", "bob", 0)
	var op *ledger.OpError
	if _, err := s.Client.Prepare(s.Context(), &bad); !errors.As(err, &op) || op.Field != "amount" {
		s.Fatalf("a malformed op: %v", err)
	}
	cause := errors.New("gone")
	ctx, cancel := context.WithCancelCause(s.Context())
	cancel(cause)
	good := s.transfer("alice", "bob", 1)
	if _, err := s.Client.Prepare(ctx, &good); !errors.Is(err, cause) {
		s.Fatalf("a context that has ended: %v", err)
	}
}

func (s *suite) prepare(o *ledger.Op) *ledger.Prepared {
	s.Helper()
	p, err := s.Client.Prepare(s.Context(), o)
	s.must(err)
	return p
}

func (s *suite) submit(ops ...*ledger.Prepared) []ledger.Outcome {
	s.Helper()
	s.clock.Advance(time.Millisecond)
	pending, err := s.Client.Submit(s.Context(), ops)
	s.must(err)
	outs, err := pending.Wait(s.Context())
	s.must(err)
	return outs
}
