package ledgertest

import (
	"maps"
	"math/big"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// books is all that a Model knows. Its values are never changed in place, so that a copy of the
// maps is a copy of the books.
type books struct {
	accounts map[string]account
	assets   map[string]asset
	states   map[acctAsset]state
	holds    map[uint64]hold
	keys     map[ledger.DedupeKey]known
	once     map[onceID]known
	guards   map[string]string // guard → owner
	refs     map[referenceOf]referred
	moved    map[tokenDay]*big.Int
	entries  []entry        // by seq-1
	batches  []record.Batch // by number-1
	open     int            // holds not resolved
}

// acctAsset is an account in an asset.
type acctAsset struct{ Account, Asset string }

// account is the header of one account.
type account struct {
	ref, opened   uint64
	nonce, nonced uint64 // the last nonce, and the seq of the record that used it
	flags         record.Flags
}

// asset is one that was declared, by the record seq.
type asset struct {
	ref      uint32
	seq      uint64
	decimals int
	scaled   uint64 // seq of the record that set them
}

// tokenDay is one token in one asset on one day.
type tokenDay struct {
	token, asset string
	day          uint32
}

// state is one account in one asset.
type state struct {
	credits, debits *big.Int // posted
	held, coming    *big.Int // of holds that are open: to be paid, to be received
	day             uint32
	dayDebits       *big.Int
	last            uint64
	history         []uint64 // seqs, ascending
}

// hold is one hold. What is left of it is all of it, until it is resolved.
type hold struct {
	from, to, asset string
	amount          *big.Int
	at, expires     int64
	closed          record.Result // Accepted while it is open, else the refusal of a later attempt
}

// known is the record done under a dedupe key or a permanent id.
type known struct {
	seq    uint64
	at     int64
	digest b3.Digest
}

type onceID struct{ domain, id string }

// referenceOf is a reference of a principal.
type referenceOf struct{ principal, text string }

// referred is the record done under a reference, and the words that a repetition must repeat.
type referred struct {
	seq   uint64
	words words
}

// words are the members of an op that count under a reference.
type words struct {
	code                  record.Op
	from, to, asset, memo string
	amount                engines.Amount
	hold                  uint64 // the model and its twin draw different random bits
	lasts                 time.Duration
	until                 int64
}

func wordsOf(o *ledger.Op) words {
	return words{o.Code, o.From, o.To, o.Asset, o.Memo, o.Amount, o.Hold.Seq(), o.ExpiresIn, o.ValidUntil}
}

// entry is one record as the journal has it.
type entry struct {
	raw     []byte
	rec     record.Record
	receipt record.Receipt // without batch and root
	results []verdict      // of a batch or a settlement
	atomic  bool           // likewise
}

func newBooks() books {
	return books{
		accounts: map[string]account{},
		assets:   map[string]asset{},
		states:   map[acctAsset]state{},
		holds:    map[uint64]hold{},
		keys:     map[ledger.DedupeKey]known{},
		once:     map[onceID]known{},
		guards:   map[string]string{},
		refs:     map[referenceOf]referred{},
		moved:    map[tokenDay]*big.Int{},
	}
}

// copy stays as it is while b goes on.
func (b books) copy() books {
	b.accounts, b.assets, b.states, b.holds = maps.Clone(b.accounts), maps.Clone(b.assets), maps.Clone(
		b.states,
	), maps.Clone(b.holds)
	b.keys, b.once, b.guards, b.moved = maps.Clone(b.keys), maps.Clone(b.once), maps.Clone(b.guards), maps.Clone(
		b.moved,
	)
	b.refs = maps.Clone(b.refs)
	b.entries = b.entries[:len(b.entries):len(b.entries)]
	b.batches = b.batches[:len(b.batches):len(b.batches)]
	return b
}

// of is the state of an account in an asset; without one all is zero.
func (b *books) of(k acctAsset) state {
	if s, ok := b.states[k]; ok {
		return s
	}
	return state{
		credits:   new(big.Int),
		debits:    new(big.Int),
		held:      new(big.Int),
		coming:    new(big.Int),
		dayDebits: new(big.Int),
	}
}

func (s state) balance() *big.Int   { return new(big.Int).Sub(s.credits, s.debits) }
func (s state) available() *big.Int { return new(big.Int).Sub(s.balance(), s.held) }

// spentToday is the amount that counts against the day's ceiling so far.
func (s state) spentToday(day uint32) *big.Int {
	if s.day != day {
		return new(big.Int)
	}
	return s.dayDebits
}

// encoded is s as a record has it.
func (s state) encoded() record.State {
	return record.State{
		CreditsPosted: amount(s.credits),
		DebitsPosted:  amount(s.debits),
		DebitsHeld:    amount(s.held),
		CreditsHeld:   amount(s.coming),
		Day:           s.day,
		DayDebits:     amount(s.dayDebits),
		LastSeq:       s.last,
	}
}

var (
	maxAmount = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))
	low64     = new(big.Int).SetUint64(1<<64 - 1)
)

// amount is n, which is in range: the rules saw to it.
func amount(n *big.Int) engines.Amount {
	if n.Sign() < 0 || n.Cmp(maxAmount) > 0 {
		panic("an amount out of range: " + n.String())
	}
	return engines.AmountOf(new(big.Int).Rsh(n, 64).Uint64(), new(big.Int).And(n, low64).Uint64())
}

// integer is a as a number without bounds.
func integer(a engines.Amount) *big.Int {
	hi, lo := a.Parts()
	n := new(big.Int).Lsh(new(big.Int).SetUint64(hi), 64)
	return n.Or(n, new(big.Int).SetUint64(lo))
}
