package lverify

import "ronbox/engines/ledger/record"

// accounts are what records say of accounts beside their balances. Of a ledger that is taken from its first record on there are three numbers
// an account, by its ref; else there is what was seen of it.
type accounts struct {
	whole  bool
	opened uint64
	blocks []*block // blockSize accounts each, so that none is copied as there come more
	seen   map[uint64]seen
}

const blockSize = 4096

type block struct {
	nonces [blockSize]uint64
	seqs   [blockSize]uint64 // of the record that opened it, changed its flags or used a nonce last
	flags  [blockSize]record.Flags
}

// at is where an account that was opened is.
func (a *accounts) at(ref uint64) (b *block, i uint64) {
	return a.blocks[(ref-1)/blockSize], (ref - 1) % blockSize
}

type seen struct {
	nonce uint64
	flags record.Flags
}

func newAccounts(whole bool) accounts { return accounts{whole: whole, seen: map[uint64]seen{}} }

// count is how many were opened.
func (a *accounts) count() uint64 { return a.opened }

// open enters the next account; not ok for another ref than the next.
func (a *accounts) open(ref, seq uint64) bool {
	if !a.whole {
		a.seen[ref] = seen{}
		return true
	}
	if ref != a.count()+1 {
		return false
	}
	if a.opened%blockSize == 0 {
		a.blocks = append(a.blocks, new(block))
	}
	a.opened++
	b, i := a.at(ref)
	b.seqs[i] = seq
	return true
}

// known tells whether an account was opened, as far as can be told.
func (a *accounts) known(ref uint64) bool { return ref != 0 && (!a.whole || ref <= a.count()) }

// set changes the flags of an account that is known.
func (a *accounts) set(ref, seq uint64, set, clear record.Flags) {
	if a.whole {
		b, i := a.at(ref)
		b.flags[i], b.seqs[i] = b.flags[i]&^clear|set, seq
		return
	}
	s := a.seen[ref]
	s.flags = s.flags&^clear | set
	a.seen[ref] = s
}

// of are the flags of an account that is known; those that were not seen count as not set.
func (a *accounts) of(ref uint64) record.Flags {
	if a.whole {
		b, i := a.at(ref)
		return b.flags[i]
	}
	return a.seen[ref].flags
}

// use takes a nonce of an account that is known, and answers the one before it; 0 where none was seen.
func (a *accounts) use(ref, nonce, seq uint64) (before uint64) {
	if a.whole {
		b, i := a.at(ref)
		before = b.nonces[i]
		b.nonces[i], b.seqs[i] = nonce, seq
		return before
	}
	s := a.seen[ref]
	before, s.nonce = s.nonce, nonce
	a.seen[ref] = s
	return before
}
