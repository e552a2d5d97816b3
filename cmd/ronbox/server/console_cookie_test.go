package server

import (
	"net/http"
	"testing"

	"ronbox/httpapi/console"
)

// A browser that reached the node over TLS once keeps a cookie that hides none of a session without
// TLS, and the other way round. A cookie of a session over TLS is sent over TLS only.
func TestConsoleCookieOfTheScheme(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Server.Trusted = []string{"127.0.0.0/8"}
	r := start(t, cfg)
	b := newBrowser(t, r)
	b.http.Jar = nil
	plain := "ronbox_console_" + r.Version().NodeID
	for _, scheme := range []string{"http", "https"} {
		proto := "X-Forwarded-Proto: " + scheme
		name, other := plain, "__Secure-"+plain
		if scheme == "https" {
			name, other = other, name
		}
		link, err := console.NewLink(t.Context(), r.socket().Client, console.Link{})
		must(t, err)
		answer, text := b.do("POST", "/console/enter", "code="+link.Code, proto, "Cookie: "+other+"=stale")
		cookies := answer.Cookies()
		if answer.StatusCode != http.StatusSeeOther || len(cookies) != 1 {
			t.Fatalf("%s: %d, cookies %v: %.300s", scheme, answer.StatusCode, cookies, text)
		}
		if k := cookies[0]; k.Name != name || k.Secure != (scheme == "https") {
			t.Errorf("%s: cookie %v", scheme, k)
		}
		live := name + "=" + cookies[0].Value
		b.wants(http.StatusOK, "GET", "/console/wallet", "", proto, "Cookie: "+other+"=stale; "+live)
		b.wants(http.StatusOK, "GET", "/console/wallet", "", proto, "Cookie: "+live+"; "+other+"=stale")
		b.wants(http.StatusSeeOther, "GET", "/console/wallet", "", proto, "Cookie: "+other+"="+cookies[0].Value)
	}
	r.halt()
}
