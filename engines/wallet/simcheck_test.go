package wallet_test

import (
	"bytes"
	"cmp"
	"context"
	"regexp"
	"slices"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// check compares the answers of the clients with the journal. Every receipt is in the journal with
// the same bytes, a replay changes nothing, and the total of all balances is unchanged.
func (s *sim) check(l *life) {
	total := uint64(0)
	for c := range simClients {
		total += s.posted(c)
	}
	if total != simClients*500 {
		s.t.Errorf("seed %d: %d in all, want %d", s.seed, total, simClients*500)
	}
	for key, told := range s.known {
		if !bytes.Contains(told.body, didSomething) {
			continue
		}
		s.repeat(key, told)
		if told.body[2] != 'r' { // results of a batch
			s.find(l, key, told.body)
		}
	}
	s.balance()
	s.stamps()
	for c := range simClients {
		s.times(c)
	}
}

// posted returns the posted balance of a client in the ledger.
func (s *sim) posted(c int) uint64 {
	v, err := s.alive("").has.Balance(context.Background(), name(c), "ron", 0)
	if err != nil {
		s.t.Fatal(err)
	}
	_, lo := v.Posted.Parts()
	return lo
}

// find reads a receipt by its id and compares it with body.
func (s *sim) find(l *life, key string, body []byte) {
	id := parse(s.t, body).id(s.t)
	again, err := l.r.e.Tx(l.ctx, alice, id)
	for n := 0; err != nil && rowOf(err).Retry && n < 100; n++ {
		time.Sleep(100 * time.Millisecond)
		again, err = l.r.e.Tx(l.ctx, alice, id)
	}
	if err != nil || string(again) != string(body) {
		s.t.Errorf("seed %d: %s: the journal has %s, %v; the client has %s", s.seed, key, again, err, body)
	}
}

// Patterns that match parts of a receipt.
var (
	stampIn = regexp.MustCompile(`"ts":"([^"]*)"`)
	nonceIn = regexp.MustCompile(`"nonce":[0-9]+`)
)

// repeat sends an answered request again. Before its key expires the answer is a replay. After that
// the request is new: ops that were accepted fail because their nonce or hold is used up, but
// refused ops of a batch may succeed.
func (s *sim) repeat(key string, was told) {
	again, err := s.ask(key, was.ask)
	for n := 0; err != nil && rowOf(err).Retry && n < 500; n++ {
		time.Sleep(100 * time.Millisecond)
		again, err = s.ask(key, was.ask)
	}
	at, bad := time.Parse(time.RFC3339, string(stampIn.FindSubmatch(was.body)[1]))
	if bad != nil {
		s.t.Fatal(bad)
	}
	if s.lapsed(at) {
		used := nonceIn.FindAllString(string(was.body), -1)
		done := nonceIn.FindAllString(string(bytesOf(again)), -1)
		if err == nil &&
			(len(used) == 0 || slices.ContainsFunc(done, func(n string) bool { return slices.Contains(used, n) })) {
			s.t.Errorf("seed %d: %s is done again after its time: %s", s.seed, key, bytesOf(again))
		}
		return
	}
	if err != nil || !again.Replayed || string(bytesOf(again)) != string(was.body) {
		s.t.Errorf("seed %d: %s was answered\n%s, and again, replayed %t, %v:\n%s", s.seed, key, was.body,
			again.Replayed, err, bytesOf(again))
	}
}

// balance adds up the journal, record by record, and compares the sums with the ledger's balances.
func (s *sim) balance() {
	have, keys := map[string]int64{}, map[string][]record.Receipt{}
	for c := range simClients {
		for _, e := range s.history(name(c)) {
			_, lo := e.Receipt.Amount.Parts()
			switch {
			case e.Debit && e.Receipt.Idem != "":
				keys[e.Receipt.Idem] = append(keys[e.Receipt.Idem], e.Receipt)
				fallthrough
			case e.Debit:
				lo = -lo
			}
			if e.Receipt.Op != record.OpHold && e.Receipt.Op != record.OpExpire {
				have[name(c)] += int64(lo)
			}
		}
	}
	for c := range simClients {
		if lo := s.posted(c); have[name(c)] != int64(lo) {
			s.t.Errorf("seed %d: the journal of %s adds up to %d, its balance is %d", s.seed, name(c), have[name(c)],
				lo)
		}
	}
	for key, done := range keys {
		s.onlyOnce(key, done)
	}
}

// onlyOnce checks that all ops under a key were done at the same time, like the ops of a batch, or
// after the key expired, and that no op was done twice.
func (s *sim) onlyOnce(key string, done []record.Receipt) {
	type one struct {
		nonce uint64
		hold  record.TxID
	}
	first, met := slices.MinFunc(
		done,
		func(a, b record.Receipt) int { return cmp.Compare(a.Seq, b.Seq) },
	), map[one]bool{}
	for _, r := range done {
		if what := (one{r.Nonce, r.Hold}); met[what] ||
			r.At != first.At && r.At-first.At < int64(wallet.DefaultConfig().IdempotencyTTL) {
			s.t.Errorf("seed %d: %s was done more than once: %+v", s.seed, key, done)
		} else {
			met[what] = true
		}
	}
}

// stamps checks that the ledger time grows with every batch, even if the wall clock jumps.
func (s *sim) stamps() {
	roots, err := s.alive("").has.Roots(context.Background(), 0, ledger.MaxRoots)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 1; i < len(roots); i++ {
		if roots[i].At <= roots[i-1].At {
			s.t.Errorf("seed %d: batch %d is of %d, the one before of %d", s.seed, roots[i].No, roots[i].At,
				roots[i-1].At)
		}
	}
}

// times checks in ledger time that a client never exceeds its daily ceiling, and that no hold is
// captured after it has expired.
func (s *sim) times(c int) {
	paid, holds := map[int64]uint64{}, map[record.TxID]record.Receipt{}
	day := func(at int64) int64 { return at / int64(24*time.Hour) }
	for _, e := range slices.SortedFunc(slices.Values(s.history(name(c))), func(a, b ledger.Entry) int { return cmp.Compare(a.Receipt.Seq, b.Receipt.Seq) }) {
		r := e.Receipt
		_, amount := r.Amount.Parts()
		of := holds[r.Hold]
		_, held := of.Amount.Parts()
		switch {
		case !e.Debit:
		case r.Op == record.OpHold:
			holds[r.TxID] = r
			fallthrough
		case r.Op == record.OpTransfer:
			if paid[day(r.At)] += amount; paid[day(r.At)] > simDaily {
				s.t.Errorf("seed %d: %s pays %d in a day", s.seed, name(c), paid[day(r.At)])
			}
		case r.Op == record.OpCapture:
			if r.At >= of.At+int64(time.Hour) {
				s.t.Errorf("seed %d: %s is taken from a hold that is over", s.seed, r.TxID)
			}
			if day(r.At) == day(of.At) {
				paid[day(r.At)] -= held - amount
			}
		case r.Op == record.OpExpire && day(r.At) == day(of.At):
			paid[day(r.At)] -= held
		}
	}
}

// history returns all entries of an account from the running process.
func (s *sim) history(account string) (all []ledger.Entry) {
	q := ledger.HistoryQuery{Account: account, Asset: "ron", Limit: ledger.MaxHistory}
	for {
		l := s.alive("")
		page, err := l.has.History(l.ctx, q)
		switch {
		case l.ctx.Err() != nil:
			continue
		case err != nil:
			s.t.Error(err)
			return all
		}
		all = append(all, page.Entries...)
		if q.Cursor = page.Next; q.Cursor == "" {
			return all
		}
	}
}
