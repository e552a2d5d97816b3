package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Bounds of the lists.
const (
	MaxHolds    = 500  // holds of a page
	MaxAccounts = 1000 // accounts of a page
	// open holds that one call of Holds examines: a page ends after so many, even if it is not full
	holdScan    = 4096
	MaxExpiring = holdScan // holds that Expiring counts
)

// HoldsQuery asks for a page of the open holds that an account pays or may capture.
type HoldsQuery struct {
	Account string
	After   string // Next of the page before; "" is the first
	Limit   int    // 1 to MaxHolds
}

// HoldsPage is a page of open holds in the order of their expiry. Next is the After of the page
// that follows, "" at the end. A page may hold fewer holds than its limit, or none, and have a
// Next.
type HoldsPage struct {
	Holds []HoldView
	Next  string
}

// HoldView describes a hold. Closed is 0 while it is open, else OpCapture, OpRelease or OpExpire.
type HoldView struct {
	TxID     record.TxID
	From, To string
	Asset    string
	Amount   engines.Amount // all that was set aside
	At       int64          // when it was made, Unix ns
	Expires  int64          // Unix ns
	Closed   record.Op
	Captured engines.Amount // paid out by a capture; the rest of Amount went back
	ClosedAt int64          // Unix ns
	Closing  record.TxID    // of the record that closed it
}

// AccountsQuery asks for a page of the accounts with names that begin with Prefix.
type AccountsQuery struct {
	Prefix string
	After  string // the last name of the previous page; "" for the first page
	Limit  int    // 1 to MaxAccounts
	Asset  string // the asset of the balances; "" for none
}

// AccountsPage is a page of accounts in the byte order of their names. Next is the After of the
// page that follows, "" at the end.
type AccountsPage struct {
	Accounts []AccountEntry
	Next     string
}

// AccountEntry is one account of a list.
type AccountEntry struct {
	Account  string
	Flags    record.Flags
	OpenedAt int64       // Unix ns
	Balance  BalanceView // in the asset of the query, each as of the time when it was read
}

// Holds reads a page of an account's open holds; see Client. No index leads from an account to its
// holds, so a call walks the open holds of the whole ledger in the order of expiry, at most
// holdScan of them, and those in memory that are not in the file yet.
func (l *Local) Holds(ctx context.Context, q HoldsQuery) (page HoldsPage, err error) {
	if err := l.listable(ctx, q.Limit, MaxHolds); err != nil {
		return page, err
	}
	from, err := parseHoldPlace(q.After)
	if err != nil {
		return page, err
	}
	l.expireFirst(ctx)
	now := l.books.view.Load()
	ref, err := l.lookUp(ctx, q.Account)
	if err != nil || ref == 0 {
		return page, err
	}
	fresh := l.freshHolds(from)
	err = l.view(ctx, func(r store.Reader) error {
		page = HoldsPage{}
		ends, more := holdsAfter(r, from, fresh)
		for _, end := range ends {
			if len(page.Holds) == q.Limit {
				more = true
				break
			}
			page.Next = holdPlace(end)
			h, err := l.holdAt(r, end.Seq)
			if err != nil {
				return err
			}
			if end.Seq > now.Seq || !h.Open() || h.From != ref && h.To != ref {
				continue
			}
			v, err := l.holdView(r, end.Seq, &h)
			if err != nil {
				return err
			}
			page.Holds = append(page.Holds, v)
		}
		if !more {
			page.Next = ""
		}
		return nil
	})
	return page, l.readError(err)
}

// listable reports why a list cannot be read, or which bound its limit breaks.
func (l *Local) listable(ctx context.Context, limit, most int) error {
	if err := l.readable(ctx); err != nil {
		return err
	}
	if limit < 1 || limit > most {
		return &OpError{Field: "limit", Reason: fmt.Sprintf("must be 1 to %d", most)}
	}
	return l.books.view.Load().lack
}

// holdPlace returns the cursor of a hold in the order of expiry.
func holdPlace(e tables.HoldEnd) string { return fmt.Sprintf("%x-%x", uint64(e.Expires), e.Seq) }

