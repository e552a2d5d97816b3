package ledgertest

import (
	"slices"
	"strings"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// under returns the op with a principal and a reference.
func under(o ledger.Op, principal, reference string) ledger.Op {
	o.Principal, o.Reference = principal, reference
	return o
}

// references: a reference is done once per principal, for ever, and stands for the same words.
func references(s *suite) {
	s.accept(under(s.issue("alice", 100), "op", "r1"))
	pay := under(s.transfer("alice", "bob", 10), "p", "r1") // of another principal, so another reference
	pay.Memo = "wages"
	done := s.accept(pay)
	s.clock.Advance(10_000 * time.Hour)
	if s.Reopen != nil {
		s.Rig = s.Reopen()
	}
	s.replay(pay, done)
	next := pay
	next.Nonce = 0 // neither the nonce counts nor the key
	s.replay(keyed(next, "p", "k1"), done)
	unused := ledger.DedupeKey{Scope: "p", Key: "k1"}
	if _, found, err := s.Client.Find(s.Context(), unused, next.Fingerprint, 0); found || err != nil {
		s.Fatalf("a key that met a reference is bound: %t, %v", found, err)
	}
	for name, edit := range map[string]func(*ledger.Op){
		"op":          func(o *ledger.Op) { o.Code, o.ExpiresIn = record.OpHold, time.Hour },
		"from":        func(o *ledger.Op) { o.From = "carol" },
		"to":          func(o *ledger.Op) { o.To = "carol" },
		"asset":       func(o *ledger.Op) { o.Asset = "gold" },
		"amount":      func(o *ledger.Op) { o.Amount = ron(11) },
		"memo":        func(o *ledger.Op) { o.Memo = "" },
		"valid_until": func(o *ledger.Op) { o.ValidUntil = 1 },
	} {
		other := pay
		edit(&other)
		if r := s.refuse(other, record.ReferenceConflict); r.Expected != 0 {
			s.Fatalf("another %s: %+v", name, r)
		}
	}
	s.has("bob", 10, 0)
	s.referencesOfHolds()
	s.referencesAndKeys()

	poor := under(s.transfer("alice", "bob", 1000), "p", "r4") // a refusal binds nothing
	s.refuse(poor, record.InsufficientFunds)
	s.wants(notReferred(s, "p", "r4"), ledger.ErrNotFound)
	poor.Amount = ron(1)
	s.accept(poor)

	out, err := s.Client.Reference(s.Context(), "p", "r1")
	s.must(err)
	if text(out.Receipt) != text(done) || out.Memo != "wages" || out.Parties.To != "bob" || out.Replayed {
		s.Fatalf("the outcome of a reference: %+v", out)
	}
	for _, none := range [][2]string{{"p", "r9"}, {"q", "r1"}, {"p", ""}, {"p", strings.Repeat("x", 65)}} {
		s.wants(notReferred(s, none[0], none[1]), ledger.ErrNotFound)
	}
	s.conserved()
}

func notReferred(s *suite, principal, reference string) error {
	_, err := s.Client.Reference(s.Context(), principal, reference)
	return err
}

// referencesOfHolds: the time of a hold counts, and the hold that an op ends.
func (s *suite) referencesOfHolds() {
	s.Helper()
	hold := under(s.hold("alice", "bob", 5, time.Hour), "p", "h1")
	first := s.accept(hold)
	s.replay(hold, first)
	longer := hold
	longer.ExpiresIn = 2 * time.Hour
	s.refuse(longer, record.ReferenceConflict)
	second := s.accept(s.hold("alice", "bob", 5, time.Hour))
	taken := under(capture(first.TxID, 0), "p", "c1")
	done := s.accept(taken)
	s.replay(taken, done)
	s.refuse(under(capture(second.TxID, 0), "p", "c1"), record.ReferenceConflict)
	freed := under(release(second.TxID), "p", "f1")
	s.replay(freed, s.accept(freed))
}

// referencesAndKeys: the key decides before the reference.
func (s *suite) referencesAndKeys() {
	s.Helper()
	one := keyed(under(s.transfer("alice", "bob", 2), "p", "a1"), "p", "ka")
	first := s.accept(one)
	two := keyed(under(s.transfer("alice", "bob", 3), "p", "a2"), "p", "kb")
	second := s.accept(two)
	cross := two // the key of the first, the reference of the second
	cross.Dedupe, cross.Fingerprint = one.Dedupe, one.Fingerprint
	s.replay(cross, first)
	s.clock.Advance(2 * time.Hour) // the key is over
	s.replay(cross, second)
	fresh := keyed(under(s.transfer("alice", "bob", 4), "p", "a1"), "p", "kc")
	s.refuse(fresh, record.ReferenceConflict)
	s.nonces["alice"]--
	s.accept(keyed(s.transfer("alice", "bob", 1), "p", "kc")) // which has bound no key
}

// referencesOfBatches: each op of a batch has a reference of its own, under the batch's principal.
func referencesOfBatches(s *suite) {
	s.accept(s.issue("alice", 1000))
	single := s.accept(under(s.transfer("alice", "bob", 1), "p", "single"))
	row := func(n uint64, to, reference string) ledger.Op {
		return ledger.Op{
			Code: record.OpTransfer, From: "alice", To: to, Asset: "ron", Amount: ron(n), Reference: reference,
		}
	}
	for _, atomic := range []bool{false, true} {
		name := map[bool]string{true: "a", false: "i"}[atomic]
		body := ledger.Op{Code: record.OpBatch, Atomic: atomic, Principal: "p", Ops: []ledger.Op{
			row(2, "bob", name+"1"), row(1, "bob", "single"), row(3, "new:"+name, name+"2"), row(2, "bob", name+"1"),
			row(4, "bob", ""),
		}}
		body = keyed(body, "p", "b"+name)
		first := s.batch(body, record.Accepted, record.Replayed, record.Accepted, record.Replayed, record.Accepted)
		if text(first.Results[1].Receipt) != text(single) ||
			text(first.Results[3].Receipt) != text(first.Results[0].Receipt) {
			s.Fatalf("replayed rows: %+v", first.Results)
		}
		found, _, err := s.Client.Find(s.Context(), body.Dedupe, body.Fingerprint, 0)
		s.must(err)
		for doc, out := range map[string]ledger.Outcome{"the batch again": s.one(body), "what is found": found} {
			if !out.Replayed || !slices.EqualFunc(first.Results, out.Results, sameResult) {
				s.Fatalf("%s:\n%+v\nwant\n%+v", doc, out, first)
			}
		}
		before := s.head()
		all := body
		all.Dedupe.Key, all.Ops = "", slices.Clone(body.Ops[:4])
		s.batch(all, record.Replayed, record.Replayed, record.Replayed, record.Replayed)
		if s.head() != before {
			s.Fatal("a batch of which everything was done before is recorded")
		}
		out, err := s.Client.Reference(s.Context(), "p", name+"2")
		s.must(err)
		if text(out.Receipt) != text(first.Results[2].Receipt) {
			s.Fatalf("the reference of a row: %+v", out)
		}
		s.replay(under(row(3, "new:"+name, name+"2"), "p", name+"2"), out.Receipt) // alone, too
		all.Ops = []ledger.Op{row(1, "bob", name+"3"), row(9, "bob", name+"1")}
		if !atomic {
			s.batch(all, record.Accepted, record.ReferenceConflict)
			continue
		}
		if out := s.batch(all, record.Aborted, record.ReferenceConflict); out.Reject == nil || out.Reject.Index != 1 {
			s.Fatalf("an atomic batch with a reference of something else: %+v", out)
		}
		s.wants(notReferred(s, "p", name+"3"), ledger.ErrNotFound)
	}
	s.conserved()
}
