package lverify

import (
	"strings"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// judge checks accounts, assets and money of the record.
func (c *chain) judge() {
	r := &c.rec
	if r.Op.MovesMoney() {
		if c.parties() {
			c.money()
		}
		return
	}
	switch r.Op {
	case record.OpOpen:
		if !c.accounts.open(r.From, r.Seq) {
			c.bad("it opens account %d, the next one is %d", r.From, c.accounts.count()+1)
		}
	case record.OpFlags:
		if !c.accounts.known(r.From) {
			c.bad("account %d was not opened", r.From)
			return
		}
		c.accounts.set(r.From, r.Seq, r.Set, r.Clear)
	case record.OpAsset:
		c.declared()
	case record.OpScale:
		c.scaled()
	case record.OpClose:
		c.closed()
	}
}

func (c *chain) scaled() {
	r := &c.rec
	if _, declared := c.issuers[r.Asset]; c.whole && !declared {
		c.bad("asset %d was not declared", r.Asset)
	}
	if c.scales[r.Asset] {
		c.bad("asset %d had decimals before", r.Asset)
	}
	c.scales[r.Asset] = true
}

func (c *chain) declared() {
	r := &c.rec
	if c.whole && r.Asset != uint32(len(c.issuers))+1 {
		c.bad("it declares asset %d, the next one is %d", r.Asset, len(c.issuers)+1)
	}
	if !c.accounts.known(r.From) {
		c.bad("its issuance account %d was not opened", r.From)
	}
	c.issuers[r.Asset] = r.From
}

// spends reports whether an op takes a nonce and counts against the payer's day.
func spends(op record.Op) bool {
	return op == record.OpIssue || op == record.OpTransfer || op == record.OpBurn || op == record.OpHold
}

const (
	barsDebit  = record.Frozen | record.NoDebit | record.Closed
	barsCredit = record.Frozen | record.NoCredit | record.Closed
)

// parties checks payer and payee, and reports whether the states can be checked.
func (c *chain) parties() bool {
	r := &c.rec
	if len(r.Images) != 2 || r.Images[0].Account != r.From || r.Images[1].Account != r.To {
		c.bad("its images are not those of its two accounts")
		return false
	}
	issuer, declared := c.issuers[r.Asset]
	switch {
	case !c.accounts.known(r.From) || !c.accounts.known(r.To):
		c.bad("account %d or %d was not opened", r.From, r.To)
		return false
	case r.From == r.To:
		c.bad("account %d pays itself", r.From)
		return false
	case r.Asset == 0 || c.whole && !declared:
		c.bad("asset %d was not declared", r.Asset)
		return false
	case r.Amount.IsZero():
		c.bad("it moves nothing")
		return false
	}
	if declared && (r.From == issuer) != (r.Op == record.OpIssue) ||
		declared && (r.To == issuer) != (r.Op == record.OpBurn) {
		c.bad("it is %s, and moves the issuance account otherwise", r.Op)
	}
	if r.Op != record.OpRelease && r.Op != record.OpExpire &&
		(c.accounts.of(r.From).Has(barsDebit) || c.accounts.of(r.To).Has(barsCredit)) {
		c.bad("a flag of account %d or %d forbids it", r.From, r.To)
	}
	return true
}

// money checks nonce, hold and the states after the record.
func (c *chain) money() {
	r := &c.rec
	switch {
	case !spends(r.Op) && r.Nonce != 0, spends(r.Op) && r.Nonce == 0 && !c.settling && !c.cut:
		c.bad("a nonce is there, or is missing")
	case r.Nonce != 0:
		if before := c.accounts.use(r.From, r.Nonce, r.Seq); r.Nonce <= before {
			c.bad("its nonce is %d, and account %d has used %d", r.Nonce, r.From, before)
		}
	}
	h, ok := c.held()
	for i := range r.Images {
		if ok {
			c.image(i, h)
			continue
		}
		c.blind = true
		c.past.took(&r.Images[i])
		c.ends.add(&r.Images[i])
	}
}

// held checks the members of the record about holds, and returns the hold that it ends. It is not
// ok if the states cannot be checked.
func (c *chain) held() (h held, ok bool) {
	r := &c.rec
	if (r.Op == record.OpHold) != (r.Expires != 0) {
		c.bad("a time of expiry is there, or is missing")
	}
	if r.Op == record.OpHold {
		if r.Expires <= r.At {
			c.bad("it expires before it begins")
		}
		c.open[r.Seq] = held{r.From, r.To, r.Asset, r.Amount, r.At, r.Expires}
	}
	if spends(r.Op) {
		if r.Hold != 0 {
			c.bad("it is %s, and ends a hold", r.Op)
		}
		return held{}, true
	}
	if h, ok = c.ending(r.Hold); !ok {
		return held{}, false
	}
	if h.from != r.From || h.to != r.To || h.asset != r.Asset {
		c.bad("it ends hold %d of other accounts, or in another asset", r.Hold)
	}
	if r.Op == record.OpCapture && h.amount.Less(r.Amount) || r.Op != record.OpCapture && h.amount != r.Amount {
		c.bad("it ends hold %d of %s with %s", r.Hold, h.amount, r.Amount)
	}
	if (r.Op == record.OpExpire) != (r.At >= h.expires) {
		c.bad("it is %s, and hold %d ends at %d", r.Op, r.Hold, h.expires)
	}
	return h, true
}

// ending takes the hold that a record ends.
func (c *chain) ending(seq uint64) (h held, ok bool) {
	h, ok = c.open[seq]
	delete(c.open, seq)
	if ok {
		return h, true
	}
	if c.whole || c.ended[seq] {
		c.bad("it ends hold %d, which is not open", seq)
		return held{}, false
	}
	c.ended[seq] = true
	h, ok, err := c.past.hold(seq, c.rec.Seq)
	if err != nil {
		c.bad("it ends hold %d: %v", seq, err)
	}
	return h, ok && err == nil
}

// image checks the state after the record against the one before it.
func (c *chain) image(i int, h held) {
	r := &c.rec
	im := &r.Images[i]
	was, ok, err := c.past.state(im.Account, im.Asset, im.Prev)
	if err != nil {
		c.bad("account %d, asset %d: %v", im.Account, im.Asset, err)
	}
	c.past.took(im)
	c.ends.add(im)
	if err != nil || !ok {
		c.blind = true
		return
	}
	want, fits := change{r, h, i == 0}.of(was)
	want.LastSeq = r.Seq
	if !fits || want != im.State {
		c.bad("account %d, asset %d: the state after it is %s, from record %d follows %s", im.Account, im.Asset,
			show(&im.State), im.Prev, show(&want))
		return
	}
	issuer, declared := c.issuers[im.Asset]
	if _, enough := im.State.Available(); !enough && declared && im.Account != issuer {
		c.bad("account %d, asset %d: it holds less than nothing", im.Account, im.Asset)
	}
	c.sum(im.Asset, &was, &im.State)
}

// change is the change of a record to one of its states.
type change struct {
	r     *record.Record
	h     held
	payer bool
}

const nsPerDay = 24 * 60 * 60 * 1_000_000_000

// of is the state after s; it does not fit if a counter would run over or below zero.
func (c change) of(s record.State) (after record.State, fits bool) {
	ok := true
	up := func(a *engines.Amount, by engines.Amount) {
		sum, fit := a.Add(by)
		*a, ok = sum, ok && fit
	}
	down := func(a *engines.Amount, by engines.Amount) {
		diff, fit := a.Sub(by)
		*a, ok = diff, ok && fit
	}
	posted, heldFor := &s.CreditsPosted, &s.CreditsHeld
	if c.payer {
		posted, heldFor = &s.DebitsPosted, &s.DebitsHeld
	}
	back := c.h.amount // of a hold that ends: the unpaid part
	switch c.r.Op {
	case record.OpIssue, record.OpTransfer, record.OpBurn:
		up(posted, c.r.Amount)
	case record.OpHold:
		up(heldFor, c.r.Amount)
	case record.OpCapture:
		down(heldFor, c.h.amount)
		up(posted, c.r.Amount)
		down(&back, c.r.Amount)
	case record.OpRelease, record.OpExpire:
		down(heldFor, c.h.amount)
	}
	day := uint32(c.r.At / nsPerDay)
	switch {
	case c.payer && spends(c.r.Op):
		if s.Day != day {
			s.Day, s.DayDebits = day, engines.Amount{}
		}
		up(&s.DayDebits, c.r.Amount)
	case c.payer && s.Day == day && uint32(c.h.at/nsPerDay) == day:
		down(&s.DayDebits, back)
	}
	return s, ok
}

// members is a set of members of a record, beside its op, place and time.
type members uint16

const (
	hasAsset members = 1 << iota
	hasAmount
	hasFrom
	hasTo
	hasNonce
	hasWho
	hasKey
	hasOnce
	hasGuard
	hasHold
	hasExpires
	hasWords
	hasSetClear
	hasImages

	asked = hasWho | hasKey | hasWords
	moves = hasAsset | hasAmount | hasFrom | hasTo | hasImages
)

// given returns the members that an op may have. Required members are checked where they are used.
func given(op record.Op) members {
	switch op {
	case record.OpOpen:
		return hasFrom
	case record.OpAsset:
		return hasFrom | hasAsset | asked
	case record.OpScale:
		return hasAsset | hasAmount | asked
	case record.OpClose:
		return hasAmount | hasOnce
	case record.OpFlags:
		return hasFrom | hasSetClear | asked
	case record.OpOnce:
		return hasWho | hasOnce | hasGuard
	case record.OpIssue, record.OpTransfer, record.OpBurn:
		return moves | hasNonce | hasGuard | asked
	case record.OpHold:
		return moves | hasNonce | hasExpires | hasGuard | asked
	case record.OpCapture, record.OpRelease:
		return moves | hasHold | hasGuard | asked
	case record.OpExpire:
		return moves | hasHold
	}
	return asked // OpBatch
}

func membersOf(r *record.Record) (m members) {
	for _, has := range [...]struct {
		is  bool
		bit members
	}{
		{r.Asset != 0, hasAsset}, {!r.Amount.IsZero(), hasAmount}, {r.From != 0, hasFrom}, {r.To != 0, hasTo},
		{r.Nonce != 0, hasNonce},
		{r.Principal != [8]byte{} || r.CapID != [8]byte{}, hasWho}, {r.Dedupe.Kind == record.DedupeKey, hasKey},
		{r.Dedupe.Kind == record.DedupeOnce, hasOnce}, {r.Guard != record.Guard{}, hasGuard}, {r.Hold != 0, hasHold},
		{r.Expires != 0, hasExpires}, {r.Idem != "" || r.Memo != "", hasWords}, {r.Set|r.Clear != 0, hasSetClear},
		{len(r.Images) != 0, hasImages},
	} {
		if has.is {
			m |= has.bit
		}
	}
	return m
}

// form checks that the record has only members that its op and its place in a batch allow.
func (c *chain) form() {
	r := &c.rec
	may, flags := given(r.Op), r.Flags&(record.FlagInner|record.FlagAtomic)
	if flags&record.FlagInner != 0 {
		may &^= hasWho | hasKey | hasOnce
	}
	if c.settling && r.Op != record.OpOnce {
		may &^= hasGuard
	}
	if r.Op == record.OpBatch && r.Part != 0 {
		may &^= hasKey | hasWords
	}
	if membersOf(r)&^may != 0 {
		c.bad("it is %s, and has members that none can have there", r.Op)
	}
	switch r.Op {
	case record.OpOnce:
		if repeats(r) && r.Guard == (record.Guard{}) {
			c.bad("it repeats an op of a batch, and has no reference")
		}
		if !repeats(r) && flags != record.FlagAtomic {
			c.bad("it is %s, and not marked as what stands or falls with its batch", r.Op)
		}
	case record.OpBatch, record.OpAsset, record.OpScale, record.OpExpire, record.OpClose:
		if flags&record.FlagInner != 0 {
			c.bad("it is %s, and inside a batch", r.Op)
		}
	}
	if flags == record.FlagAtomic && r.Op != record.OpOnce && r.Op != record.OpBatch {
		c.bad("it is marked as part of a whole, and not as being inside a batch")
	}
}

// opening is an account that the record before has opened.
type opening struct {
	ref   uint64
	name  string
	flags uint16
}

// opens checks that an account is opened only for the next record, which credits it, sets its
// flags, or declares the asset that it issues.
func (c *chain) opens() {
	r, was := &c.rec, c.opened
	c.opened = opening{}
	switch {
	case was.ref == 0:
		if r.Op == record.OpAsset && !c.cut {
			c.bad("its issuance account %d is not opened for it", r.From)
		}
	case r.Flags != was.flags, r.Op == record.OpOpen, r.Op == record.OpOnce, r.Op == record.OpBatch:
		c.bad("account %d is opened, and not for it", was.ref)
	case r.Op == record.OpAsset:
		if r.From != was.ref || was.name != issuance(r.Name) {
			c.bad("asset %q is issued by account %d, which is called %q", r.Name, was.ref, was.name)
		}
	case strings.HasPrefix(was.name, issuance("")):
		c.bad("account %d is opened as one that issues, and no asset is declared", was.ref)
	case r.Op == record.OpFlags && r.From != was.ref, r.Op != record.OpFlags && r.To != was.ref:
		c.bad("account %d is opened, and not for it", was.ref)
	}
	if r.Op == record.OpOpen {
		c.opened = opening{r.From, r.Name, r.Flags}
	}
}
