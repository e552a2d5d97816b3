package edge_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/fill"
)

// forms has addresses in every form that some program accepts, and names that look like addresses.
var forms = []string{
	"127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001",
	"127.0.0.1.", "127.000.000.001", "0", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
	"100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "[::1]", "[::]", "[::ffff:127.0.0.1]",
	"[::ffff:7f00:1]", "[::127.0.0.1]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]", "[fec0::1]", "[ff02::1]",
	"[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001::1]", "[2001:db8::1]", "[100::1]", "::1",
	"1.2.3.4", "[2606:4700::1111]", "user@127.0.0.1", "localhost.", "ⓛocalhost", "①②⑦.⓪.⓪.①", "127。0。0。1",
	"localhost%00", "example.com.", "examp\u200ble.com", "exаmple.com", "*.example.com", "example.com:443",
	"a@example.com",
}

// edge.allow refuses every form of an IP address, and the edge fetches from no such URL.
func TestAddressForms(t *testing.T) {
	t.Parallel()
	if len(forms) < 40 {
		t.Fatalf("%d forms", len(forms))
	}
	h := newHost(t, echo)
	_, port, _ := strings.Cut(h.name, ":")
	r := newRig(t, on(h)).start()
	for _, form := range forms {
		for _, host := range []string{form, form + ":" + port} {
			c := config.DefaultConfig()
			c.Allow = []string{host}
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "allow") {
				t.Errorf("%s: is taken into edge.allow", host)
			}
			_, err := r.e.Fill(context.Background(), fill.Request{URL: "https://" + host + "/x"})
			var bad *asset.PathError
			if !errors.As(err, &bad) && reason(err) != asset.NotAllowed {
				t.Errorf("%s: a fill gives %v", host, err)
			}
			if _, _, err := r.read(host + "/x"); !errors.Is(err, asset.ErrNotFound) && !errors.As(err, &bad) &&
				reason(err) != asset.NotAllowed {
				t.Errorf("%s: a path gives %v", host, err)
			}
		}
	}
	if n := h.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

// A fill and a request of one URL name one object, and the host sees the canonical spelling.
func TestSpellingsOfURLs(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) { serve(w, q.RequestURI) })
	r := newRig(t, on(h)).start()
	for _, tt := range []struct{ fill, get, asked string }{
		{"/wiki/Foo_(bar).jpg", "/wiki/Foo_(bar).jpg", "/wiki/Foo_(bar).jpg"},
		{"/wiki/Foo_%28bar%29.jpg", "/wiki/Foo_%28bar%29.jpg", "/wiki/Foo_%28bar%29.jpg"},
		{"/a%2bb", "/%61%2Bb", "/a%2Bb"},
		{"/a+b", "/a+b", "/a+b"},
		{"/a%2fb!'*;=@,", "/a%2Fb!'*;=@,", "/a%2Fb!'*;=@,"},
		{"/q?x=%2f", "/q?x=%2F", "/q?x=%2F"},
		{"/ü ~", "/%c3%bc%20%7e", "/%C3%BC%20~"},
	} {
		f, err := r.e.Fill(t.Context(), fill.Request{URL: "https://LOCALHOST" + h.name[len("localhost"):] + tt.fill})
		if err != nil || !f.New || f.URL != "https://"+h.name+tt.asked || f.Path != h.name+tt.asked {
			t.Errorf("%s: %+v, %v", tt.fill, f, err)
		}
		path, query, _ := strings.Cut(tt.get, "?")
		o, err := r.e.Asset(t.Context(), h.name+path, query)
		if err != nil || string(o.Bytes) != tt.asked || o.Filled {
			t.Errorf("%s: %+v, %v, want the object of %s", tt.get, o, err, tt.asked)
		}
	}
}

// The row of an earlier schema is found by the spelling of today, until that has a row of its own.
func TestOldSpellings(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) { serve(w, "new") })
	r := newRig(t, on(h))
	old := newItem("https://"+h.name+"/Foo_%28bar%29", "old")
	r.burst(old)
	url := "https://" + h.name + "/Foo_(bar)"
	r.want(h.name+"/Foo_(bar)", "old")
	for _, do := range []asset.Action{asset.Pin, asset.Unpin} {
		if k, err := r.e.Keep(t.Context(), do, []string{url}); err != nil || len(k.Changed) != 1 {
			t.Errorf("%s: %+v, %v", do, k, err)
		}
	}
	if f, err := r.e.Fill(t.Context(), fill.Request{URL: url, Refresh: true}); err != nil || f.URL != url {
		t.Errorf("%+v, %v", f, err)
	}
	r.want(h.name+"/Foo_(bar)", "new")
	r.want(h.name+"/Foo_%28bar%29", "old")
	if k, err := r.e.Keep(t.Context(), asset.Remove, []string{url}); err != nil || len(k.Changed) != 1 {
		t.Errorf("%+v, %v", k, err)
	}
	if _, err := r.e.Fill(t.Context(), fill.Request{URL: "https://" + h.name + "/Foo_%28bar%29", Refresh: true}); err != nil {
		t.Error(err)
	}
	r.want(h.name+"/Foo_%28bar%29", "new") // it is a row of today now, and not that of the other URL
	if f, err := r.e.Fill(t.Context(), fill.Request{URL: url}); err != nil || !f.New {
		t.Errorf("%+v, %v", f, err)
	}
}

// No event and no error shows the query of a URL: it is a credential if the URL is signed.
func TestQueriesAreRedacted(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/moved":
			http.Redirect(w, q, "https://elsewhere.example/x?key=secret", http.StatusFound)
		case "/lost":
			w.Header().Set("Location", "https://h.example/%zz?key=secret")
			w.WriteHeader(http.StatusFound)
		case "/none":
			http.NotFound(w, q)
		case "/cut":
			cut(w)
		default:
			echo(w, q)
		}
	})
	var out bytes.Buffer
	r := newRig(t, on(h), func(r *rig) {
		r.log = hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Trace, Mutex: new(sync.Mutex)})
	}).start()
	ask := func(path string, pin bool) error {
		_, err := r.e.Fill(t.Context(), fill.Request{URL: "https://" + h.name + path, Pin: pin})
		return err
	}
	for _, path := range []string{"/moved", "/lost", "/none", "/cut"} {
		for range 2 { // the second answer is remembered
			err := ask(path+"?a=\"secret&b=secret", false)
			if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), path+asset.Redacted) {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
	if err := ask("//x?secret", false); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a malformed URL: %v", err)
	}
	if err := ask("/x?secret", true); err != nil {
		t.Error(err)
	}
	k, err := r.e.Keep(t.Context(), asset.Remove, []string{"https://" + h.name + "/x?secret"})
	if err != nil || len(k.Changed) != 1 {
		t.Errorf("%+v, %v", k, err)
	}
	r.stop()
	if text := out.String(); strings.Contains(text, "secret") || !strings.Contains(text, "/x"+asset.Redacted) ||
		!strings.Contains(text, "cas_remove") {
		t.Errorf("the log: %s", text)
	}
}
