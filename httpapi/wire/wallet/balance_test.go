package wallet_test

import (
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// The hand-written encoding of a balance equals that of encoding/json.
func TestBalanceIsWrittenAsTheEncoderDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string { return rapid.StringMatching(`[\x00-\x7fäß"\\<>&]{0,12}`).Draw(t, name) }
		b := walletapi.Balance{
			Account:     text("account"),
			Asset:       text("asset"),
			Known:       rapid.Bool().Draw(t, "known"),
			AmountMinor: text("amount"),
			PostedMinor: text("posted"),
			HeldMinor:   text("held"),
			IssuedMinor: text("issued"),
			AsOf:        wire.Instant{Time: time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "at")).UTC()},
			AsOfSeq:     rapid.Uint64().Draw(t, "seq"),
			StaleMS:     rapid.Int64().Draw(t, "stale"),
		}
		want, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(b.AppendJSON(nil)); got != string(want) {
			t.Fatalf("%s\nwant %s", got, want)
		}
	})
}
