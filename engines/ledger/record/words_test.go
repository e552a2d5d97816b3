package record

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The stored numbers of ops and results, and their names, do not change.
func TestNumbersAreFrozen(t *testing.T) {
	for i, name := range []string{1: "open", "asset", "flags", "once", "issue", "transfer", "burn", "hold", "capture", "release", "expire", "batch",
		"scale"} {
		if o, err := ParseOp(name); i > 0 && (err != nil || int(o) != i || o.String() != name) {
			t.Errorf("%s is %d, %v, want %d", name, o, err, i)
		}
	}
	for i, name := range []string{
		"accepted", "replayed", "idem_conflict", "expired", "account_locked", "asset_unknown", "nonce_reused", "nonce_gap", "limit_op", "limit_daily",
		"limit_total", "limit_holds", "hold_unknown", "hold_closed", "hold_expired", "insufficient_funds", "aborted", "once_conflict",
		"reference_conflict", "decimals_set", "period_closed",
	} {
		if r := Result(i); r.String() != name || !r.Known() || r.Refused() != (i > 1) {
			t.Errorf("result %d is %s, want %s", i, r, name)
		}
	}
	for n, words := range map[uint8][2]fmt.Stringer{
		1: {OpOpen, Replayed}, 2: {OpAsset, IdemConflict}, 3: {OpFlags, Expired}, 4: {OpOnce, AccountLocked}, 5: {OpIssue, AssetUnknown},
		6: {OpTransfer, NonceReused}, 7: {OpBurn, NonceGap}, 8: {OpHold, LimitOp}, 9: {OpCapture, LimitDaily}, 10: {OpRelease, LimitTotal},
		11: {OpExpire, LimitHolds}, 12: {OpBatch, HoldUnknown}, 13: {OpScale, HoldClosed}, 14: {OpClose, HoldExpired}, 15: {Op(15), InsufficientFunds},
		16: {Op(16), Aborted}, 17: {Op(17), OnceConflict}, 18: {Op(18), ReferenceConflict}, 19: {Op(19), DecimalsSet}, 20: {Op(20), PeriodClosed},
	} {
		if words[0] != Op(n) || words[1] != Result(n) {
			t.Errorf("the number of %s or of %s is not %d", words[0], words[1], n)
		}
	}
	for i, name := range []string{"frozen", "no_debit", "no_credit", "closed"} {
		if f, err := ParseFlags(name); err != nil || f != 1<<i || f.String() != name {
			t.Errorf("%s is %d, %v, want %d", name, f, err, 1<<i)
		}
	}
	if Op(0).known() || Op(15).known() || Result(21).Known() {
		t.Error("a number beyond the last is known")
	}
}

func TestWordsAreStrict(t *testing.T) {
	for _, s := range []string{"", "Issue", "issue ", "op 1"} {
		if o, err := ParseOp(s); err == nil {
			t.Errorf("op %q is %s", s, o)
		}
		if f, err := ParseFlags(s); err == nil {
			t.Errorf("flag %q is %s", s, f)
		}
	}
	if f, err := ParseFlags(
		"closed",
		"frozen",
	); err != nil || f != Frozen|Closed || f.String() != "frozen,closed" || !f.Has(Closed|NoDebit) ||
		f.Has(NoDebit) {
		t.Errorf("%s, %v", f, err)
	}
	if s := Op(99).String() + Result(99).String(); s != "op 99result 99" {
		t.Error(s)
	}
}

// The text and bytes of a TxID convert to each other, and both sort by time and seq.
func TestTxID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at, seq, rnd := drawTime(t, "at"), drawUint(t, "seq"), rapid.Uint16().Draw(t, "rnd")
		id := NewTxID(at, seq, rnd)
		text, err := id.MarshalText()
		var back TxID
		if err != nil || string(text) != id.String() || back.UnmarshalText(text) != nil || back != id {
			t.Fatalf("%x came back as %x from %s", id, back, text)
		}
		if id.Seq() != seq || id.millis() != at/int64(time.Millisecond) {
			t.Fatalf("%s is of seq %d at %d ms, want %d at %d ns", id, id.Seq(), id.millis(), seq, at)
		}
		if seq < 1<<64-1 {
			if later := NewTxID(at, seq+1, 0); later.String() <= id.String() {
				t.Fatalf("%s is not after %s", later, id)
			}
		}
	})
	good := NewTxID(1_700_000_000_000_000_000, 77, 9).String()
	for _, bad := range []string{
		"", "tx_", good[3:], strings.ToLower(good), good + "0", good[:len(good)-1], "tx-" + good[3:], "tx_8" + good[4:], good[:10] + "U" + good[11:],
		good[:10] + "I" + good[11:], "TX_" + good[3:], " " + good[1:],
	} {
		if id, err := ParseTxID(bad); !errors.Is(err, ErrTxID) {
			t.Errorf("%q is %s, %v", bad, id, err)
		}
	}
}

func TestIdemAndMemo(t *testing.T) {
	for s, want := range map[string]bool{
		"a": true, "A-z.0_9:": true, strings.Repeat("k", 64): true, "": false, strings.Repeat("k", 65): false, "a b": false, "a/b": false, "é": false, ";": false,
	} {
		if err := CheckIdem(s); (err == nil) != want || !want && !errors.Is(err, ErrIdem) {
			t.Errorf("%q: %v", s, err)
		}
	}
	for s, want := range map[string]bool{
		"": true, "rent, May \"9\"\n": true, strings.Repeat("é", 64): true, strings.Repeat("m", 128): true, strings.Repeat("m", 129): false, "\xff": false,
	} {
		if err := CheckMemo(s); (err == nil) != want || !want && !errors.Is(err, ErrMemo) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
