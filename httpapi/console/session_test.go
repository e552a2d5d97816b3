package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/flow"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// A code is accepted once, within a minute; sixteen may wait.
func TestCodes(t *testing.T) {
	s := newSessions(flow.NewCatalog(nil, nil))
	text, ends, err := s.grant(rights{uid: 7, write: true}, noon)
	if err != nil || !ends.Equal(noon.Add(time.Minute)) || len(text) < 22 {
		t.Fatalf("%q until %s, %v", text, ends, err)
	}
	if _, ok := s.redeem(text+"x", noon); ok {
		t.Error("another code is accepted")
	}
	if r, ok := s.redeem(text, noon.Add(59*time.Second)); !ok || r.uid != 7 || !r.write {
		t.Errorf("%+v, %v", r, ok)
	}
	if _, ok := s.redeem(text, noon.Add(59*time.Second)); ok {
		t.Error("a code is accepted twice")
	}
	late, _, _ := s.grant(rights{}, noon)
	if _, ok := s.redeem(late, noon.Add(time.Minute)); ok {
		t.Error("a code is accepted after a minute")
	}
	for range maxCodes {
		if _, _, err := s.grant(rights{}, noon); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.grant(rights{}, noon); err == nil {
		t.Error("a seventeenth code")
	}
	if _, _, err := s.grant(rights{}, noon.Add(time.Minute)); err != nil {
		t.Errorf("a minute later: %v", err)
	}
}

// A session ends after its life, or half an hour without a request. Of one user the ninth ends the one
// that was idle longest, and nobody ends those of another.
func TestSessions(t *testing.T) {
	s := newSessions(flow.NewCatalog(nil, nil))
	cookie, _ := s.begin(rights{life: time.Hour}, "127.0.0.1", noon)
	for at := time.Duration(0); at < time.Hour; at += 29 * time.Minute {
		if s.find(cookie, noon.Add(at), true) == nil {
			t.Errorf("the session has ended after %s", at)
		}
	}
	if s.find(cookie, noon.Add(time.Hour), true) != nil {
		t.Error("the session outlives its life")
	}
	idle, _ := s.begin(rights{}, "127.0.0.1", noon)
	if s.find(idle, noon.Add(idleLife-1), false) == nil || s.find(idle, noon.Add(idleLife), true) != nil {
		t.Error("an idle session lives on")
	}
	long, _ := s.begin(rights{life: 100 * time.Hour}, "127.0.0.1", noon)
	if got := s.list(noon); len(got) != 1 || got[0].ExpiresAt.Sub(noon) != MaxLife || strings.Contains(long, got[0].ID) {
		t.Errorf("listed: %+v", got)
	}
	later := noon.Add(time.Second)
	for range maxOwn {
		if _, err := s.begin(rights{}, "127.0.0.1", later); err != nil {
			t.Fatal(err)
		}
	}
	if s.find(long, later, true) != nil || len(s.open) != maxOwn {
		t.Errorf("%d sessions of one user, the oldest among them", len(s.open))
	}
	for i := range maxSessions - maxOwn {
		if _, err := s.begin(rights{who: fmt.Sprint(i)}, "127.0.0.1", later); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.begin(rights{who: "another"}, "127.0.0.1", later); err == nil || len(s.open) != maxSessions {
		t.Errorf("%d sessions, %v", len(s.open), err)
	}
	if !s.endByID(s.list(later)[0].ID) || s.endByID("nonsense") || len(s.open) != maxSessions-1 {
		t.Error("a session cannot be ended by its id")
	}
}

func TestPrefersHTML(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json, text/html": false, "text/html, application/json": true,
		"text/html;q=0.9,*/*": true, "TEXT/HTML": true, "text/plain": false,
	} {
		if got := prefersHTML([]string{accept}); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
}

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		humanBytes(0): "0 B", humanBytes(1023): "1023 B", humanBytes(1536): "1.5 KiB", humanBytes(1 << 34): "16.0 GiB",
		groups("1"): "1", groups("1234567"): "1\u202f234\u202f567", shorten("b3:0123456789abcdef01"): "0123456789abcdef…",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A Config names every fault.
func TestConfigFaults(t *testing.T) {
	good := DefaultConfig()
	if err := good.Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	bad := Config{Allow: []string{"10.0.0.0/33"}, Hosts: []string{"Node.example", "a:1", ""}}
	err := bad.Validate()
	if err == nil || strings.Count(err.Error(), "hosts = ") != 3 || !strings.Contains(err.Error(), "allow: ") {
		t.Errorf("%v", err)
	}
}

// A form has known fields only, each once.
func FuzzParseForm(f *testing.F) {
	for _, raw := range []string{"", "code=x", "code=x&code=y", "admin=1", "code=%zz", "a;b=c", "code=%00%ff&token="} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		in, err := parseForm(raw, []string{"code", "token"})
		if err != nil {
			return
		}
		for name, values := range in {
			if name != "code" && name != "token" || len(values) != 1 {
				t.Errorf("%q: %q has %d values", raw, name, len(values))
			}
		}
	})
}
