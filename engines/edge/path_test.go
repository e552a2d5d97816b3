package edge

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
)

func TestParsePath(t *testing.T) {
	t.Parallel()
	d := b3.Sum([]byte("x"))
	for path, want := range map[string]target{
		"b3/" + d.String()[3:]:     {digest: d},
		"world.pmtiles":            {pack: "world"},
		"example.com/a":            {url: "https://example.com/a", host: "example.com"},
		"example.com:8443/a/b.css": {url: "https://example.com:8443/a/b.css", host: "example.com:8443"},
		"localhost:1/a":            {url: "https://localhost:1/a", host: "localhost:1"},
		"localhost/a":              {url: "https://localhost/a", host: "localhost"},
		"example.com/":             {url: "https://example.com/", host: "example.com"},
		"a.pmtiles/":               {url: "https://a.pmtiles/", host: "a.pmtiles"},
		"example.com/a/b/":         {url: "https://example.com/a/b/", host: "example.com"},
		"xn--bcher-kva.example/ü/ä b%c": {
			url: "https://xn--bcher-kva.example/%C3%BC/%C3%A4%20b%25c", host: "xn--bcher-kva.example",
		},
	} {
		want.name = path
		if want.pack != "" {
			want.name = ""
		}
		if got, err := parsePath(path, ""); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", path, got, err, want)
		}
	}
	for _, path := range []string{
		"x", "x.mbtiles", ".pmtiles", "b3/x", "b3/" + strings.ToUpper(d.String()[3:]), "b3/" + d.String()[3:] + "/x",
		"example/a", "EXAMPLE.com/a", "example.com",
		"example.com:443/a", "example.com:0/a", "example.com:08443/a", "example.com:99999/a", "example.com:/a",
		"example.com./a", "-a.com/a", "a_b.com/a",
		strings.Repeat("a", 64) + ".com/a",
	} {
		if got, err := parsePath(path, ""); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	var bad *PathError
	for _, path := range []string{
		"", "/", "a//b.c", "example.com//", "example.com/a//", "example.com/../a", "example.com/..", "example.com/../",
		"/a", "example.com/./a", "example.com/a/..", "example.com/a\\b", "example.com/a\x00b", "example.com/a\nb",
		"example.com/\x7f", "example.com/\u0085", "example.com/\xff", "example.com/" + strings.Repeat("a", 256),
		"example.com" + strings.Repeat("/a", 1020),
	} {
		if got, err := parsePath(path, ""); !errors.As(err, &bad) {
			t.Errorf("%q: %+v, %v", path, got, err)
		}
	}
}

// The undecoded query is part of the key of an asset of a host, and of no other asset. An escaped ?
// in the path does not begin a query.
func TestParseQuery(t *testing.T) {
	t.Parallel()
	const host = "example.com"
	for _, tt := range []struct{ path, query, url string }{
		{"example.com/a", "x=1&y=2", "https://example.com/a?x=1&y=2"},
		{"example.com/a", "y=2&x=1", "https://example.com/a?y=2&x=1"},
		{"example.com/css2", "family=Roboto:wght@400;700", "https://example.com/css2?family=Roboto:wght@400;700"},
		{"example.com/a", "%zz?/|\"'<>\\^{}", "https://example.com/a?%zz?/|\"'<>\\^{}"},
		{"example.com/", "x", "https://example.com/?x"},
		{"example.com/a?x=1", "", "https://example.com/a%3Fx=1"},
		{"example.com/a?x", "y", "https://example.com/a%3Fx?y"},
	} {
		got, err := parsePath(tt.path, tt.query)
		if err != nil || got.url != tt.url || got.host != host || got.name != nameOfAsset(tt.path, tt.query) {
			t.Errorf("%s ? %s: %+v, %v", tt.path, tt.query, got, err)
		}
		if again, _, err := parseURL(got.url); err != nil || again != got {
			t.Errorf("%s: %+v, %v", got.url, again, err)
		}
	}
	d := "b3/" + b3.Sum(nil).String()[3:]
	for _, path := range []string{d, "world.pmtiles"} {
		with, err := parsePath(path, "x=1")
		without, bad := parsePath(path, "")
		if with != without || err != nil || bad != nil || nameOfAsset(d, "x") != d {
			t.Errorf("%s: %+v, %v, without a query %+v, %v", path, with, err, without, bad)
		}
	}
	for _, query := range []string{
		" ", "a b", "a\n", "\x00", "ü", "a#b", "\x7f", "\xff", strings.Repeat("x", maxPath),
	} {
		if got, err := parsePath("example.com/a", query); !errors.As(err, new(*PathError)) {
			t.Errorf("%q: %+v, %v", query, got, err)
		}
	}
}