// parseHoldPlace returns the place after a cursor.
func parseHoldPlace(s string) (e tables.HoldEnd, err error) {
	if s == "" {
		return e, nil
	}
	var expires uint64
	if _, err := fmt.Sscanf(s, "%x-%x", &expires, &e.Seq); err != nil {
		return e, ErrCursor
	}
	e.Expires = int64(expires)
	if e.Expires < 0 || holdPlace(e) != s {
		return e, ErrCursor
	}
	e.Seq++
	return e, nil
}

func compareEnds(a, b tables.HoldEnd) int {
	return cmp.Or(cmp.Compare(a.Expires, b.Expires), cmp.Compare(a.Seq, b.Seq))
}

// freshHolds returns the open holds at or after from with rows that are not flushed yet.
func (l *Local) freshHolds(from tables.HoldEnd) (ends []tables.HoldEnd) {
	for _, seq := range l.books.holds.pinnedKeys() {
		h, _ := l.books.holds.read(seq)
		end := tables.HoldEnd{Expires: h.Expires, Seq: seq}
		if h.From != 0 && h.Open() && compareEnds(end, from) >= 0 {
			ends = append(ends, end)
		}
	}
	return ends
}

// holdsAfter merges the open holds of the file with fresh ones, at most holdScan, and reports
// whether more follow. Some may be closed in memory.
func holdsAfter(r store.Reader, from tables.HoldEnd, fresh []tables.HoldEnd) (ends []tables.HoldEnd, more bool) {
	ends = slices.Clone(fresh)
	n := 0
	for end := range tables.HoldEnds(r, from) {
		ends = append(ends, end)
		if n++; n > holdScan {
			break
		}
	}
	slices.SortFunc(ends, compareEnds)
	ends = slices.Compact(ends)
	if len(ends) > holdScan {
		return ends[:holdScan], true
	}
	return ends, false
}

// holdAt reads the hold that the record seq made. It returns errStale if the row left memory after
// r began.
func (l *Local) holdAt(r store.Reader, seq uint64) (tables.Hold, error) {
	if h, ok := l.books.holds.read(seq); ok && h.From != 0 {
		return h, nil
	}
	h, known := tables.GetHold(r, seq)
	if !known {
		return h, errStale
	}
	return h, nil
}

func (l *Local) holdView(r store.Reader, seq uint64, h *tables.Hold) (v HoldView, err error) {
	rec, known := l.past(r).hold(seq)
	if !known {
		return v, errStale
	}
	n, err := l.namesOf(r, &rec)
	if err != nil {
		return v, err
	}
	v = HoldView{
		TxID: rec.TxID(), From: n.From, To: n.To, Asset: n.Asset, Amount: h.Amount, At: h.At, Expires: h.Expires,
	}
	if h.Open() {
		return v, nil
	}
	end, known := tables.Record(r, h.Closing)
	if !known {
		return v, errStale
	}
	v.Closed, v.ClosedAt, v.Closing = h.Closed, end.At, end.TxID()
	if h.Closed == record.OpCapture {
		v.Captured = end.Amount
	}
	return v, nil
}

