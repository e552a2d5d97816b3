package httpapi

import (
	"errors"
	"strconv"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi/wire"
)

// postOrder serves POST /v1/issue, transfer, burn, hold, capture and release.
func postOrder(w WalletWriter, op record.Op) handler {
	return func(c *call) error {
		key, err := idempotencyKey(c.r)
		if err != nil {
			return err
		}
		in := orderReader{in: newJSONReader(c.takeBody())}
		order, err := in.single(op)
		if err != nil {
			return err
		}
		return c.post(w, key, order)
	}
}

// post gives an order that reads well to the wallet, if that takes any.
func (c *call) post(w WalletWriter, key string, order wallet.Request) error {
	if err := w.WriteReady(); err != nil {
		return err
	}
	a, err := w.Post(c.context(), c.actor, key, c.corrID, order)
	if err != nil {
		return c.refused(order, err)
	}
	return c.sendAnswer(a)
}

// sendAnswer sends the wallet's own bytes.
func (c *call) sendAnswer(a wallet.Answer) error {
	c.markReplayed(a.Replayed)
	return c.send(a.Status, cacheNone, a.Body)
}

// refused adds to a refusal by the rules what it is about.
func (c *call) refused(order wallet.Request, err error) error {
	var r *ledger.Reject
	if !errors.As(err, &r) {
		return err
	}
	e := &refusedError{order: order, owner: c.mayDebit(order), Reject: r}
	var at *wallet.IndexError
	if errors.As(err, &at) {
		return &wallet.IndexError{Index: at.Index, Err: e}
	}
	return e
}

// mayDebit tells whether the caller may do such an order at all: with the account that gives, or of an issue, the one that gets.
func (c *call) mayDebit(o wallet.Request) bool {
	account := o.From
	if o.Op == record.OpIssue {
		account = o.To
	}
	return c.actor.May(serviceWallet+"."+o.Op.String()) && c.actor.Grant.Account(account) == nil && c.actor.Grant.Asset(o.Asset) == nil
}

// postBatch serves POST /v1/batch.
func postBatch(w WalletWriter) handler {
	return func(c *call) error {
		key, err := idempotencyKey(c.r)
		if err != nil {
			return err
		}
		b, err := readBatch(c.reader())
		if err != nil {
			return err
		}
		if err := w.WriteReady(); err != nil {
			return err
		}
		a, err := w.Batch(c.context(), c.actor, key, c.corrID, b.atomic, b.ops)
		if err != nil {
			return c.refused(b.blamed(err), err)
		}
		return c.sendAnswer(a)
	}
}

// blamed is the operation that err is about, if it says so.
func (b *batch) blamed(err error) wallet.Request {
	var at *wallet.IndexError
	if errors.As(err, &at) && at.Index >= 0 && at.Index < len(b.ops) {
		return b.ops[at.Index]
	}
	return wallet.Request{}
}

// reader reads the body in the encoding that it is declared in.
func (c *call) reader() bodyReader {
	if mediaType(c.r) == typeCBOR {
		return newCBORReader(c.takeBody())
	}
	return newJSONReader(c.takeBody())
}

// postFlags serves POST /v1/accounts/flags.
func postFlags(w WalletWriter) handler {
	return func(c *call) error {
		key, err := idempotencyKey(c.r)
		if err != nil {
			return err
		}
		var in wire.FlagsChange
		if err := decode(c.takeBody(), &in); err != nil {
			return err
		}
		order, err := flagsOrder(in)
		if err != nil {
			return err
		}
		return c.post(w, key, order)
	}
}

func flagsOrder(in wire.FlagsChange) (wallet.Request, error) {
	out := wallet.Request{Op: record.OpFlags, From: in.Account}
	var err error
	switch {
	case engines.CheckAccount(in.Account) != nil:
		return out, &BodyError{"account", wantAccount}
	case len(in.Set)+len(in.Clear) == 0:
		return out, &BodyError{"set", "must name a flag, or clear must"}
	}
	if out.Set, err = flagSet("set", in.Set); err != nil {
		return out, err
	}
	if out.Clear, err = flagSet("clear", in.Clear); err != nil {
		return out, err
	}
	if out.Set.Has(out.Clear) {
		return out, &BodyError{"clear", "must not name a flag that set names"}
	}
	return out, nil
}

func flagSet(field string, names []string) (set record.Flags, err error) {
	for i, name := range names {
		f, err := record.ParseFlags(name)
		if err != nil || f == 0 {
			return 0, &BodyError{field + "." + strconv.Itoa(i), "must be one of frozen, no_debit, no_credit, closed"}
		}
		set |= f
	}
	return set, nil
}

// postAsset serves POST /v1/assets.
func postAsset(w WalletWriter) handler {
	return func(c *call) error {
		key, err := idempotencyKey(c.r)
		if err != nil {
			return err
		}
		var in wire.AssetDeclare
		if err := decode(c.takeBody(), &in); err != nil {
			return err
		}
		if engines.CheckAsset(in.Asset) != nil {
			return &BodyError{"asset", wantAsset}
		}
		if err := w.WriteReady(); err != nil {
			return err
		}
		a, err := w.DeclareAsset(c.context(), c.actor, key, c.corrID, in.Asset)
		if err != nil {
			return err
		}
		return c.sendAnswer(a)
	}
}
