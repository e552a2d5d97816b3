package console

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
)

var (
	update = flag.Bool("update", false, "rewrite the golden pages")
	socket = flag.String("record", "", "an admin socket: the answers of its node replace those of testdata/node.json")
)

// recorded are answers of a node, by their targets.
type recorded map[string]struct {
	Status int    `json:"status"`
	Type   string `json:"type"`
	Body   string `json:"body"`
}

const recordedFile = "testdata/node.json"

// ServeHTTP answers as the node did that was recorded.
func (n recorded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, ok := n[r.URL.RequestURI()]
	if !ok {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	w.Header().Set("Content-Type", a.Type)
	w.WriteHeader(a.Status)
	_, _ = io.WriteString(w, a.Body)
}

// from asks a node for what is not recorded.
func (n recorded) from(at string) http.Handler {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", at)
		}}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := c.Get("http://node" + r.URL.RequestURI())
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		a := n[r.URL.RequestURI()]
		a.Status, a.Type = answer.StatusCode, answer.Header.Get("Content-Type")
		a.Body = strings.ReplaceAll(string(body), filepath.Dir(at), "/var/lib/ronbox")
		n[r.URL.RequestURI()] = a
		n.ServeHTTP(w, r)
	})
}

// shown are the pages of the golden test, by their files.
var shown = map[string]string{
	"overview":        "/console/",
	"registry":        "/console/registry?item=region/moon-1&from=1&to=2",
	"registry_absent": "/console/registry?item=region/none",
	"wallet":          "/console/wallet?account=alice&accounts=a",
	"wallet_empty":    "/console/wallet",
	"receipt":         "/console/wallet/tx?id=",
	"rewards":         "/console/rewards?actor=airport/ABE",
	"edge":            "/console/edge",
	"index":           "/console/index?key=name:docs.example",
	"operations":      "/console/operations",
	"cluster":         "/console/cluster",
	"fleet":           "/console/fleet",
	"site":            "/console/edge/site?name=name:docs.example",
	"pack":            "/console/edge/pack?id=twolayers",
	"pack_absent":     "/console/edge/pack?id=none",
	"manual":          "/console/manual",
}

