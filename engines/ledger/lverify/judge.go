package lverify

import (
	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// judge checks what the record says of accounts, assets and money.
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
	}
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

// spends tells the ops that take a nonce and count against the payer's day.
func spends(op record.Op) bool {
	return op == record.OpIssue || op == record.OpTransfer || op == record.OpBurn || op == record.OpHold
}

const (
	barsDebit  = record.Frozen | record.NoDebit | record.Closed
	barsCredit = record.Frozen | record.NoCredit | record.Closed
)

// parties checks who pays and who is paid, and answers whether the rest can be looked at.
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
	if declared && (r.From == issuer) != (r.Op == record.OpIssue) || declared && (r.To == issuer) != (r.Op == record.OpBurn) {
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

// held checks what the record says of holds, and gives the one that it ends. Not ok: the states cannot be told.
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
		c.bad("account %d, asset %d: the state after it is %s, from record %d follows %s", im.Account, im.Asset, show(&im.State), im.Prev, show(&want))
		return
	}
	issuer, declared := c.issuers[im.Asset]
	if _, enough := im.State.Available(); !enough && declared && im.Account != issuer {
		c.bad("account %d, asset %d: it holds less than nothing", im.Account, im.Asset)
	}
	c.sum(im.Asset, &was, &im.State)
}

// change is what a record does to one of its states.
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
	back := c.h.amount // of a hold that ends: what is not paid
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
