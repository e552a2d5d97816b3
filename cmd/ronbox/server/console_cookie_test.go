package server

import (
	"net/http"
	"testing"
	"time"

	"ronbox/httpapi/console"
)

// A browser can hold one cookie from TLS and one from plain HTTP. Each is read only on its own
// scheme, and the cookie from TLS is sent over TLS only.
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

// A page that refreshes itself leaves the idle time of its session alone. The page that a person
// asks for resets it.
func TestConsoleRefreshIsNoUse(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b := newBrowser(t, r)
	b.enter(r, false)
	seen := func() time.Time {
		t.Helper()
		list, err := r.socket().Sessions(t.Context())
		must(t, err)
		if len(list.Sessions) != 1 {
			t.Fatalf("sessions: %+v", list.Sessions)
		}
		return list.Sessions[0].SeenAt.Time
	}
	at := seen()
	if b.wants(http.StatusOK, "GET", "/console/", "", "X-Console-Live: 1"); !seen().Equal(at) {
		t.Error("a refresh keeps a session alive")
	}
	if b.wants(http.StatusOK, "GET", "/console/", ""); seen().Equal(at) {
		t.Error("a request does not keep a session alive")
	}
	r.halt()
}