// forms has addresses in every form that some program accepts, and names that look like addresses.
var forms = []string{
	"127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001",
	"127.0.0.1.", "127.000.000.001", "0", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254",
	"100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "[::1]", "[::]", "[::ffff:127.0.0.1]",
	"[::ffff:7f00:1]", "[::127.0.0.1]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]", "[fec0::1]", "[ff02::1]",
	"[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001::1]", "[2001:db8::1]", "[100::1]", "::1",
	"1.2.3.4", "[2606:4700::1111]", "user@127.0.0.1", "localhost.", "LOCALHOST", "ⓛocalhost", "①②⑦.⓪.⓪.①", "127。0。0。1",
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
			c := DefaultConfig()
			c.Allow = []string{host}
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "allow") {
				t.Errorf("%s: is taken into edge.allow", host)
			}
			_, err := r.e.Fill(context.Background(), FillRequest{URL: "https://" + host + "/x"})
			var bad *PathError
			if !errors.As(err, &bad) && reason(err) != NotAllowed {
				t.Errorf("%s: a fill gives %v", host, err)
			}
			if _, _, err := r.read(host + "/x"); !errors.Is(err, ErrNotFound) && !errors.As(err, &bad) &&
				reason(err) != NotAllowed {
				t.Errorf("%s: a path gives %v", host, err)
			}
		}
	}
	if n := h.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

// A path is refused, or it has one meaning and its spelling can be derived from that.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"b3/" + b3.Sum(nil).String()[3:], "a.pmtiles", "example.com/a b/c", "example.com/%2e%2e/a", "a.b/..",
		"localhost:1//x", "10.0.0.1", "0x7f000001", "[::1]:443", "user@example.com", "example.com.", "EXAMPLE.com",
	} {
		f.Add(seed, "")
		f.Add(seed+"/x", "a=b;c")
		f.Add(seed+"/", "?")
	}
	f.Fuzz(func(t *testing.T, path, query string) {
		got, err := parsePath(path, query)
		var bad *PathError
		switch {
		case errors.Is(err, ErrNotFound) || errors.As(err, &bad):
			if got != (target{}) {
				t.Errorf("%q: refused, and %+v", path, got)
			}
			return
		case err != nil:
			t.Fatalf("%q: %v", path, err)
		case got.url == "":
			if back := got.pack + ".pmtiles"; back != path && "b3/"+got.digest.String()[3:] != path {
				t.Errorf("%q: %+v", path, got)
			}
			return
		}
		u, err := url.Parse(got.url)
		if err != nil || u.Scheme != "https" || u.Host != got.host || u.Host+u.Path != path || u.RawQuery != query ||
			u.User != nil ||
			checkHost(u.Host) != nil {
			t.Fatalf("%q: %+v is %+v, %v", path, got, u, err)
		}
		if again, back, err := parseURL(got.url); err != nil || again != got || back != shownPath(path, query) {
			t.Errorf("%q: its URL leads to %+v, %q, %v", path, again, back, err)
		}
	})
}

