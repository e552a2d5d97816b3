package ledger

import (
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// rows are an account and a balance that memory did not have, read from the file in their caller's goroutine, beside those of other callers:
// the committer need not wait for a disk. Captures, releases and changes of flags have none: they are few, and the committer reads for them. Each is what the ledger had when it was at a seq; 0: memory had it, so it was not read.
type rows struct {
	account   tables.Account
	accountAt uint64
	balance   tables.Balance
	balanceAt uint64
}

// readRows reads those of the parties that memory still lacks. The view begins after memory was asked, so it is no older.
func (s *resolver) readRows() error {
	cold := s.absent[:0]
	for _, a := range s.absent {
		if a.p.ref != 0 && !s.held(a.p, a.asset) { // who is not known has none
			cold = append(cold, a)
		}
	}
	if len(cold) == 0 {
		return nil
	}
	return s.l.store.View(s.ctx, func(r store.Reader) error {
		if s.l.books.wide(len(cold)) {
			keys := make([]tables.StateKey, len(cold))
			for i, a := range cold {
				keys[i].Account = a.p.ref
			}
			tables.WarmStates(r, keys)
		}
		read := make([]rows, len(cold))
		for i, a := range cold {
			a.p.rows = &read[i]
			if a.p.account == nil {
				read[i].account = s.l.books.fileAccount(r, a.p.ref)
				read[i].accountAt = s.seq
			}
			if a.p.state == nil {
				read[i].balance = s.l.books.fileBalance(r, tables.StateKey{Account: a.p.ref, Asset: a.asset})
				read[i].balanceAt = s.seq
			}
		}
		return nil
	})
}

// wideRows is from how many rows on it is worth to ask the disk for all their pages first.
const wideRows = 8

// wide tells whether n rows may lie in so many pages that the disk is to be asked for all of them at once.
func (b *books) wide(n int) bool { return n >= wideRows && b.view.Load().Accounts > cleanRows }

// filled is p with its cells. What p has of them already was carried along with the command, to spare a search.
func (x *run) filled(p party, asset uint32) party {
	if p.ref == 0 {
		return p
	}
	if !p.account.held() {
		if p.rows != nil {
			x.b.accounts.bring(p.ref, p.rows.account, p.rows.accountAt)
		}
		p.account = x.b.account(x.r, p.ref)
	}
	if k := (tables.StateKey{Account: p.ref, Asset: asset}); asset != 0 && !p.state.held() {
		if p.rows != nil {
			x.b.states.bring(k, balance{Balance: p.rows.balance}, p.rows.balanceAt)
		}
		p.state = x.b.state(x.r, k)
	}
	return p
}
