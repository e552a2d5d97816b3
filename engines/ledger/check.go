package ledger

import (
	"fmt"
	"strings"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// maxHoldTime bounds ExpiresIn: a day more than the API lets a caller ask for.
const maxHoldTime = 31 * 24 * time.Hour

// checkOps refuses a call with an op that no state of the ledger could take, or with too many.
func checkOps(ops []Op) error {
	n := 0
	for i := range ops {
		if n += 1 + len(ops[i].Ops); n > MaxOps {
			return tooMany(i)
		}
		if err := checkOp(i, &ops[i]); err != nil {
			return err
		}
	}
	return nil
}

func tooMany(i int) error {
	return &OpError{Index: i, Field: "ops", Reason: fmt.Sprintf("more than %d in a call: split it", MaxOps)}
}

// checkOp returns an *OpError if no state of the ledger could take o, which is number i of its
// call.
func checkOp(i int, o *Op) error {
	if 1+len(o.Ops) > MaxOps {
		return tooMany(i)
	}
	if field, reason := o.check(false); field != "" {
		return &OpError{Index: i, Field: field, Reason: reason}
	}
	return nil
}

// check returns the first invalid member of o and the reason, "" if o is valid.
func (o *Op) check(inner bool) (field, reason string) {
	if field, reason = o.checkWords(inner); field != "" || o.checked {
		return field, reason
	}
	switch o.Code {
	case record.OpIssue:
		if o.From != "" {
			return "from", "an issue has none: the asset's issuance account is debited"
		}
		return o.checkPayment("", o.To)
	case record.OpBurn:
		if o.To != "" {
			return "to", "a burn has none: the asset's issuance account is credited"
		}
		return o.checkPayment(o.From, "")
	case record.OpTransfer, record.OpHold:
		return o.checkPayment(o.From, o.To)
	case record.OpCapture, record.OpRelease:
		return "", ""
	case record.OpFlags:
		return checkName("from", o.From)
	case record.OpAsset:
		if inner {
			return "code", "an asset is declared by an op of its own"
		}
		return o.checkAsset()
	case record.OpBatch:
		return o.checkBatch(inner)
	}
	return "code", "not one of issue, transfer, burn, hold, capture, release, flags, asset, batch"
}

func (o *Op) checkWords(inner bool) (field, reason string) {
	if o.Idem != "" && record.CheckIdem(o.Idem) != nil {
		return "idem", record.ErrIdem.Error()
	}
	if record.CheckMemo(o.Memo) != nil {
		return "memo", record.ErrMemo.Error()
	}
	if field, reason = o.checkReference(); field != "" {
		return field, reason
	}
	switch {
	case o.Dedupe.Key == "":
	case inner:
		return "dedupe", "an op of a batch has none: the batch's key covers it"
	case strings.IndexByte(o.Dedupe.Key, 0) >= 0:
		return "dedupe", "a key has no zero byte: one divides it from its scope"
	case o.TTL <= 0:
		return "ttl", "must be more than zero for an op with a key"
	}
	return "", ""
}

func (o *Op) checkAsset() (field, reason string) {
	if err := engines.CheckAsset(o.Asset); err != nil {
		return "asset", err.Error()
	}
	return "", ""
}

func checkName(field, name string) (string, string) {
	if err := engines.CheckAccount(name); err != nil {
		return field, err.Error()
	}
	return "", ""
}

// issuancePrefix is the prefix of the names of issuance accounts.
var issuancePrefix = engines.IssuanceAccount("")

func (o *Op) checkPayment(from, to string) (field, reason string) {
	if field, reason = o.checkAsset(); field != "" {
		return field, reason
	}
	for _, side := range [...]struct{ field, name string }{{"from", from}, {"to", to}} {
		if side.name == "" &&
			(o.Code == record.OpIssue && side.field == "from" || o.Code == record.OpBurn && side.field == "to") {
			continue
		}
		if field, reason = checkName(side.field, side.name); field != "" {
			return field, reason
		}
		if strings.HasPrefix(side.name, issuancePrefix) {
			return side.field, "only issue and burn move issuance accounts"
		}
	}
	switch {
	case o.Amount.IsZero():
		return "amount", "must be more than zero"
	case from == to:
		return "to", "is the account that pays"
	case o.Code == record.OpHold && (o.ExpiresIn <= 0 || o.ExpiresIn > maxHoldTime):
		return "expires_in", "must be more than zero, and at most 31 days"
	}
	return "", ""
}

func (o *Op) checkBatch(inner bool) (field, reason string) {
	if inner {
		return "code", "a batch in a batch"
	}
	if len(o.Ops) == 0 {
		return "ops", "a batch of none"
	}
	if o.Memo != "" {
		return "memo", "a batch has none: its ops have"
	}
	for i := range o.Ops {
		if field, reason = o.Ops[i].check(true); field != "" {
			return fmt.Sprintf("ops[%d].%s", i, field), reason
		}
	}
	return "", ""
}
