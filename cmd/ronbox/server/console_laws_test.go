package server

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"ronbox/httpapi/console"
	nodeapi "ronbox/httpapi/wire/node"
	walletapi "ronbox/httpapi/wire/wallet"
)

// perRequest matches the request ids in an answer.
var perRequest = regexp.MustCompile(`[0-9A-HJKMNP-TV-Z]{26}`)

// told returns a whole answer without its request ids.
func (b *browser) told(method, path, body string, headers ...string) string {
	b.t.Helper()
	answer, text := b.do(method, path, body, headers...)
	answer.Header.Del("Date")
	var head strings.Builder
	if err := answer.Header.Write(&head); err != nil {
		b.t.Fatal(err)
	}
	return perRequest.ReplaceAllString(answer.Status+"\n"+head.String()+"\n"+text, "ID")
}

// To a caller that is not admitted every path of the console is like one that does not exist, with every
// method, and however often it asks.
func TestConsoleIsLikeNothingToOthers(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b := newBrowser(t, r)
	paths := []string{"/console/enter", "/console/leave", "/console/wallet/pay", "/console/operations/end",
		"/console/operations/snapshot", "/console/operations/reload", "/console/operations/level",
		"/console/operations/revoke", "/console/static/x/console.css"}
	for _, host := range []string{"Host: evil.example", "Forwarded: for=10.0.0.1"} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
			want := b.told(method, "/nothing/at/all", "", host)
			if !strings.HasPrefix(want, "404") {
				t.Fatalf("%s: %s", method, want)
			}
			for _, path := range append(paths, consolePages...) {
				if got := b.told(method, path, "", host); got != want {
					t.Errorf("%s %s, %s:\n%s\nwhat is not there:\n%s", method, path, host, got, want)
				}
			}
		}
	}
	const writes = 20      // a second, of the service
	for range 2 * writes { // more than the rate of a network
		if got := b.told("POST", "/console/enter", "code=x", "Host: evil.example"); !strings.HasPrefix(got, "404") {
			t.Fatalf("asked often: %s", got)
		}
	}
	r.halt()
}

// A session has an id of its own, whatever cookie the browser had, and ends the one that it replaces.
func TestConsoleTakesNoCookieOfOthers(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b := newBrowser(t, r)
	name := "ronbox_console_" + r.Version().NodeID
	planted := "Cookie: " + name + "=planted-by-another"
	enter := func(headers ...string) *http.Cookie {
		t.Helper()
		link, err := console.NewLink(t.Context(), r.socket().Client, console.Link{})
		must(t, err)
		b.http.Jar = nil
		answer, _ := b.do("POST", "/console/enter", "code="+link.Code, headers...)
		for _, k := range answer.Cookies() {
			if k.Name == name && k.Value != "" {
				return k
			}
		}
		t.Fatalf("%d, cookies %v", answer.StatusCode, answer.Cookies())
		return nil
	}
	first := enter(planted)
	if first.Value == "planted-by-another" {
		t.Error("the session has the id that was planted")
	}
	b.wants(http.StatusSeeOther, "GET", "/console/wallet", "", planted)
	old := "Cookie: " + name + "=" + first.Value
	b.wants(http.StatusOK, "GET", "/console/wallet", "", old)
	second := enter(old)
	if second.Value == first.Value {
		t.Error("a session keeps its id when somebody enters")
	}
	b.wants(http.StatusSeeOther, "GET", "/console/wallet", "", old)
	r.halt()
}

