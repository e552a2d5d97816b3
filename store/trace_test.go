package store

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/obs"
)

// A commit has a span of its own, tied to the one of each request that waits for it.
func TestCommitIsTraced(t *testing.T) {
	var mu sync.Mutex
	var sent bytes.Buffer
	arrived := make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&sent, r.Body)
		select {
		case arrived <- struct{}{}:
		default:
		}
	}))
	defer srv.Close()
	tracer, err := obs.NewTracer(
		obs.OTelConfig{Exporter: "otlp", Endpoint: srv.URL, SampleReads: 1, SampleWrites: 1},
		obs.TracerID{},
	)
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(newFile(t), testConfig())
	s.opt.Tracer = tracer
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	r := (&rig{Store: s, t: t}).start()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	req.Header.Set("traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	ctx, span := tracer.StartRequest(t.Context(), req, "test")
	if _, err := Commit(ctx, s, Work, put{Key: "k"}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	has := func(part []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		return bytes.Contains(sent.Bytes(), part)
	}
	for late := time.After(time.Minute); !has([]byte("store.commit")); { // a close has a second, too little for a busy machine
		select {
		case <-arrived:
		case <-late:
			t.Fatal("no span of the commit arrives")
		}
	}
	// The span of the request never ends, so the output contains its trace only as the link of the
	// commit.
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	span.End()
	id, err := hex.DecodeString(trace)
	if err != nil || !has(id) {
		t.Errorf("the commit was sent without its link, %v", err)
	}
}
