package wallet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/cmd/ronbox/cli"
	walletapi "ronbox/httpapi/wire/wallet"
)

// forgetful does not answer before it has been asked twice.
type forgetful struct {
	lister
	asked int
}

func (f *forgetful) Assets(context.Context) (walletapi.AssetList, error) {
	if f.asked++; f.asked < 3 {
		return walletapi.AssetList{}, errors.New("not now")
	}
	return walletapi.AssetList{Assets: []walletapi.Asset{{Asset: "ron", Decimals: 2}}}, nil
}

// Decimals that cannot be read are asked for again after a while, and not for each event.
func TestEventsAskForDecimalsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &forgetful{}
		p := eventPrinter{app: app{App: &cli.App{}}, c: node}
		for _, want := range []int{1, 2, 3, 3} {
			for range 100 {
				p.learn(t.Context(), "ron")
			}
			if node.asked != want {
				t.Errorf("asked %d times, want %d", node.asked, want)
			}
			time.Sleep(askAgain)
		}
		if got := p.d.show("1200", "ron"); got != "12.00 ron" {
			t.Errorf("shown as %q", got)
		}
	})
}