// Hold reads one hold, open or not; see Client.
func (l *Local) Hold(ctx context.Context, id record.TxID) (v HoldView, err error) {
	if err := l.readable(ctx); err != nil {
		return v, err
	}
	if err := l.books.view.Load().lack; err != nil {
		return v, err
	}
	l.expireFirst(ctx)
	var closing uint64
	err = l.view(ctx, func(r store.Reader) error {
		rec, err := l.given(r, id)
		if past := l.past(r); past.Below(id.Seq()) {
			rec, err = past.given(id)
		}
		if err == nil && rec.Op != record.OpHold {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		h, err := l.holdAt(r, rec.Seq)
		if err != nil {
			return err
		}
		closing = h.Closing
		v, err = l.holdView(r, rec.Seq, &h)
		return err
	})
	if err != nil {
		return v, l.readError(err)
	}
	return v, l.reach(ctx, closing) // so that the caller can ask for the record that closed it
}

// Accounts reads a page of accounts in the order of their names; see Client.
func (l *Local) Accounts(ctx context.Context, q AccountsQuery) (page AccountsPage, err error) {
	if err := l.listable(ctx, q.Limit, MaxAccounts); err != nil {
		return page, err
	}
	now := l.books.view.Load()
	fresh := l.freshNames(q)
	err = l.view(ctx, func(r store.Reader) error {
		page = AccountsPage{}
		names, more := namesAfter(r, q, fresh)
		for _, n := range names {
			if len(page.Accounts) == q.Limit {
				more = true
				break
			}
			page.Next = n.name
			a, err := l.accountAt(r, n.ref)
			if err != nil {
				return err
			}
			if a.OpenedSeq > now.Seq {
				continue // rows are published before the head
			}
			e := AccountEntry{Account: n.name, Flags: a.Flags, OpenedAt: l.past(r).openedAt(n.ref, a.OpenedSeq)}
			page.Accounts = append(page.Accounts, e)
		}
		if !more {
			page.Next = ""
		}
		return nil
	})
	if err != nil || q.Asset == "" {
		return page, l.readError(err)
	}
	for i := range page.Accounts {
		a := &page.Accounts[i]
		if a.Balance, err = l.Balance(ctx, a.Account, q.Asset, 0); err != nil {
			return AccountsPage{}, err
		}
	}
	return page, nil
}

// namedRef is the name of an account and its ref.
type namedRef struct {
	name string
	ref  uint64
}

func (q *AccountsQuery) wants(name string) bool {
	return name > q.After && strings.HasPrefix(name, q.Prefix)
}

// freshNames returns the accounts of a query with rows that are not flushed yet.
func (l *Local) freshNames(q AccountsQuery) (out []namedRef) {
	for _, name := range l.books.names.pinnedKeys() {
		if ref, _ := l.books.names.read(name); ref != 0 && q.wants(name) {
			out = append(out, namedRef{name, ref})
		}
	}
	return out
}

// namesAfter merges the names of the file, one more than a page, with fresh ones, and reports
// whether the file has more.
func namesAfter(r store.Reader, q AccountsQuery, fresh []namedRef) (out []namedRef, more bool) {
	for name, ref := range tables.AccountNames(r, max(q.Prefix, q.After)) {
		if !strings.HasPrefix(name, q.Prefix) {
			break
		}
		if name <= q.After {
			continue
		}
		out = append(out, namedRef{name, ref})
		if more = len(out) > q.Limit; more {
			break
		}
	}
	if more {
		last := out[len(out)-1].name
		fresh = slices.DeleteFunc(slices.Clone(fresh), func(n namedRef) bool { return n.name > last })
	}
	out = append(out, fresh...)
	slices.SortFunc(out, func(a, b namedRef) int { return cmp.Compare(a.name, b.name) })
	return slices.Compact(out), more
}

// accountAt reads an account. It returns errStale if the row left memory after r began.
func (l *Local) accountAt(r store.Reader, ref uint64) (tables.Account, error) {
	if a, ok := l.books.accounts.read(ref); ok {
		return a, nil
	}
	l.books.mustHold(tables.StateKey{Account: ref})
	a, known := tables.GetAccount(r, ref)
	if !known {
		return a, errStale
	}
	return a, nil
}

// Expiring returns how many idempotency keys and open holds expire if the ledger's time goes ahead
// to at. Keys are counted by whole slots, so there are that many at most. It counts MaxExpiring
// holds at most.
func (l *Local) Expiring(ctx context.Context, at time.Time) (keys, holds int64, err error) {
	if err := l.readable(ctx); err != nil {
		return 0, 0, err
	}
	now, until, ttl := l.now().UnixNano(), at.UnixNano(), int64(l.reloaded.Load().KeyTTL)
	from := tables.HoldEnd{Expires: now + 1}
	err = l.view(ctx, func(r store.Reader) error {
		holds = 0
		ends, _ := holdsAfter(r, from, l.freshHolds(from))
		for _, end := range ends {
			if end.Expires > until {
				break
			}
			h, err := l.holdAt(r, end.Seq)
			if err != nil {
				return err
			}
			if h.Open() {
				holds++
			}
		}
		return nil
	})
	return l.books.idem.Within(now-ttl, until-ttl), holds, l.readError(err)
}
