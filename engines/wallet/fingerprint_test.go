package wallet

import (
	"strings"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// asked returns a request with every field set.
func asked() ledger.Op {
	return ledger.Op{
		Code:       record.OpHold,
		From:       "alice",
		To:         "bob:shop",
		Asset:      "ron",
		Amount:     engines.AmountOf(1, 2),
		Nonce:      3,
		Memo:       "for tea",
		Hold:       record.NewTxID(1_000_000, 4, 5),
		ExpiresIn:  6 * time.Second,
		ValidUntil: time.Unix(7, 8).UnixNano(),
		Set:        record.Frozen,
		Clear:      record.NoDebit,
	}
}

// Fingerprints are stored in journals. They must never change, or the retry of a stored request
// would conflict with the original.
func TestFingerprintsAreFrozen(t *testing.T) {
	f, one, none := newFingerprints(), asked(), ledger.Op{}
	for name, tt := range map[string]struct{ got, want string }{
		"a request":       {f.single(&one, false).String(), "b3:4358fea45ace6583fe58e1e12d199c8629f7b7bfbc7f3f8c234e176921a65d98"},
		"an empty one":    {f.single(&none, false).String(), "b3:fea2b67ce88d490bd249633e4e9d69ea657098699e3e78b48e2d4dbd5872f4a8"},
		"a batch":         {f.batch(false, []ledger.Op{one, none}).String(), "b3:efdb7ab9dc2ecdc4017299708258cd9262bee5e3aa5d2bc9b4978a8d739e8c83"},
		"an atomic batch": {f.batch(true, []ledger.Op{one, none}).String(), "b3:bbf64b68efdfa182eb15efc0c34bf2bd537193fa28cb1924207b8f4b686f3b7f"},
		"a batch of one":  {f.batch(false, []ledger.Op{one}).String(), "b3:b2175734e642df52aa94b7f415efb5f134233075c5a8b06f9d3b6f2a4ef2552a"},
		"a batch of none": {f.batch(false, nil).String(), "b3:0f7d450de405e274a75f81e824c1a12cbb7e8ef8299effdad4ec30ba684497d3"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %s, want %s", name, tt.got, tt.want)
		}
	}
}

// A change to any single field changes the fingerprint, alone or in a batch. Moving text from one
// field to the next changes it too.
func TestEachMemberIsInTheFingerprint(t *testing.T) {
	f := newFingerprints()
	seen := map[string]string{}
	for name, change := range map[string]func(*ledger.Op){
		"nothing":          func(*ledger.Op) {},
		"op":               func(r *ledger.Op) { r.Code = record.OpTransfer },
		"set":              func(r *ledger.Op) { r.Set = record.NoDebit },
		"a reference":      func(r *ledger.Op) { r.Reference = "r" },
		"another one":      func(r *ledger.Op) { r.Reference = "s" },
		"clear":            func(r *ledger.Op) { r.Clear = record.Frozen },
		"low amount":       func(r *ledger.Op) { r.Amount = engines.AmountOf(1, 3) },
		"high amount":      func(r *ledger.Op) { r.Amount = engines.AmountOf(2, 2) },
		"nonce":            func(r *ledger.Op) { r.Nonce++ },
		"hold":             func(r *ledger.Op) { r.Hold[15] ^= 1 },
		"expires_in":       func(r *ledger.Op) { r.ExpiresIn++ },
		"valid_until":      func(r *ledger.Op) { r.ValidUntil++ },
		"no valid_until":   func(r *ledger.Op) { r.ValidUntil = 0 },
		"from":             func(r *ledger.Op) { r.From = "alicf" },
		"to":               func(r *ledger.Op) { r.To = "bob:shoq" },
		"asset":            func(r *ledger.Op) { r.Asset = "roo" },
		"memo":             func(r *ledger.Op) { r.Memo = "for tee" },
		"from and to":      func(r *ledger.Op) { r.From, r.To = "aliceb", "ob:shop" },
		"to and asset":     func(r *ledger.Op) { r.To, r.Asset = "bob:shopr", "on" },
		"asset and memo":   func(r *ledger.Op) { r.Asset, r.Memo = "ro", "nfor tea" },
		"from for to":      func(r *ledger.Op) { r.From, r.To = r.To, r.From },
		"no from":          func(r *ledger.Op) { r.From, r.To = "", "alicebob:shop" },
		"set for clear":    func(r *ledger.Op) { r.Set, r.Clear = r.Clear, r.Set },
		"a long memo":      func(r *ledger.Op) { r.Memo = strings.Repeat("m", 256) },
		"a memo of 0 and ": func(r *ledger.Op) { r.Memo = "for tea\x00" },
	} {
		r := asked()
		change(&r)
		other := ledger.Op{Code: record.OpBurn}
		for in, sum := range map[string]string{
			"alone": f.single(&r, false).String(), "first of a batch": f.batch(false, []ledger.Op{r, other}).String(),
			"last of a batch": f.batch(false, []ledger.Op{other, r}).String(), "of an atomic batch": f.batch(true, []ledger.Op{r, other}).String(),
		} {
			if was, ok := seen[sum]; ok {
				t.Errorf("%s, %s: the same as %s", name, in, was)
			}
			seen[sum] = name + ", " + in
		}
	}
	if r := asked(); f.single(&r, false) == f.single(&r, true) {
		t.Error("that flags may open an account is not in it")
	}
}
