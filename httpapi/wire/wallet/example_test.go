package wallet_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	"ronbox/httpapi/wire/wallet"
)

// A payment is sent again under its key until its outcome is known. The node executes it once.
func Example() {
	node := httptest.NewServer(forgetful())
	defer node.Close()
	c, err := client.New(client.Options{URL: node.URL, Token: "MDAxY2xvY2F0aW9u"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	ctx, money := context.Background(), wallet.NewClient(c)
	order := wallet.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "1200"}
	paid, err := money.Transfer(ctx, "order-7", order)
	for tries := 1; client.Retryable(err) && tries < 5; tries++ {
		fmt.Println(err)
		paid, err = money.Transfer(ctx, "order-7", order)
	}
	if err != nil {
		fmt.Println(err) // a refusal: nothing was done
		return
	}
	fmt.Println(paid.Receipt.TxID, "replayed", paid.Replayed)
	// Output:
	// Outcome unknown (503 commit_unsure)
	// tx_01JTC0000000000000000000AA replayed true
}

// forgetful stands in for a node that loses the outcome of the first request.
func forgetful() http.HandlerFunc {
	lost := false
	return func(w http.ResponseWriter, r *http.Request) {
		if !lost {
			lost = true
			w.Header().Set("Content-Type", wire.ProblemType)
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"title":"Outcome unknown","reason":"commit_unsure","details":{"outcome":"unknown"}}`)
			return
		}
		w.Header().Set(client.ReplayHeader, "true")
		fmt.Fprintf(w, `{"txid":"tx_01JTC0000000000000000000AA","op":"transfer","idem":%q}`,
			r.Header.Get(wallet.IdemHeader))
	}
}
