package ledgertest

import (
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// checkOps refuses what no state of the ledger could take.
func checkOps(ops []ledger.Op, internal bool) error {
	for i, o := range ops {
		if field, reason := checkOp(o, internal); field != "" {
			return &ledger.OpError{Index: i, Field: field, Reason: reason}
		}
	}
	return nil
}

func checkOp(o ledger.Op, internal bool) (field, reason string) {
	parties := map[record.Op][]string{
		record.OpIssue: {o.To}, record.OpBurn: {o.From}, record.OpTransfer: {o.From, o.To}, record.OpHold: {o.From, o.To}, record.OpFlags: {o.From},
	}
	if record.CheckMemo(o.Memo) != nil {
		return "memo", "is none"
	}
	if o.Idem != "" && record.CheckIdem(o.Idem) != nil {
		return "idem", "is none"
	}
	for _, name := range parties[o.Code] {
		if engines.CheckAccount(name) != nil {
			return "account", "is none"
		}
	}
	switch o.Code {
	case record.OpBatch:
		if len(o.Ops) == 0 {
			return "ops", "are none"
		}
		for _, inner := range o.Ops {
			if field, reason := checkOp(inner, internal); field != "" || inner.Code == record.OpBatch || inner.Code == record.OpAsset {
				return "ops." + field, "no batch and no asset, or " + reason
			}
		}
	case record.OpIssue, record.OpTransfer, record.OpBurn, record.OpHold:
		return checkPayment(o)
	case record.OpAsset:
		if engines.CheckAsset(o.Asset) != nil {
			return "asset", "is none"
		}
	case record.OpCapture, record.OpRelease, record.OpFlags:
	default:
		return "code", "is not for callers"
	}
	return "", ""
}

func checkPayment(o ledger.Op) (field, reason string) {
	issuance := engines.IssuanceAccount(o.Asset)
	switch {
	case o.Amount.IsZero():
		return "amount", "is zero"
	case engines.CheckAsset(o.Asset) != nil:
		return "asset", "is none"
	case o.From == o.To:
		return "to", "is the account that pays"
	case o.From == issuance || o.To == issuance:
		return "account", "only issue and burn move issuance accounts"
	case o.Code == record.OpHold && o.ExpiresIn <= 0:
		return "expires_in", "is not above zero"
	}
	return "", ""
}
