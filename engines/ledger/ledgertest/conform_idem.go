package ledgertest

import (
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// idempotency checks keys while they count.
func idempotency(s *suite) {
	first := keyed(s.issue("alice", 100), "org:a", "k1")
	done := s.accept(first)
	s.clock.Advance(59 * time.Minute)
	s.replay(first, done)
	s.has("alice", 100, 0)

	other := first
	other.Amount = ron(99)
	s.refuse(keyed(other, "org:a", "k1"), record.IdemConflict)
	moved := first
	moved.Code, moved.From, moved.To = record.OpTransfer, "alice", "bob"
	s.refuse(keyed(moved, "org:a", "k1"), record.IdemConflict)

	foreign := keyed(s.issue("alice", 100), "org:b", "k1") // another principal's key is another key
	if got := s.accept(foreign); got.TxID == done.TxID {
		s.Fatal("two principals share a record")
	}
	late := first // a lowered limit, a passed deadline or a lock does not refuse an op that was done
	late.ValidUntil, late.Limits = 1, &ledger.Limits{PerOp: ron(1)}
	s.accept(ledger.Op{Code: record.OpFlags, From: "alice", Set: record.Frozen})
	s.replay(late, done)

	out, found, err := s.Client.Find(s.Context(), first.Dedupe, first.Fingerprint, 0)
	s.must(err)
	if !found || out.Reject != nil || !out.Replayed || text(out.Receipt) != text(done) {
		s.Fatalf("find: %+v %t", out, found)
	}
	if out, found, err = s.Client.Find(s.Context(), first.Dedupe, foreign.Fingerprint,
		0); !found || out.Reject == nil ||
		out.Reject.Code != record.IdemConflict {
		s.Fatalf("find with another fingerprint: %+v %t %v", out, found, err)
	}
	if _, found, err = s.Client.Find(s.Context(), ledger.DedupeKey{Scope: "org:a", Key: "k2"}, first.Fingerprint,
		0); found ||
		err != nil {
		s.Fatalf("find of a fresh key: %t %v", found, err)
	}
	if _, found, err = s.Client.Find(s.Context(), first.Dedupe, first.Fingerprint, done.At); found || err != nil {
		s.Fatalf("find of a key that is too old: %t %v", found, err)
	}
	if _, found, err = s.Client.Find(s.Context(), first.Dedupe, first.Fingerprint, done.At-1); !found || err != nil {
		s.Fatalf("find of a key that is just young enough: %t %v", found, err)
	}
}

// idempotencyEnds checks keys of refused ops, and keys after their TTL.
func idempotencyEnds(s *suite) {
	s.accept(s.issue("alice", 100))
	dear := keyed(s.transfer("alice", "bob", 150), "org:a", "k1")
	s.refuse(dear, record.InsufficientFunds)
	s.accept(s.issue("alice", 100))
	done := s.accept(dear) // a refusal is not recorded: the retry is judged afresh
	if done.Idem != "k1" {
		s.Fatalf("receipt shows the key %q", done.Idem)
	}
	s.clock.Advance(time.Hour - 2*time.Millisecond)
	s.replay(dear, done)
	s.clock.Advance(time.Millisecond)
	r := s.refuse(dear, record.NonceReused) // the key is new again; the nonce is not
	if r.Expected != 2 || r.Committed != done.TxID {
		s.Fatalf("%+v, want nonce 2 and %s", r, done.TxID)
	}
	fresh := dear
	fresh.Nonce, fresh.Amount = s.nonce("alice"), ron(1)
	again := s.accept(keyed(fresh, "org:a", "k1"))
	s.replay(keyed(fresh, "org:a", "k1"), again)

	twice := keyed(s.transfer("alice", "bob", 1), "org:a", "k3")
	outs, err := s.Client.Commit(s.Context(), []ledger.Op{twice, twice})
	s.must(err)
	if outs[0].Reject != nil || outs[0].Replayed || !outs[1].Replayed ||
		text(outs[0].Receipt) != text(outs[1].Receipt) {
		s.Fatalf("one key twice in a call: %+v", outs)
	}
}

// idempotencyOfBatches: one key covers the whole body.
func idempotencyOfBatches(s *suite) {
	s.accept(s.issue("alice", 100))
	body := ledger.Op{Code: record.OpBatch, Ops: []ledger.Op{
		s.transfer("alice", "bob", 10), s.transfer("carol", "bob", 10), s.transfer("alice", "dave", 20),
	}}
	body = keyed(body, "org:a", "b1")
	first := s.batch(body, record.Accepted, record.InsufficientFunds, record.Accepted)
	again := s.one(body)
	if !again.Replayed || !slices.EqualFunc(first.Results, again.Results, sameResult) {
		s.Fatalf("replay of a batch:\n%+v\nwant\n%+v", again, first)
	}
	found, ok, err := s.Client.Find(s.Context(), body.Dedupe, body.Fingerprint, 0)
	s.must(err)
	if !ok || !found.Batch || !slices.EqualFunc(first.Results, found.Results, sameResult) {
		s.Fatalf("find of a batch: %+v %t", found, ok)
	}
	other := body
	other.Ops = body.Ops[:2]
	s.refuse(keyed(other, "org:a", "b1"), record.IdemConflict)

	poor := keyed(ledger.Op{Code: record.OpBatch, Ops: []ledger.Op{{
		Code: record.OpTransfer, From: "carol", To: "bob", Asset: "ron", Amount: ron(10), Nonce: 1,
	}}}, "org:a", "b2")
	before := s.head()
	s.batch(poor, record.InsufficientFunds)
	if s.head() != before {
		s.Fatal("a batch with no accepted op was recorded")
	}
	s.accept(s.issue("carol", 10))
	if out := s.one(poor); out.Replayed || out.Results[0].Reject != nil {
		s.Fatalf("a batch that was refused is not judged afresh: %+v", out)
	}
	s.staysWhole("w1", true)
	s.staysWhole("w2", false)
}

// staysWhole: the records of an atomic batch say that it is atomic, those of another batch do not.
func (s *suite) staysWhole(key string, atomic bool) {
	from := s.head().Seq + 1
	o := keyed(
		ledger.Op{
			Code:   record.OpBatch,
			Atomic: atomic,
			Ops:    []ledger.Op{s.transfer("alice", "bob", 1), s.transfer("alice", "dave", 1)},
		},
		"org:a",
		key,
	)
	first := s.batch(o, record.Accepted, record.Accepted)
	found, _, err := s.Client.Find(s.Context(), o.Dedupe, o.Fingerprint, 0)
	s.must(err)
	for name, out := range map[string]ledger.Outcome{
		"the answer": first, "its replay": s.one(o), "what is found": found,
	} {
		if out.Atomic != atomic || !out.Batch {
			s.Fatalf("%s of a batch: atomic %v, want %v", name, out.Atomic, atomic)
		}
	}
	for _, line := range s.lines(from, s.head().Seq) {
		if line.Kind == record.LineRecord && (line.Record.Flags&record.FlagAtomic != 0) != atomic {
			s.Fatalf("record %d of a batch has flags %x, atomic %v", line.Record.Seq, line.Record.Flags, atomic)
		}
	}
}

// sameResult compares what replays must agree on.
func sameResult(a, b ledger.Outcome) bool {
	if (a.Reject == nil) != (b.Reject == nil) {
		return false
	}
	if a.Reject != nil {
		return a.Reject.Code == b.Reject.Code
	}
	return text(a.Receipt) == text(b.Receipt)
}

// batch commits a batch and compares the results of its ops.
func (s *suite) batch(o ledger.Op, want ...record.Result) ledger.Outcome {
	s.Helper()
	out := s.one(o)
	if !out.Batch || len(out.Results) != len(want) {
		s.Fatalf("%+v, want %d results", out, len(want))
	}
	for i, r := range out.Results {
		if got := resultOf(r); got != want[i] {
			s.Fatalf("op %d of the batch: %s, want %s", i, got, want[i])
		}
	}
	return out
}

func resultOf(o ledger.Outcome) record.Result {
	switch {
	case o.Reject != nil:
		return o.Reject.Code
	case o.Replayed:
		return record.Replayed
	}
	return record.Accepted
}

// batches: independent ops stand alone, atomic ones together.
func batches(s *suite) {
	s.accept(s.issue("alice", 100))
	s.nonces["alice"]++
	ops := []ledger.Op{
		{Code: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: ron(60), Nonce: 1},
		// out of what came just now
		{Code: record.OpTransfer, From: "bob", To: "carol", Asset: "ron", Amount: ron(50), Nonce: 1},
		{Code: record.OpTransfer, From: "alice", To: "new", Asset: "ron", Amount: ron(60), Nonce: 2},
		{Code: record.OpTransfer, From: "carol", To: "bob", Asset: "ron", Amount: ron(1), Nonce: 1},
	}
	before := s.head()
	out := s.batch(ledger.Op{Code: record.OpBatch, Atomic: true, Ops: ops}, record.Aborted, record.Aborted,
		record.InsufficientFunds, record.Aborted)
	if out.Reject == nil || out.Reject.Code != record.InsufficientFunds || out.Reject.Index != 2 || !out.Atomic {
		s.Fatalf("an atomic batch whose op 2 fails: %+v", out)
	}
	if s.head() != before {
		s.Fatal("an atomic batch that failed left a trace")
	}
	if v, err := s.Client.Account(s.Context(), "bob"); v.Known || err != nil {
		s.Fatalf("an atomic batch that failed opened an account: %+v, %v", v, err)
	}
	s.has("alice", 100, 0)
	out = s.batch(ledger.Op{Code: record.OpBatch, Ops: ops}, record.Accepted, record.Accepted, record.InsufficientFunds,
		record.Accepted)
	if out.Reject != nil || out.Atomic {
		s.Fatalf("an independent batch: %+v", out)
	}
	s.has("alice", 40, 0)
	s.has("bob", 11, 0)
	s.has("carol", 49, 0)
	s.has("new", 0, 0)
	heads := s.head().Batches
	s.batch(
		ledger.Op{
			Code:   record.OpBatch,
			Atomic: true,
			Ops:    []ledger.Op{s.transfer("alice", "bob", 1), s.burn("alice", 39)},
		},
		record.Accepted,
		record.Accepted,
	)
	if got := s.head().Batches; got != heads+1 {
		s.Fatalf("a batch made %d batches of the ledger", got-heads)
	}
	s.conserved()
}

// settle: a permanent id is done once for ever, all or nothing, and its guard has one owner.
func settle(s *suite) {
	pay := func(to string, n uint64) ledger.Op {
		return ledger.Op{Code: record.OpTransfer, From: "pool", To: to, Asset: "ron", Amount: ron(n)}
	}
	do := func(o ledger.Once, want record.Result, ops ...ledger.Op) ledger.Outcome {
		s.Helper()
		s.clock.Advance(time.Second)
		out, err := s.Client.Settle(s.Context(), o, ops)
		s.must(err)
		if got := resultOf(out); got != want {
			s.Fatalf("settle %s: %s, want %s", o.ID, got, want)
		}
		return out
	}
	s.accept(s.issue("pool", 100))
	epoch := ledger.Once{
		Domain: "payout",
		ID:     "e1",
		Digest: b3.Sum([]byte("e1")),
		Guard:  ledger.Guard{Key: "t:1", Owner: "run"},
	}
	before := s.head()
	out := do(epoch, record.InsufficientFunds, pay("a", 60), pay("b", 60), pay("c", 1))
	if out.Reject.Index != 1 || s.head() != before {
		s.Fatalf("a settlement that fails: %+v", out.Reject)
	}
	first := do(epoch, record.Accepted, pay("a", 60), pay("b", 40))
	if !first.Batch || len(first.Results) != 2 || first.Results[0].Receipt.Nonce != 0 {
		s.Fatalf("a settlement: %+v", first)
	}
	s.clock.Advance(1000 * time.Hour)
	again := do(epoch, record.Replayed, pay("a", 60), pay("b", 40))
	for i := range first.Results {
		if !sameResult(first.Results[i], again.Results[i]) {
			s.Fatalf("posting %d again: %+v, want %+v", i, again.Results[i], first.Results[i])
		}
	}
	other := epoch
	other.Digest = b3.Sum([]byte("e2"))
	do(other, record.OnceConflict, pay("a", 1))
	thief := ledger.Once{
		Domain: "payout",
		ID:     "e2",
		Digest: other.Digest,
		Guard:  ledger.Guard{Key: "t:1", Owner: "another run"},
	}
	do(thief, record.OnceConflict, pay("a", 1))
	s.accept(s.issue("pool", 5))
	do(ledger.Once{Domain: "payout", ID: "e3", Digest: other.Digest, Guard: epoch.Guard}, record.Accepted, pay("a", 1))
	do(ledger.Once{Domain: "other", ID: "e1", Digest: other.Digest}, record.Accepted, pay("a", 4))
	s.has("a", 65, 0)
	s.has("pool", 0, 0)
	s.conserved()
}
