package edge

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"ronbox/appliance/b3"
)

func TestParsePath(t *testing.T) {
	t.Parallel()
	d := b3.Sum([]byte("x"))
	for path, want := range map[string]target{
		"b3/" + d.String()[3:]:          {digest: d},
		"world.pmtiles":                 {pack: "world"},
		"example.com/a":                 {url: "https://example.com/a", host: "example.com"},
		"example.com:8443/a/b.css":      {url: "https://example.com:8443/a/b.css", host: "example.com:8443"},
		"localhost:1/a":                 {url: "https://localhost:1/a", host: "localhost:1"},
		"localhost/a":                   {url: "https://localhost/a", host: "localhost"},
		"xn--bcher-kva.example/ü/ä b%c": {url: "https://xn--bcher-kva.example/%C3%BC/%C3%A4%20b%25c", host: "xn--bcher-kva.example"},
	} {
		if got, err := parsePath(path); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", path, got, err, want)
		}
	}
	for _, path := range []string{
		"x", "x.mbtiles", ".pmtiles", "b3/x", "b3/" + strings.ToUpper(d.String()[3:]), "b3/" + d.String()[3:] + "/x", "example/a", "EXAMPLE.com/a", "example.com",
		"example.com:443/a", "example.com:0/a", "example.com:08443/a", "example.com:99999/a", "example.com:/a", "example.com./a", "-a.com/a", "a_b.com/a",
		strings.Repeat("a", 64) + ".com/a",
	} {
		if got, err := parsePath(path); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	var bad *PathError
	for _, path := range []string{
		"", "/", "a//b.c", "example.com/", "example.com/../a", "example.com/./a", "example.com/a/..", "example.com/a\\b", "example.com/a\x00b", "example.com/a\nb",
		"example.com/\x7f", "example.com/\u0085", "example.com/\xff", "example.com/" + strings.Repeat("a", 256), "example.com" + strings.Repeat("/a", 1020),
	} {
		if got, err := parsePath(path); !errors.As(err, &bad) {
			t.Errorf("%q: %+v, %v", path, got, err)
		}
	}
}

// forms are addresses in every way that some program takes for one, and names that look like others.
var forms = []string{
	"127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.0.0.1.", "127.000.000.001", "0", "0.0.0.0", "10.0.0.1",
	"172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "[::1]", "[::]", "[::ffff:127.0.0.1]",
	"[::ffff:7f00:1]", "[::127.0.0.1]", "[fe80::1]", "[fe80::1%25eth0]", "[fc00::1]", "[fec0::1]", "[ff02::1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[2002:7f00:1::]",
	"[2001::1]", "[2001:db8::1]", "[100::1]", "::1", "1.2.3.4", "[2606:4700::1111]", "user@127.0.0.1", "localhost.", "LOCALHOST", "ⓛocalhost", "①②⑦.⓪.⓪.①", "127。0。0。1", "localhost%00",
	"example.com.", "examp\u200ble.com", "exаmple.com", "*.example.com", "example.com:443", "a@example.com",
}

// No form of an address gets into edge.allow, and none is fetched from, whatever is there to be fetched.
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
			if _, _, err := r.read(host + "/x"); !errors.Is(err, ErrNotFound) && !errors.As(err, &bad) && reason(err) != NotAllowed {
				t.Errorf("%s: a path gives %v", host, err)
			}
		}
	}
	if n := h.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}

// Whatever a path is, it is refused or stands for one thing whose spelling leads back to it.
func FuzzPath(f *testing.F) {
	for _, seed := range append([]string{"b3/" + b3.Sum(nil).String()[3:], "a.pmtiles", "example.com/a b/c", "example.com/%2e%2e/a", "a.b/..", "localhost:1//x"}, forms...) {
		f.Add(seed)
		f.Add(seed + "/x")
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := parsePath(path)
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
		if err != nil || u.Scheme != "https" || u.Host != got.host || u.Host+u.Path != path || u.RawQuery != "" || u.User != nil || checkHost(u.Host) != nil {
			t.Fatalf("%q: %+v is %+v, %v", path, got, u, err)
		}
		if again, back, err := parseURL(got.url); err != nil || again != got || back != path {
			t.Errorf("%q: its URL leads to %+v, %q, %v", path, again, back, err)
		}
	})
}

// Each key that is out of bounds is refused by its name.
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
		"ingress.rps_limit":               func(c *Config) { c.Ingress.RPSLimit = 0 },
		"queues.work_tx":                  func(c *Config) { c.Queues.WorkTX = 0 },
		"retry.live_fill.base_ms":         func(c *Config) { c.Retry.LiveFill.BaseMS = 801 },
		"retry.live_fill.max_ms":          func(c *Config) { c.Retry.LiveFill.MaxMS = 0 },
		"retry.live_fill.max_retries":     func(c *Config) { c.Retry.LiveFill.MaxRetries = 6 },
		"fill.workers":                    func(c *Config) { c.Fill.Workers = 0 },
		"fill.max_object_bytes":           func(c *Config) { c.Fill.MaxObjectBytes = c.CAS.MaxBytes + 1 },
		"cas.max_bytes":                   func(c *Config) { c.CAS.MaxBytes = 1 },
		"cas.max_urls":                    func(c *Config) { c.CAS.MaxURLs = 1 },
		"cas.min_free":                    func(c *Config) { c.CAS.MinFree = -1 },
		"scrub.every":                     func(c *Config) { c.Scrub.Every = 1 },
		"scrub.rate":                      func(c *Config) { c.Scrub.Rate = 1 },
		"drain_deadline":                  func(c *Config) { c.DrainDeadline = 0 },
	} {
		c := DefaultConfig()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, public := range []string{"https://maps.example", "http://10.0.0.1:8080/", "https://example.com/behind/a/proxy"} {
		c := DefaultConfig()
		c.PublicURL = public
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", public, err)
		}
	}
}