// Two nodes on one host have a session each in one browser, and neither takes that of the other.
func TestConsolesOfOneHost(t *testing.T) {
	t.Parallel()
	here, _ := freshDev(t)
	there, _ := freshDev(t)
	one, two := start(t, here), start(t, there)
	b := newBrowser(t, one)
	b.enter(one, false)
	b.base = "http://" + two.Addr()
	b.wants(http.StatusSeeOther, "GET", "/console/wallet", "")
	b.enter(two, false)
	b.wants(http.StatusOK, "GET", "/console/wallet", "")
	b.base = "http://" + one.Addr()
	b.wants(http.StatusOK, "GET", "/console/wallet", "")
	for _, k := range b.http.Jar.Cookies(&url.URL{Scheme: "http", Host: one.Addr(), Path: "/console/"}) {
		if strings.HasSuffix(k.Name, one.Version().NodeID) {
			b.http.Jar = nil
			b.base = "http://" + two.Addr()
			name := "ronbox_console_" + two.Version().NodeID
			b.wants(http.StatusSeeOther, "GET", "/console/wallet", "", "Cookie: "+name+"="+k.Value)
		}
	}
	one.halt()
	two.halt()
}

// A page shows what the caveats of its token admit, for the address of the browser.
func TestConsoleKeepsCaveats(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	const supply = "1\u202f000\u202f000 ron in circulation"
	for caveat, shown := range map[string]bool{
		"ip = 127.0.0.0/8":        true,
		"ip = 10.0.0.0/8":         false,
		"path = /v1/assets":       true,
		"path = /v1/ledger/roots": false,
		"method = POST":           false,
	} {
		token, err := r.socket().Mint(t.Context(), nodeapi.MintRequest{
			Sub: "viewer", Scopes: []string{"wallet.read"}, Caveats: []string{caveat},
		})
		must(t, err)
		b := newBrowser(t, r)
		b.wants(http.StatusSeeOther, "POST", "/console/enter", "changes=1&token="+token.Token)
		text := b.wants(http.StatusOK, "GET", "/console/wallet", "")
		if strings.Contains(text, ">1\u202f000\u202f000<") != shown {
			t.Errorf("%s: the assets are shown: %v, want %v", caveat, !shown, shown)
		}
		overview := b.wants(http.StatusOK, "GET", "/console/", "")
		if strings.Contains(overview, supply) && !shown {
			t.Errorf("%s: the overview shows the assets", caveat)
		}
		form := "form=" + b.form() + "&from=alice&to=bob&asset=ron&amount=1&reference=r"
		b.wants(http.StatusForbidden, "POST", "/console/wallet/pay", form)
	}
	r.halt()
}

// Text from outside stays text, whatever it holds and however long it is.
func TestConsoleEscapesWhatIsStored(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	for i, memo := range []string{
		`</td><script>alert(1)</script>`, `"onmouseover="alert(1)`, "\u202egnp.exe\u2066", `{{.Form}}`, "<!--", "&lt;b&gt;",
	} {
		_, err := r.socket().Transfer(t.Context(), "memo"+string(rune('a'+i)), walletapi.Transfer{
			From: "alice", To: "bob", Asset: "ron", AmountMinor: "1", Memo: memo,
		})
		must(t, err)
	}
	b := newBrowser(t, r)
	b.enter(r, false)
	text := b.wants(http.StatusOK, "GET", "/console/wallet?account=bob", "")
	for _, want := range []string{
		"&lt;/td&gt;&lt;script&gt;alert(1)", "&#34;onmouseover=&#34;", `\u202egnp.exe\u2066`, "{{.Form}}", "&lt;!--",
		"&amp;lt;b&amp;gt;",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the history does not have %q", want)
		}
	}
	long := strings.Repeat("<i>", 64<<10/3)
	for _, path := range []string{"/console/wallet?account=", "/console/index?key=", "/console/registry?item="} {
		answer, text := b.do("GET", path+url.QueryEscape(long), "")
		if strings.Contains(text, "<i>") || answer.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%s of 64 KiB: %d", path, answer.StatusCode)
		}
		if text := b.wants(http.StatusOK, "GET", path+url.QueryEscape(long[:3000]), ""); strings.Contains(text, "<i>") {
			t.Errorf("%s of 3 KiB: markup from outside", path)
		}
	}
	r.halt()
}
