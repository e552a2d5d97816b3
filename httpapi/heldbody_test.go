package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// bodyWatcher is a wallet that looks whether the call still holds its body.
type bodyWatcher struct {
	*fakeWallet
	c    *call
	held int // bytes
}

func (w *bodyWatcher) Post(ctx context.Context, by engines.Actor, key, corrID string, r wallet.Request) (wallet.Answer, error) {
	w.held = len(w.c.body)
	return w.fakeWallet.Post(ctx, by, key, corrID, r)
}

func (w *bodyWatcher) Batch(
	ctx context.Context, by engines.Actor, key, corrID string, atomic bool, ops []wallet.Request,
) (wallet.Answer, error) {
	w.held = len(w.c.body)
	return w.fakeWallet.Batch(ctx, by, key, corrID, atomic, ops)
}

// While a request waits for the ledger it holds what it asks for, not the body that said so: that may be 10 MiB of spaces, and a
// thousand may wait.
func TestBodiesAreNotHeld(t *testing.T) {
	rig := newRig(t)
	for path, body := range map[string]string{
		"transfer": someTransfer, "batch": `{"mode":"atomic","ops":[{"op":"release","hold":"` + txid + `"}]}`,
		"accounts/flags": `{"account":"a","set":["frozen"]}`,
	} {
		req := httptest.NewRequest(http.MethodPost, "/v1/"+path, nil)
		keyed(req)
		w := &bodyWatcher{fakeWallet: rig.wal, c: &call{w: httptest.NewRecorder(), r: req, base: t.Context(), body: []byte(body)}}
		h := map[string]handler{"transfer": postOrder(w, record.OpTransfer), "batch": postBatch(w), "accounts/flags": postFlags(w)}[path]
		w.held = -1
		if err := h(w.c); err != nil || w.held != 0 {
			t.Errorf("%s: %v, %d bytes held", path, err, w.held)
		}
	}
}
