package server

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/console"
	nodeapi "ronbox/httpapi/wire/node"
	walletapi "ronbox/httpapi/wire/wallet"
)

// browser is a client that keeps cookies and follows nothing.
type browser struct {
	t    *testing.T
	base string
	http *http.Client
}

func newBrowser(t *testing.T, r *rig) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	b := &browser{t, "http://" + r.Addr(), &http.Client{
		Jar:           jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{},
	}}
	t.Cleanup(b.http.CloseIdleConnections)
	return b
}

// do sends a request with headers "Name: value", and returns the answer with its body.
func (b *browser) do(method, path, body string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequest(method, b.base+path, strings.NewReader(body))
	must(b.t, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	answer, err := b.http.Do(r)
	must(b.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(b.t, err)
	return answer, string(text)
}

// wants checks the status of an answer, and returns its body.
func (b *browser) wants(status int, method, path, body string, headers ...string) string {
	b.t.Helper()
	answer, text := b.do(method, path, body, headers...)
	if answer.StatusCode != status {
		b.t.Fatalf("%s %s: %d, want %d: %.300s", method, path, answer.StatusCode, status, text)
	}
	return text
}

// enter begins a session with a code.
func (b *browser) enter(r *rig, write bool) {
	b.t.Helper()
	link, err := console.NewLink(b.t.Context(), r.socket().Client, console.Link{Write: write})
	must(b.t, err)
	b.wants(http.StatusSeeOther, "POST", "/console/enter", "code="+link.Code)
}

var formValue = regexp.MustCompile(`name="form" value="([^"]+)"`)

// form returns the value of the field `form` of a page.
func (b *browser) form() string {
	b.t.Helper()
	found := formValue.FindStringSubmatch(b.wants(http.StatusOK, "GET", "/console/", ""))
	if found == nil {
		b.t.Fatal("the page has no form")
	}
	return found[1]
}

var consolePages = []string{
	"/console/", "/console/registry", "/console/wallet", "/console/rewards", "/console/edge", "/console/index",
	"/console/operations", "/console/cluster", "/console/fleet", "/console/manual", "/console/manual/clusters",
}

// Every page is whole without script: a title, one heading, the policy, nothing inline. Without a
// session the overview is the entrance, and the others lead there and back.
func TestConsolePages(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b := newBrowser(t, r)
	text := b.wants(http.StatusOK, "GET", "/console/", "")
	if !strings.Contains(text, "ronbox console") || strings.Contains(text, "records") || strings.Contains(text, "ron in") {
		t.Errorf("the entrance does not name the command, or shows data of the node: %s", text)
	}
	for _, path := range consolePages[1:] {
		if answer, _ := b.do("GET", path, ""); answer.StatusCode != http.StatusSeeOther ||
			answer.Header.Get("Location") != "/console/enter?next="+url.QueryEscape(path) {
			t.Errorf("%s without a session: %d to %q", path, answer.StatusCode, answer.Header.Get("Location"))
		}
	}
	b.enter(r, false)
	for _, path := range append(consolePages, "/console/wallet?account=alice", "/console/registry?item=node/x",
		"/console/wallet/tx?id=tx_01M7Z4ZCXT000000000000FC9C", "/console/index?key=name:a.example") {
		answer, text := b.do("GET", path, "")
		head := answer.Header
		switch {
		case answer.StatusCode != http.StatusOK || strings.Count(text, "<h1>") != 1 || !strings.Contains(text, "<title>"):
			t.Errorf("%s: %d, %d headings", path, answer.StatusCode, strings.Count(text, "<h1>"))
		case !strings.Contains(head.Get("Content-Security-Policy"), "script-src 'self'") || head.Get("Cache-Control") != "no-store":
			t.Errorf("%s: headers %v", path, head)
		case strings.Contains(text, "<style") || strings.Contains(text, " style=") || strings.Contains(text, "<script>") ||
			strings.Contains(text, " onclick="):
			t.Errorf("%s: inline script or style", path)
		}
	}
	r.halt()
}

// Only a browser that prefers HTML is led to the console.
func TestRootLeadsBrowsersToTheConsole(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b := newBrowser(t, r)
	answer, _ := b.do("GET", "/", "", "Accept: text/html,application/xhtml+xml,*/*;q=0.8")
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != "/console/" {
		t.Errorf("a browser: %d to %q", answer.StatusCode, answer.Header.Get("Location"))
	}
	if text := b.wants(http.StatusOK, "GET", "/", "", "Accept: */*"); !strings.Contains(text, "/openapi.json") {
		t.Errorf("a program: %s", text)
	}
	r.halt()
}

// A code opens one session. The cookie stays below /console/, out of reach of script, and opens no
// other route.
func TestConsoleEntrance(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	link, err := console.NewLink(t.Context(), r.socket().Client, console.Link{})
	must(t, err)
	if !strings.HasPrefix(link.URL, "http://"+r.Addr()+"/console/enter#") || !strings.HasSuffix(link.URL, link.Code) {
		t.Errorf("the URL is %s", link.URL)
	}
	b := newBrowser(t, r)
	answer, _ := b.do("POST", "/console/enter", "code="+link.Code)
	cookies := answer.Cookies()
	if answer.StatusCode != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("%d, cookies %v", answer.StatusCode, cookies)
	}
	if k := cookies[0]; !k.HttpOnly || k.SameSite != http.SameSiteStrictMode || k.Path != "/console/" {
		t.Errorf("cookie %v", k)
	}
	other := newBrowser(t, r)
	for body, status := range map[string]int{
		"code=" + link.Code: http.StatusForbidden,  // used
		"code=nonsense":     http.StatusForbidden,  //
		"token=nonsense":    http.StatusForbidden,  //
		"code=a&code=b":     http.StatusBadRequest, // twice
		"code=a&admin=1":    http.StatusBadRequest, // unknown
	} {
		if text := other.wants(status, "POST", "/console/enter", body); !strings.Contains(text, `class="fault"`) {
			t.Errorf("%s: no reason is shown: %s", body, text)
		}
	}
	other.wants(http.StatusForbidden, "POST", "/console/enter", "code=x", "Sec-Fetch-Site: cross-site")
	other.wants(http.StatusForbidden, "POST", "/console/enter", "code=x", "Origin: http://evil.example")
	raw := cookies[0].Name + "=" + cookies[0].Value
	for _, path := range []string{"/v1/assets", "/admin/v1/status", "/v1/balance?account=alice&asset=ron"} {
		if answer, _ := other.do("GET", path, "", "Cookie: "+raw); answer.StatusCode < 400 {
			t.Errorf("the cookie opens %s", path)
		}
	}
	b.wants(http.StatusSeeOther, "POST", "/console/leave", "form="+b.form())
	page, err := r.socket().Audit(t.Context(), 1, 100)
	must(t, err)
	var events []string
	for _, row := range page.Rows {
		if strings.HasPrefix(row.Event, "console.") {
			events = append(events, row.Event+" "+row.Principal+" "+row.Detail["with"])
		}
	}
	uid := "uid:" + strconv.Itoa(os.Getuid())
	if want := []string{"console.entered " + uid + " code", "console.left " + uid + " code"}; !slices.Equal(events, want) {
		t.Errorf("on the audit chain: %q, want %q", events, want)
	}
	b.wants(http.StatusSeeOther, "GET", "/console/wallet", "")
	r.halt()
}

// A token of another node opens no session, however busy or reduced the node is, and leaves no
// trace in the audit chain. A session of a token ends no other session.
func TestConsoleRefusesForeignTokens(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Wallet.Enabled, cfg.Rewarder.Enabled = false, false
	r := start(t, cfg)
	b := newBrowser(t, r)
	foreign := auth.New(auth.DefaultConfig(), nil)
	foreign.Swap(auth.NewState(make([]byte, 32), []auth.Key{{
		Kid: "k1", Salt: make([]byte, 32), State: auth.KeyActive, CreatedAt: time.Now(),
	}}, nil, 1))
	forged, _, err := foreign.Mint(auth.MintSpec{Sub: "root-operator", Scopes: []string{"node.admin"}})
	must(t, err)
	for range 60 { // trips the guard of failures
		_, _ = b.do("GET", "/v1/assets", "", "Authorization: Bearer nonsense")
		_, _ = b.do("GET", "/registry/proposals", "", "Authorization: Bearer nonsense")
	}
	for _, token := range []string{"nonsense", forged} {
		b.wants(http.StatusForbidden, "POST", "/console/enter", "token="+token)
	}
	page, err := r.socket().Audit(t.Context(), 1, 100)
	must(t, err)
	for _, row := range page.Rows {
		if strings.HasPrefix(row.Event, "console.") {
			t.Errorf("on the audit chain: %+v", row)
		}
	}
	viewer, err := r.socket().Mint(t.Context(), nodeapi.MintRequest{Sub: "viewer", Scopes: []string{"node.read"}})
	must(t, err)
	r.halt()
	r = start(t, cfg) // the guard forgets
	b = newBrowser(t, r)
	other := newBrowser(t, r)
	other.enter(r, true)
	b.wants(http.StatusSeeOther, "POST", "/console/enter", "changes=1&token="+viewer.Token)
	b.wants(http.StatusForbidden, "POST", "/console/operations/end", "form="+b.form()+"&id=x")
	r.halt()
}

// A client that is not admitted gets 404, as for a path that does not exist.
func TestConsoleIsHidden(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b := newBrowser(t, r)
	for _, headers := range [][]string{
		{"Host: evil.example"}, {"X-Forwarded-For: 10.0.0.1"}, {"Forwarded: for=10.0.0.1"},
	} {
		for _, path := range []string{"/console/", "/console/enter", "/console/wallet"} {
			b.wants(http.StatusNotFound, "GET", path, "", headers...)
		}
		b.wants(http.StatusNotFound, "POST", "/console/enter", "code=x", headers...)
		b.wants(http.StatusOK, "GET", "/", "", append(headers, "Accept: text/html")...)
	}
	for _, host := range []string{"localhost:1", "ron-1.localhost", "127.0.0.1", "[::1]:80"} {
		b.wants(http.StatusOK, "GET", "/console/", "", "Host: "+host)
	}
	r.halt()
}

// The form pays once for each reference. It is refused in a session that may only look, without the
// session's own field, and from a page of another site.
func TestConsolePays(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	looks, pays := newBrowser(t, r), newBrowser(t, r)
	looks.enter(r, false)
	pays.enter(r, true)
	order := "&from=alice&to=bob&asset=ron&amount=1200&reference=rent-1"
	looks.wants(http.StatusForbidden, "POST", "/console/wallet/pay", "form="+looks.form()+order)
	pays.wants(http.StatusForbidden, "POST", "/console/wallet/pay", "form=x"+order)
	pays.wants(http.StatusForbidden, "POST", "/console/wallet/pay", order[1:])
	form := "form=" + pays.form() + order
	pays.wants(http.StatusForbidden, "POST", "/console/wallet/pay", form, "Sec-Fetch-Site: cross-site")
	form += "&new=1"
	var seen string
	for range 3 {
		answer, text := pays.do("POST", "/console/wallet/pay", form)
		if answer.StatusCode != http.StatusSeeOther {
			t.Fatalf("%d: %s", answer.StatusCode, text)
		}
		if at := answer.Header.Get("Location"); seen != "" && at != seen {
			t.Errorf("paid twice: %s and %s", seen, at)
		} else {
			seen = at
		}
	}
	if text := pays.wants(http.StatusOK, "GET", seen, ""); !strings.Contains(text, "alice") ||
		!strings.Contains(text, "data-proof=") {
		t.Errorf("the receipt: %s", text)
	}
	balance, err := r.socket().Balance(t.Context(), "bob", "ron", 0)
	must(t, err)
	if balance.AmountMinor != "1200" {
		t.Errorf("bob has %s", balance.AmountMinor)
	}
	if text := pays.wants(http.StatusUnprocessableEntity, "POST", "/console/wallet/pay",
		strings.Replace(form, "amount=1200", "amount=1300", 1)); !strings.Contains(text, "Nothing was paid") {
		t.Errorf("another payment under the same reference: %s", text)
	}
	found := pays.wants(http.StatusOK, "GET", "/console/wallet", "")
	if !strings.Contains(found, "Latest payments") ||
		!strings.Contains(found, strings.TrimPrefix(seen, "/console/wallet/tx")) {
		t.Errorf("the payment is not listed: %s", found)
	}
	id := strings.TrimPrefix(seen, "/console/wallet/tx?id=")
	for text, want := range map[string]string{id: seen, "rent": "/console/wallet?find=rent#payments"} {
		if answer, _ := pays.do("GET", "/console/find?text="+text, ""); answer.Header.Get("Location") != want {
			t.Errorf("%s is found at %s", text, answer.Header.Get("Location"))
		}
	}
	r.halt()
}

// A payment that is refused changes nothing: its form comes back with its values and, at the field
// that it is about, with the reason. A new payee is paid only if the form says so.
func TestConsoleKeepsARefusedPayment(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	pays := newBrowser(t, r)
	pays.enter(r, true)
	order := "&from=alice&to=bob&asset=ron&amount=1200&reference=rent-1"
	form := "form=" + pays.form() + order
	text := pays.wants(http.StatusNotFound, "POST", "/console/wallet/pay", form+"&memo=rent+of+May")
	for _, want := range []string{
		"Nothing was paid.", "There is no such account.", `value="1200"`, `value="bob"`, `value="rent of May"`,
		`value="rent-1"`, `name="new"`, `aria-describedby="wrong-to"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the refused form lacks %s: %s", want, text)
		}
	}
	for amount, want := range map[string]int{"1.5": http.StatusBadRequest, "99999999": http.StatusConflict} {
		text := pays.wants(want, "POST", "/console/wallet/pay",
			"new=1&form="+pays.form()+strings.Replace(order, "amount=1200&reference=rent-1", "reference=r2&amount="+amount, 1))
		if !strings.Contains(text, `id="wrong-amount"`) || !strings.Contains(text, `value="`+amount+`"`) ||
			strings.Contains(text, "amount_minor") {
			t.Errorf("%s: %s", amount, text)
		}
	}
	r.halt()
}

// A browser whose session is lost is told that its form did nothing, and led back to the page. A
// path that no page has is told so as a page, to who may see the console.
func TestConsoleWithoutItsSession(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b := newBrowser(t, r)
	text := b.wants(http.StatusUnauthorized, "POST", "/console/wallet/pay", "form=x&from=alice&to=bob&amount=1")
	if !strings.Contains(text, "You were signed out. Nothing was done.") ||
		!strings.Contains(text, `name="next" value="/console/wallet"`) {
		t.Errorf("a form without a session: %s", text)
	}
	for next, want := range map[string]string{
		"/console/wallet?account=alice": "/console/wallet?account=alice", "//evil.example/": "/console/",
		"/console/enter": "/console/", "https://evil.example/console/": "/console/",
		"/console/" + strings.Repeat("x", 2000): "/console/", "/console/a\r\nX: y": "/console/",
	} {
		link, err := console.NewLink(t.Context(), r.socket().Client, console.Link{})
		must(t, err)
		answer, _ := b.do("POST", "/console/enter", "code="+url.QueryEscape(link.URL)+"&next="+url.QueryEscape(next))
		if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != want {
			t.Errorf("%q: %d to %q", next, answer.StatusCode, answer.Header.Get("Location"))
		}
	}
	answer, text := b.do("GET", "/console/none", "")
	if answer.StatusCode != http.StatusNotFound || !strings.Contains(text, "<h1>") ||
		!strings.Contains(answer.Header.Get("Content-Security-Policy"), "style-src 'self'") {
		t.Errorf("no page: %d %v %s", answer.StatusCode, answer.Header, text)
	}
	if answer, text := b.do("GET", "/console/none", "", "Host: evil.example"); answer.StatusCode != http.StatusNotFound ||
		strings.Contains(text, "<h1>") {
		t.Errorf("no page, to a stranger: %d %s", answer.StatusCode, text)
	}
	r.halt()
}

// A token is minted and shown once; a refused form keeps its values.
func TestConsoleMints(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b := newBrowser(t, r)
	b.enter(r, true)
	tokens, err := r.socket().Tokens(t.Context(), "", 0)
	must(t, err)
	before := len(tokens.Tokens)
	form := "form=" + b.form() + "&sub=shop&reference=one&scopes=wallet.read+wallet.transfer&hours="
	if text := b.wants(http.StatusBadRequest, "POST", "/console/operations/mint", form+"0"); !strings.Contains(text, `value="shop"`) ||
		!strings.Contains(text, `id="wrong-hours"`) {
		t.Errorf("a life of no hours: %s", text)
	}
	if text := b.wants(http.StatusBadRequest, "POST", "/console/operations/mint",
		strings.Replace(form, "wallet.read", "wallet.rea", 1)+"1"); !strings.Contains(text, "Nothing was changed") {
		t.Errorf("a scope that there is not: %s", text)
	}
	form = strings.Replace(form, "reference=one", "reference=two", 1) // as the refused form has it
	text := b.wants(http.StatusOK, "POST", "/console/operations/mint", form+"1")
	if !strings.Contains(text, "It is shown this once.") || !strings.Contains(text, "wallet.transfer") {
		t.Errorf("minted: %s", text)
	}
	again := b.wants(http.StatusConflict, "POST", "/console/operations/mint", form+"1")
	all, err := r.socket().Tokens(t.Context(), "", 0)
	must(t, err)
	if len(all.Tokens) != before+1 || !strings.Contains(again, "was sent before") ||
		strings.Contains(again, "this once") {
		t.Errorf("a form that is sent twice: %d tokens: %s", len(all.Tokens)-before, again)
	}
	r.halt()
}

// A session of a token shows the data that the token may read, names the scope that other pages
// need, and ends with the token.
func TestConsoleOfAToken(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	token, err := r.socket().Mint(t.Context(), nodeapi.MintRequest{Sub: "viewer", Scopes: []string{"wallet.read"}})
	must(t, err)
	b := newBrowser(t, r)
	b.wants(http.StatusSeeOther, "POST", "/console/enter", "token="+token.Token)
	if text := b.wants(http.StatusOK, "GET", "/console/", ""); !strings.Contains(text, "1\u202f000\u202f000 ron") {
		t.Errorf("the wallet is not shown: %s", text)
	}
	if text := b.wants(http.StatusOK, "GET", "/console/operations", ""); !strings.Contains(text, "This needs the scope") {
		t.Errorf("no scope is named: %s", text)
	}
	_, err = r.socket().Revoke(t.Context(), nodeapi.RevokeRequest{TID: token.TID})
	must(t, err)
	for _, page := range []string{"", "wallet", "operations"} {
		text := b.wants(http.StatusOK, "GET", "/console/"+page, "")
		if strings.Contains(text, "1\u202f000\u202f000") || strings.Count(text, "no longer accepted") != 1 ||
			strings.Contains(text, "not answer") {
			t.Errorf("after the token was revoked: %s", text)
		}
	}
	r.halt()
}

// formInput is a field of a form, which holds what is sent again.
var formInput = regexp.MustCompile(`<input [^>]*>`)

// Text from outside is shown as text, in the order that it has.
func TestConsoleEscapes(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	hostile := `<script>alert(1)</script>"'><img src=x>` + "\u202e"
	_, err := r.socket().Transfer(t.Context(), "x", walletapi.Transfer{
		From: "alice", To: "bob", Asset: "ron", AmountMinor: "1", Memo: hostile,
	})
	must(t, err)
	b := newBrowser(t, r)
	b.enter(r, false)
	for _, path := range []string{
		"/console/wallet?account=bob",
		"/console/wallet?account=" + url.QueryEscape(hostile),
		"/console/wallet/tx?id=" + url.QueryEscape(hostile),
		"/console/registry?item=" + url.QueryEscape(hostile),
		"/console/index?key=" + url.QueryEscape(hostile) + "&prefix=" + url.QueryEscape(hostile),
		"/console/rewards?epoch=" + url.QueryEscape(hostile) + "&actor=" + url.QueryEscape(hostile),
		"/console/edge?prefix=" + url.QueryEscape(hostile),
		"/console/edge?prefix=https://" + url.QueryEscape("\u202e"),
		"/console/wallet?account=a" + url.QueryEscape("\u202e"),
		"/console/wallet?accounts=a" + url.QueryEscape("\u202e"),
		"/console/wallet/tx?id=a" + url.QueryEscape("\u202e"),
		"/console/rewards?epoch=a" + url.QueryEscape("\u202e"),
		"/console/index?prefix=a" + url.QueryEscape("\u202e"),
	} {
		text := b.wants(http.StatusOK, "GET", path, "")
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "<img src=x") {
			t.Errorf("%s: markup from outside: %s", path, text)
		}
		text = formInput.ReplaceAllString(text, "")
		if at := strings.Index(text, "\u202e"); at >= 0 {
			t.Errorf("%s: a bidirectional control: %q", path, text[max(0, at-200):at+3])
		}
	}
	r.halt()
}

// The page of a service that is off says so.
func TestConsoleSaysWhatIsOff(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Edge.Enabled = false
	r := start(t, cfg)
	b := newBrowser(t, r)
	b.enter(r, false)
	if text := b.wants(http.StatusOK, "GET", "/console/edge", ""); !strings.Contains(text, "The service edge is off") {
		t.Errorf("the page of the edge: %s", text)
	}
	r.halt()
}

// A stored object does not run in a page of the node, although the page's policy allows its own
// origin.
func TestStoredObjectsDoNotRunInThePages(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	b := newBrowser(t, r)
	for _, dest := range []string{"script", "style", "worker", "serviceworker"} {
		b.wants(http.StatusForbidden, "GET", "/edge/assets/x.example/a.js", "", "Sec-Fetch-Site: same-origin",
			"Sec-Fetch-Dest: "+dest)
	}
	b.wants(http.StatusNotFound, "GET", "/edge/assets/x.example/a.js", "", "Sec-Fetch-Site: cross-site",
		"Sec-Fetch-Dest: script")
	r.halt()
}
