package server

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines"
	indexapi "ronbox/httpapi/wire/index"
)

// peerWithToken is a server of the standard with a certificate of its own that requires a token.
func peerWithToken(t *testing.T) (s *httptest.Server, ca string, want *atomic.Pointer[string]) {
	t.Helper()
	want = &atomic.Pointer[string]{}
	s = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+*want.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprint(
			w,
			`{"Providers":[{"Schema":"peer","ID":"12D3KooWM8sovaEGU1bmiWGWAzvs47DEcXKZZTuJnpQyVTkRs2Vn","Addrs":["/ip4/192.0.2.1/tcp/1"]}]}`,
		)
	}))
	t.Cleanup(s.Close)
	return s, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})), want
}

// The files of index.ca_file and index.peer_tokens are read at the start and by each reload. An
// unusable file refuses the reload, and the old files stay in force. No token is shown or logged.
func TestFilesOfPeers(t *testing.T) {
	s, ca, want := peerWithToken(t)
	cfg, _ := devConfig(t)
	write := func(name, text string) string {
		must(t, os.WriteFile(cfg.Path(name), []byte(text), 0o600))
		return cfg.Path(name)
	}
	const first, second = "token-number-one", "token-number-two"
	want.Store(new(string))
	*want.Load() = first
	cfg.Index.Peers, cfg.Index.CAFile = []string{s.URL}, write("ca.pem", ca)
	cfg.Index.PeerTokens = map[string]string{strings.TrimPrefix(s.URL, "https://"): write("peer.token", first)}
	r := launchWith(t, cfg,
		Options{Load: func() (*config.Config, []config.Entry, error) { return cfg, nil, nil }}).begin()
	n := 0
	ask := func(ok bool) {
		t.Helper()
		n++
		got, err := indexapi.NewClient(r.socket().Client).
			Providers(t.Context(), indexapi.ProvidersQuery{CID: b3.Sum([]byte{byte(n)}).String()})
		if ok != (err == nil && got.Source == "peer") {
			t.Errorf("lookup %d: %+v, %v", n, got, err)
		}
	}
	reload := func(ok bool) {
		t.Helper()
		if _, err := r.Reload(t.Context(), engines.Actor{}, ""); ok != (err == nil) ||
			err != nil && !strings.Contains(err.Error(), "index.peer_tokens") {
			t.Errorf("reload: %v", err)
		}
	}
	ask(true)
	next := second
	want.Store(&next)
	ask(false)
	write("peer.token", second)
	ask(false)
	reload(true)
	ask(true)
	write("peer.token", "")
	reload(false)
	ask(true)
	if log := r.log.String(); strings.Contains(log, first) || strings.Contains(log, second) {
		t.Error("a token is in the log")
	}
	for _, e := range config.Diff(config.Default(), cfg) {
		if e.Key == "index.peer_tokens" && strings.Contains(e.To, second) {
			t.Errorf("shown: %+v", e)
		}
	}
	r.halt()
	again := launch(t, cfg) // over the empty file
	if code := again.end(); code != process.ExitConfig {
		t.Errorf("exit %d, want %d", code, process.ExitConfig)
	}
}
