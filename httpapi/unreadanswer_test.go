package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/wallet"
)

// bigWallet gives receipts of more bytes than any socket holds.
type bigWallet struct{ *fakeWallet }

func (bigWallet) Post(context.Context, engines.Actor, string, string, wallet.Request) (wallet.Answer, error) {
	return wallet.Answer{Body: bytes.Repeat([]byte(" "), 64<<20), Status: http.StatusOK}, nil
}

// An answer that its client does not read is given up in time and counted once, as the service's whose it was, whatever was asked
// before on the same connection.
func TestUnreadAnswersAreTheServices(t *testing.T) {
	for _, tt := range []struct{ doc, method, path, body string }{
		{"one piece", "POST", "/v1/transfer", someTransfer}, {"a stream", "GET", "/v1/ledger/export", ""},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			t.Parallel()
			overBoth(t, func(c *Settings, d *Deps) {
				c.WalletTimeout, c.Server.WriteTimeout = 500*time.Millisecond, unit.Duration(50*time.Millisecond)
				w := d.Wallet.(*fakeWallet)
				w.seq = 100_000 // 70 MB of them
				d.Wallet = bigWallet{w}
			}, func(t *testing.T, r *rig) {
				c := r.open(t)
				for _, path := range []string{"/healthz", "/registry/head"} {
					fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
					if got := readStatus(t, c); got != http.StatusOK {
						t.Fatalf("%s: %d", path, got)
					}
				}
				fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n%s: %s\r\n", tt.method, tt.path, idemHeader, someKey)
				if tt.body != "" {
					fmt.Fprintf(c, "Content-Type: %s\r\nContent-Length: %d\r\n", typeJSON, len(tt.body))
				}
				fmt.Fprintf(c, "\r\n%s", tt.body)
				late := func(pairs ...string) float64 { return sum(t, r.metrics, "io_timeouts_total", pairs...) }
				waitFor(t, "write that is given up", func() bool { return late() > 0 })
				_, _ = io.Copy(io.Discard, c) // until the connection is closed
				if n := late("op", "write", "service", "wallet"); n != 1 || late() != 1 {
					t.Errorf("%v of the wallet's answers were not written in time, want 1; %v in all", n, late())
				}
			})
		})
	}
}
