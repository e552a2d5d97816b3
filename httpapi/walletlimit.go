package httpapi

import (
	"errors"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// limitSaid names what is beyond a limit, the limit, and what to do.
func limitSaid(err error) string {
	var reject *ledger.Reject
	var own *wallet.LimitError
	var token *engines.GrantError
	limit := ""
	switch {
	case errors.As(err, &reject):
		limit = reject.Limit
	case errors.As(err, &own):
		limit = own.Limit
	case errors.As(err, &token):
		limit = token.Caveat
	}
	return limitWords(limit) + "; nothing was done"
}

func limitWords(limit string) string {
	switch limit {
	case ledger.LimitPerOp:
		return "amount_minor: is more than one operation may move (wallet.max_amount_per_op): move less at once"
	case ledger.LimitDaily:
		return "amount_minor: is more than the account may still give today (wallet.daily_ceiling): the day ends at 00:00 UTC"
	case ledger.LimitTokenDaily:
		return "amount_minor: is more than the token still allows today (ceiling_daily): the day ends at 00:00 UTC"
	case ledger.LimitAccountTotal:
		return "amount_minor: the receiver would have more than an account may (wallet.max_account_total)"
	case ledger.LimitOpenHolds:
		return "there are as many open holds as may be (wallet.max_open_holds): capture or release some"
	case "ceiling":
		return "amount_minor: is above the token's ceiling, which `ronbox token inspect` shows"
	case "ceiling_daily":
		return "amount_minor: is above the token's ceiling_daily, which `ronbox token inspect` shows"
	case "batch_max_ops":
		return "ops: are more than a batch may hold (wallet.batch_max_ops): send the rest as another one, under a key of its own"
	}
	return "details.limit says which"
}
