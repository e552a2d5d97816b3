package index

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
)

// A peer with a private CA and a required token is asked with both. A later ReadAccess reads the
// files again. No error contains a token.
func TestPeerWithPrivateCAAndToken(t *testing.T) {
	const first, second = "token-one", "token-two"
	want := first
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+want {
			answer(http.StatusUnauthorized, `{}`)(w, r)
			return
		}
		answer(
			http.StatusOK,
			fmt.Sprintf(`{"Providers":[{"Schema":"peer","ID":%q,"Addrs":[%q]}]}`, somePeer, someAddr),
		)(w, r)
	}))
	s.Config.ErrorLog = nil
	m := obs.NewMetrics()
	p, err := NewPeer(flow.NewCatalog(m, nil), m, s.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(); s.CloseClientConnections(); s.Close() })
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	c := index.DefaultConfig()
	c.Peers = []string{s.URL}
	ask := func(wanted error) {
		t.Helper()
		access, err := ReadAccess(c)
		if err != nil {
			t.Fatal(err)
		}
		p.SetAccess(access[p.Target()])
		got, err := p.Providers(t.Context(), someCID, 1)
		if !errors.Is(err, wanted) || wanted == nil && len(got) != 1 ||
			err != nil && strings.Contains(err.Error(), "token-") {
			t.Errorf("%+v, %v", got, err)
		}
	}
	ask(name.ErrTransient) // unknown CA
	c.CAFile = write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	ask(name.ErrInvalid) // 401
	c.PeerTokens = map[string]string{p.Target(): write("token", first+"\n")}
	ask(nil)
	write("token", second)
	ask(name.ErrInvalid)
	want = second
	ask(nil)
	before := p.access.Load()
	if ask(nil); p.access.Load() != before {
		t.Error("the connections are not kept although nothing has changed")
	}
	for text, is := range map[string]string{
		"": "must hold one token", "two tokens": "must hold one token", "a\nb": "must hold one token", strings.Repeat("x", maxTokenFile+1): "is longer",
	} {
		write("token", text)
		if _, err := ReadAccess(c); err == nil || !strings.Contains(err.Error(), is) ||
			!strings.Contains(err.Error(), "index.peer_tokens") ||
			len(text) > 1 && strings.Contains(err.Error(), text) {
			t.Errorf("%.20q: %.200v", text, err)
		}
	}
	write("token", second)
	for _, file := range []string{write("none.pem", "no certificate"), filepath.Join(dir, "absent")} {
		c.CAFile = file
		if _, err := ReadAccess(c); err == nil || !strings.Contains(err.Error(), "index.ca_file") {
			t.Errorf("%s: %v", file, err)
		}
	}
}
