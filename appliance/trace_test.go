package appliance

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// With a collector configured a write is traced, and a stop sends what is left and leaves nothing running.
func TestSpansReachTheCollector(t *testing.T) {
	var mu sync.Mutex
	var got []byte
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		mu.Lock()
		defer mu.Unlock()
		got = append(got, body...)
	}))
	defer collector.Close()
	cfg, _ := devConfig(t)
	cfg.OTel.Exporter, cfg.OTel.Endpoint = "otlp", collector.URL
	r := start(t, cfg)
	r.mustPut(r.socket(), signer(t, cfg), 2, "traced")
	r.halt()
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"http.request", "store.commit", "service.version\x12\x06\n\x04test"} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("no %q arrived in %d bytes\n%s", want, len(got), r.log)
		}
	}
}