// A key out of bounds is refused with its name.
func TestConfig(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Fatal(err)
	}
	for key, change := range map[string]func(*Config){
		"mode":                            func(c *Config) { c.Mode = "on" },
		"allow":                           func(c *Config) { c.Mode = ModeLive },
		"allow = \"a.b\": is named twice": func(c *Config) { c.Allow = []string{"a.b", "a.b"} },
		"public_url = \"maps.example\"":   func(c *Config) { c.PublicURL = "maps.example" },
		"public_url = \"ftp://a.b\"":      func(c *Config) { c.PublicURL = "ftp://a.b" },
		"public_url = \"https://a.b/?c\"": func(c *Config) { c.PublicURL = "https://a.b/?c" },
		"public_url = \"https://u@a.b\"":  func(c *Config) { c.PublicURL = "https://u@a.b" },
		"public_url = \"https://\"":       func(c *Config) { c.PublicURL = "https://" },
		"allow_private":                   func(c *Config) { c.AllowPrivate = []string{"10.0.0.1/8"} },
		"ingress.timeout_secs":            func(c *Config) { c.Ingress.TimeoutSecs = 0 },
		"ingress.max_inflight":            func(c *Config) { c.Ingress.MaxInflight = 0 },
		"ingress.max_inflight = 511: must be at least queues.work_tx": func(c *Config) { c.Ingress.MaxInflight = 511 },
		"cas.max_pinned":               func(c *Config) { c.CAS.MaxPinned = c.CAS.MaxBytes },
		"ingress.rps_limit":            func(c *Config) { c.Ingress.RPSLimit = 0 },
		"ingress.body_bytes":           func(c *Config) { c.Ingress.BodyBytes = 1 },
		"ingress.decompress_max_ratio": func(c *Config) { c.Ingress.DecompressMaxRatio = -1 },
		"ingress.decompress_abs_bytes": func(c *Config) { c.Ingress.DecompressAbsBytes = 1 },
		"queues.work_tx":               func(c *Config) { c.Queues.WorkTX = 0 },
		"retry.live_fill.base_ms":      func(c *Config) { c.Retry.LiveFill.BaseMS = 801 },
		"retry.live_fill.max_ms":       func(c *Config) { c.Retry.LiveFill.MaxMS = 0 },
		"retry.live_fill.max_retries":  func(c *Config) { c.Retry.LiveFill.MaxRetries = 6 },
		"fill.workers":                 func(c *Config) { c.Fill.Workers = 0 },
		"fill.max_object_bytes":        func(c *Config) { c.Fill.MaxObjectBytes = c.CAS.MaxBytes + 1 },
		"fill.idle":                    func(c *Config) { c.Fill.Idle = 1 },
		"fill.partial_bytes":           func(c *Config) { c.Fill.PartialBytes = -1 },
		"cas.max_bytes":                func(c *Config) { c.CAS.MaxBytes = 1 },
		"cas.max_urls":                 func(c *Config) { c.CAS.MaxURLs = 1 },
		"cas.min_free":                 func(c *Config) { c.CAS.MinFree = -1 },
		"scrub.every":                  func(c *Config) { c.Scrub.Every = 1 },
		"scrub.rate":                   func(c *Config) { c.Scrub.Rate = 1 },
		"drain_deadline":               func(c *Config) { c.DrainDeadline = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, public := range []string{
		"https://maps.example", "http://10.0.0.1:8080/", "https://example.com/behind/a/proxy",
	} {
		c := DefaultConfig()
		c.PublicURL = public
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", public, err)
		}
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
		_, err := r.e.Fill(t.Context(), FillRequest{URL: "https://" + h.name + path, Pin: pin})
		return err
	}
	for _, path := range []string{"/moved", "/lost", "/none", "/cut"} {
		for range 2 { // the second answer is remembered
			err := ask(path+"?a=\"secret&b=secret", false)
			if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), path+redacted) {
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
	k, err := r.e.Keep(t.Context(), Remove, []string{"https://" + h.name + "/x?secret"})
	if err != nil || len(k.Changed) != 1 {
		t.Errorf("%+v, %v", k, err)
	}
	r.stop()
	if text := out.String(); strings.Contains(text, "secret") || !strings.Contains(text, "/x"+redacted) ||
		!strings.Contains(text, "cas_remove") {
		t.Errorf("the log: %s", text)
	}
}
