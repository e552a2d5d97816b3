package wallet

import (
	"strings"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// asked is a request that has every member.
func asked() Request {
	return Request{
		Op: record.OpHold, From: "alice", To: "bob:shop", Asset: "ron", Amount: engines.AmountOf(1, 2), Nonce: 3, Memo: "for tea",
		Hold: record.NewTxID(1_000_000, 4, 5), ExpiresIn: 6 * time.Second, ValidUntil: time.Unix(7, 8), Set: record.Frozen, Clear: record.NoDebit,
	}
}

// The fingerprints of records are in files of users: the same request has the same one for ever, or its retry would be taken for another.
func TestFingerprintsAreFrozen(t *testing.T) {
	f, one, none := newFingerprints(), asked(), Request{}
	for name, tt := range map[string]struct{ got, want string }{
		"a request":       {f.single(&one).String(), "b3:4358fea45ace6583fe58e1e12d199c8629f7b7bfbc7f3f8c234e176921a65d98"},
		"an empty one":    {f.single(&none).String(), "b3:fea2b67ce88d490bd249633e4e9d69ea657098699e3e78b48e2d4dbd5872f4a8"},
		"a batch":         {f.batch(false, []Request{one, none}).String(), "b3:efdb7ab9dc2ecdc4017299708258cd9262bee5e3aa5d2bc9b4978a8d739e8c83"},
		"an atomic batch": {f.batch(true, []Request{one, none}).String(), "b3:bbf64b68efdfa182eb15efc0c34bf2bd537193fa28cb1924207b8f4b686f3b7f"},
		"a batch of one":  {f.batch(false, []Request{one}).String(), "b3:b2175734e642df52aa94b7f415efb5f134233075c5a8b06f9d3b6f2a4ef2552a"},
		"a batch of none": {f.batch(false, nil).String(), "b3:0f7d450de405e274a75f81e824c1a12cbb7e8ef8299effdad4ec30ba684497d3"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %s, want %s", name, tt.got, tt.want)
		}
	}
}

// Whatever one member is changed, alone or in a batch, it is another request; where one text ends and the next begins counts too.
func TestEachMemberIsInTheFingerprint(t *testing.T) {
	f := newFingerprints()
	seen := map[string]string{}
	for name, change := range map[string]func(*Request){
		"nothing":          func(*Request) {},
		"op":               func(r *Request) { r.Op = record.OpTransfer },
		"set":              func(r *Request) { r.Set = record.NoDebit },
		"new":              func(r *Request) { r.New = true },
		"clear":            func(r *Request) { r.Clear = record.Frozen },
		"low amount":       func(r *Request) { r.Amount = engines.AmountOf(1, 3) },
		"high amount":      func(r *Request) { r.Amount = engines.AmountOf(2, 2) },
		"nonce":            func(r *Request) { r.Nonce++ },
		"hold":             func(r *Request) { r.Hold[15] ^= 1 },
		"expires_in":       func(r *Request) { r.ExpiresIn++ },
		"valid_until":      func(r *Request) { r.ValidUntil = r.ValidUntil.Add(1) },
		"no valid_until":   func(r *Request) { r.ValidUntil = time.Time{} },
		"from":             func(r *Request) { r.From = "alicf" },
		"to":               func(r *Request) { r.To = "bob:shoq" },
		"asset":            func(r *Request) { r.Asset = "roo" },
		"memo":             func(r *Request) { r.Memo = "for tee" },
		"from and to":      func(r *Request) { r.From, r.To = "aliceb", "ob:shop" },
		"to and asset":     func(r *Request) { r.To, r.Asset = "bob:shopr", "on" },
		"asset and memo":   func(r *Request) { r.Asset, r.Memo = "ro", "nfor tea" },
		"from for to":      func(r *Request) { r.From, r.To = r.To, r.From },
		"no from":          func(r *Request) { r.From, r.To = "", "alicebob:shop" },
		"set for clear":    func(r *Request) { r.Set, r.Clear = r.Clear, r.Set },
		"a long memo":      func(r *Request) { r.Memo = strings.Repeat("m", 256) },
		"a memo of 0 and ": func(r *Request) { r.Memo = "for tea\x00" },
	} {
		r := asked()
		change(&r)
		other := Request{Op: record.OpBurn}
		for in, sum := range map[string]string{
			"alone": f.single(&r).String(), "first of a batch": f.batch(false, []Request{r, other}).String(),
			"last of a batch": f.batch(false, []Request{other, r}).String(), "of an atomic batch": f.batch(true, []Request{r, other}).String(),
		} {
			if was, ok := seen[sum]; ok {
				t.Errorf("%s, %s: the same as %s", name, in, was)
			}
			seen[sum] = name + ", " + in
		}
	}
}
