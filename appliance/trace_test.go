package appliance

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// With a collector configured a write is traced, and a stop sends what is left and leaves nothing running.
func TestSpansReachTheCollector(t *testing.T) {
	var got atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/traces" && r.ContentLength != 0 {
			got.Add(1)
		}
	}))
	defer collector.Close()
	cfg, _ := devConfig(t)
	cfg.OTel.Exporter, cfg.OTel.Endpoint = "otlp", collector.URL
	r := start(t, cfg)
	r.mustPut(r.socket(), signer(t, cfg), 2, "traced")
	r.halt()
	if got.Load() == 0 {
		t.Errorf("no span arrived\n%s", r.log)
	}
}
