package ledgertest

import (
	"strings"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// checkOps refuses what no state of the ledger could take.
func checkOps(ops []ledger.Op, internal bool) error {
	count := len(ops)
	for i, o := range ops {
		if count += len(o.Ops); count > ledger.MaxOps {
			return &ledger.OpError{Index: i, Field: "ops", Reason: "are too many"}
		}
		if field, reason := checkOp(o, internal); field != "" {
			return &ledger.OpError{Index: i, Field: field, Reason: reason}
		}
	}
	return nil
}

func checkOp(o ledger.Op, inner bool) (field, reason string) {
	parties := map[record.Op][]string{
		record.OpIssue: {o.To}, record.OpBurn: {o.From}, record.OpTransfer: {o.From, o.To}, record.OpHold: {o.From, o.To}, record.OpFlags: {o.From},
	}
	if record.CheckMemo(o.Memo) != nil {
		return "memo", "is none"
	}
	if inner && (o.Dedupe.Key != "" || o.Code == record.OpBatch || o.Code == record.OpAsset) {
		return "code", "no batch, no asset and no key of its own inside a whole"
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
			if field, reason := checkOp(inner, true); field != "" {
				return "ops." + field, reason
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
	switch {
	case o.Amount.IsZero():
		return "amount", "is zero"
	case engines.CheckAsset(o.Asset) != nil:
		return "asset", "is none"
	case o.From == o.To:
		return "to", "is the account that pays"
	case strings.HasPrefix(o.From, "sys:issue:") || strings.HasPrefix(o.To, "sys:issue:"):
		return "account", "only issue and burn move issuance accounts"
	case o.Code == record.OpHold && (o.ExpiresIn <= 0 || o.ExpiresIn > 31*24*time.Hour):
		return "expires_in", "is not above zero, or above a month"
	}
	return "", ""
}
