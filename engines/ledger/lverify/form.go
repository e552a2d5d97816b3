package lverify

import (
	"strings"

	"ronbox/engines/ledger/record"
)

// members are what a record may have beside its op, place and time.
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

// given are the members that an op can have; what it must have is seen where it is used.
func given(op record.Op) members {
	switch op {
	case record.OpOpen:
		return hasFrom
	case record.OpAsset:
		return hasFrom | hasAsset | asked
	case record.OpFlags:
		return hasFrom | hasSetClear | asked
	case record.OpOnce:
		return hasWho | hasOnce | hasGuard
	case record.OpIssue, record.OpTransfer, record.OpBurn:
		return moves | hasNonce | asked
	case record.OpHold:
		return moves | hasNonce | hasExpires | asked
	case record.OpCapture, record.OpRelease:
		return moves | hasHold | asked
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
		{r.Asset != 0, hasAsset}, {!r.Amount.IsZero(), hasAmount}, {r.From != 0, hasFrom}, {r.To != 0, hasTo}, {r.Nonce != 0, hasNonce},
		{r.Principal != [8]byte{} || r.CapID != [8]byte{}, hasWho}, {r.Dedupe.Kind == record.DedupeKey, hasKey},
		{r.Dedupe.Kind == record.DedupeOnce, hasOnce}, {r.Guard != record.Guard{}, hasGuard}, {r.Hold != 0, hasHold},
		{r.Expires != 0, hasExpires}, {r.Idem != "" || r.Memo != "", hasWords}, {r.Set|r.Clear != 0, hasSetClear}, {len(r.Images) != 0, hasImages},
	} {
		if has.is {
			m |= has.bit
		}
	}
	return m
}

// form checks that the record has no member that its op, or its place in a batch, does not give it.
func (c *chain) form() {
	r := &c.rec
	may, flags := given(r.Op), r.Flags&(record.FlagInner|record.FlagAtomic)
	if flags&record.FlagInner != 0 {
		may &^= hasWho | hasKey
	}
	if r.Op == record.OpBatch && r.Part != 0 {
		may &^= hasKey | hasWords
	}
	if membersOf(r)&^may != 0 {
		c.bad("it is %s, and has members that none can have there", r.Op)
	}
	switch r.Op {
	case record.OpOnce:
		if flags != record.FlagAtomic {
			c.bad("it is %s, and not marked as what stands or falls with its batch", r.Op)
		}
	case record.OpBatch, record.OpAsset, record.OpExpire:
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

// opens checks that an account is opened only for the record behind it, which credits it, sets its flags, or declares the asset that it issues.
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