// The pages of a node that answers as the recorded one did are those in testdata, byte for byte.
func TestGoldenPages(t *testing.T) {
	node := recorded{}
	handler := node.from(*socket)
	if *socket == "" {
		node = readRecorded(t)
		handler = node
	}
	h := newGolden(t, handler)
	s := &session{rights: rights{who: "uid:1000", uid: 1000, write: true}, form: "FORM"}
	h.page(t, s, shown["wallet"]) // if answers are recorded, receiptOf reads its history
	for name, target := range shown {
		if name == "receipt" {
			target += receiptOf(node)
		}
		golden(t, name, h.page(t, s, target))
	}
	golden(t, "enter", execute(t, h, h.pages.enter, nil, entrance{"The node does not accept this token.", prefix + "wallet?account=alice"}))
	golden(t, "fault", execute(t, h, h.pages.fault, s, "Nothing was paid."))
	golden(t, "sure", execute(t, h, h.pages.sure, s, question{
		Text: "This cannot be undone.", Action: prefix + "operations/revoke", ID: "01M8TOKEN", Button: "Revoke it",
		CLI: "ronbox token revoke 01M8TOKEN",
	}))
	golden(t, "unsure", execute(t, h, h.pages.unsure, s, unsure{"The node did not answer.", prefix + "wallet?reference=a"}))
	golden(t, "off", execute(t, h, h.pages.all[1], s, nil))
	if *socket != "" {
		raw, err := json.Marshal(node, json.Deterministic(true), jsontext.WithIndent(" "))
		if err == nil {
			err = os.WriteFile(recordedFile, raw, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Pages show amounts with the decimals of their assets. Without these they say that an amount is in
// minor units. The list of epochs knows no assets.
func TestAmountsOfPages(t *testing.T) {
	node := readRecorded(t)
	assets := node["/v1/assets"]
	assets.Body = strings.Replace(assets.Body, `"declared_at"`, `"decimals":2,"declared_at"`, 1)
	node["/v1/assets"] = assets
	s := &session{rights: rights{who: "uid:1000", uid: 1000, write: true}, form: "FORM"}
	checks := func(wants map[string][]string) {
		t.Helper()
		h := newGolden(t, node)
		for name, want := range wants {
			target := shown[name]
			if name == "receipt" {
				target += receiptOf(node)
			}
			page := strings.ReplaceAll(string(h.page(t, s, target)), "\u202f", " ")
			for _, text := range want {
				if !strings.Contains(page, text) {
					t.Errorf("%s lacks %s", name, text)
				}
			}
		}
	}
	checks(map[string][]string{
		"overview": {"<p>10 505.00 ron in circulation</p>", "settled, 10.00 ron paid"},
		"wallet": {
			">9 963.00 ron<", "posted 9 988.00, held 25.00,", `<td class="n">25.00 ron</td>`, ">−12.00</td>",
			`<td class="n">10 505.00</td>`, `inputmode="decimal"`,
		},
		"receipt": {">25.00 ron<"},
		"rewards": {">10.00 ron paid to 1 actor<", "<td>10.00</td>", "<strong>10.00 ron</strong>", `<td class="n">10.00 ron</td>`},
	})
	assets.Status, assets.Body = http.StatusInternalServerError, "{}"
	node["/v1/assets"] = assets
	checks(map[string][]string{
		"wallet":  {},
		"receipt": {">2 500 minor units ron<"},
		"rewards": {">1 000 minor units ron paid to", "<td>1 000 minor units</td>"},
	})
}

// The amount of a form becomes minor units, or is refused.
func TestAmountOfAForm(t *testing.T) {
	u := units{"ron": 2, "gold": 0}
	for _, tt := range []struct{ text, asset, minor, says string }{
		{"12", "ron", "1200", ""}, {"12.0", "ron", "1200", ""}, {"12.00", "ron", "1200", ""}, {"12", "gold", "12", ""},
		{"12.001", "ron", "", "has too many digits after the point: ron has 2"}, {"12.0", "gold", "", "gold has 0"},
		{"1,5", "ron", "", "must be digits"}, {"", "ron", "", "must be digits"}, {"1", "silver", "", "not declared"},
	} {
		minor, err := u.Minor(tt.text, tt.asset)
		if minor != tt.minor || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s %s: %s, %v, want %s %s", tt.text, tt.asset, minor, err, tt.minor, tt.says)
		}
	}
}

// readRecorded returns the answers of the node that was recorded.
func readRecorded(t *testing.T) (node recorded) {
	t.Helper()
	raw, err := os.ReadFile(recordedFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &node); err != nil {
		t.Fatal(err)
	}
	return node
}

var txid = regexp.MustCompile(`tx_[0-9A-Z]{26}`)

// receiptOf returns the id of a transfer of the recorded node.
func receiptOf(n recorded) string {
	for target, a := range n {
		if strings.HasPrefix(target, "/v1/history") {
			return txid.FindString(a.Body)
		}
	}
	return ""
}

func newGolden(t *testing.T, node http.Handler) *Console {
	t.Helper()
	h, err := New(DefaultConfig(), Deps{
		Catalog: flow.NewCatalog(nil, nil),
		Node:    func() http.Handler { return node },
		Info: func() wire.VersionInfo {
			return wire.VersionInfo{Version: "1.0.0", NodeID: "01M8NODE", Services: map[string]string{
				"registry": "on", "wallet": "on", "rewarder": "on", "edge": "on", "index": "on",
			}}
		},
		URL:       func() string { return "http://127.0.0.1:8080" },
		Now:       func() time.Time { return noon },
		Manual:    pagesOfManual,
		Certified: func(string) bool { return false },
		Note:      func(context.Context, string, engines.Actor, string, map[string]string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// page returns the page of a target as a session sees it.
func (h *Console) page(t *testing.T, s *session, target string) []byte {
	t.Helper()
	path, _, _ := strings.Cut(target, "?")
	v := h.viewOf(t, s, target)
	for _, p := range h.pages.all {
		if p.path == path {
			return execute(t, h, p, s, p.data(v))
		}
	}
	t.Fatalf("no page has the path of %s", target)
	return nil
}

// viewOf returns the view of a target by a session.
func (h *Console) viewOf(t *testing.T, s *session, target string) *view {
	t.Helper()
	at, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	v := &view{h: h, s: s, in: at.Query()}
	v.ctx = as(t.Context(), s, &front.Peer{Addr: netip.MustParseAddr("127.0.0.1")})
	return v
}

func execute(t *testing.T, h *Console, p *page, s *session, data any) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := p.tmpl().ExecuteTemplate(&out, "layout", h.frame(p, s, data)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unstable is what each page has anew: the reference of a payment, the ids of sessions, and the
// digests of the embedded files.
var unstable = regexp.MustCompile(`console-[\w-]{24}|/static/[0-9a-f]{16}/|\b[0-9a-f]{12}\b`)

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	got = unstable.ReplaceAll(got, []byte("STABLE"))
	file := filepath.Join("testdata", "golden", name+".html")
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; read it with -update, then git diff:\n%s", file, firstChange(want, got))
	}
}

// firstChange returns the first line that differs.
func firstChange(want, got []byte) string {
	wants, gots := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
	for i := range min(len(wants), len(gots)) {
		if wants[i] != gots[i] {
			return "-" + wants[i] + "\n+" + gots[i]
		}
	}
	return "the lengths differ"
}
