package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
)

// A signer that asks the node for the bytes to sign signs a payload or nothing, and is shown what it says.
func TestApproveSignsPayloadsOnly(t *testing.T) {
	k := newTestKey(t, 1)
	payload := newFakeNode(t, k).raw
	for _, tt := range []struct {
		doc    string
		served []byte
		signed bool
	}{
		{"a payload", payload, true},
		{"a payload in another spelling", append([]byte(" "), payload...), false},
		{"no payload", []byte(`{"type":"ron.registry/set/v1","version":1}`), false},
		{"no JSON", []byte("anything"), false},
	} {
		var approvals []wire.Approval
		srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = rw.Write(tt.served)
				return
			}
			var a wire.Approval
			if raw, err := io.ReadAll(r.Body); err != nil || json.Unmarshal(raw, &a) != nil {
				t.Errorf("%s: not an approval: %s", tt.doc, raw)
			}
			approvals = append(approvals, a)
			_, _ = io.WriteString(rw, `{"status":"accepted","approvals":1,"quorum":{"m":1,"n":1}}`)
		}))
		r := cli(t, "--url", srv.URL, "registry", "approve", "p_1", "--key", keyFile(t, k))
		srv.Close()
		if !tt.signed {
			if r.code != exitBad || len(approvals) != 0 {
				t.Errorf("%s: exit %d, %d approvals\n%s", tt.doc, r.code, len(approvals), r.stderr)
			}
			continue
		}
		if r.code != exitDone || len(approvals) != 1 || record.VerifyApproval(record.Approval(approvals[0]), k.Signer(1), b3.Sum(payload)) != nil {
			t.Errorf("%s: exit %d, %+v\n%s", tt.doc, r.code, approvals, r.stderr)
		}
		for _, want := range []string{"test.example version 1, genesis", "1 of 1 signers", "org:test#kb active " + k.Public(), b3.Sum(payload).String()} {
			if !strings.Contains(r.stderr, want) {
				t.Errorf("%s: the signer is not shown %q:\n%s", tt.doc, want, r.stderr)
			}
		}
	}
}

func keyFile(t *testing.T, k *record.Key) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a,b.key") // a comma is a character of a path
	if err := os.WriteFile(path, k.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What a stranger sends cannot steer the terminal of who reads it.
func TestTerminalsAreNotSteered(t *testing.T) {
	const evil = "\x1b]0;x\a\u009b2J\u202eabc\xff"
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "head") {
			raw, _ := json.Marshal(wire.Head{Version: 1, Hash: "a\tb\nc\x1b[2J\u202e"})
			_, _ = rw.Write(raw)
			return
		}
		raw, _ := json.Marshal(wire.Problem{Reason: "not_found", Title: "No", Detail: strings.ToValidUTF8(evil, "")})
		rw.Header().Set("Content-Type", wire.ProblemType)
		rw.WriteHeader(http.StatusNotFound)
		_, _ = rw.Write(raw)
	}))
	defer srv.Close()
	for _, verb := range [][]string{{"registry", "head"}, {"registry", "get", "1"}} {
		r := cli(t, append([]string{"--url", srv.URL}, verb...)...)
		if text := r.stdout + r.stderr; strings.ContainsAny(text, "\x1b\a\t\u009b\u202e") || !strings.Contains(text, `\x1b`) {
			t.Errorf("%v printed %q", verb, text)
		}
	}
	if got := plain(evil + "é\n"); got != `\x1b]0;x\a\u009b2J\u202eabc\ufffdé`+"\n" {
		t.Errorf("plain gives %q", got)
	}
}

// A node that contradicts itself is not believed, and told apart from a refusal.
func TestApplyDistrusts(t *testing.T) {
	for _, tt := range []struct {
		doc string
		lie func(f *fakeNode)
	}{
		{"another version was committed", func(f *fakeNode) { f.claim = func(c *wire.Committed) { c.Version++ } }},
		{"another payload was committed", func(f *fakeNode) { f.claim = func(c *wire.Committed) { c.PayloadB3 = "b3:x" } }},
		{"HEAD is older than its number", func(f *fakeNode) { f.skew = 3 }},
		{"HEAD falls back", func(f *fakeNode) {
			old, raw := f.base, f.raw
			f.fail = func(step string, n int) (error, error) {
				if step == "head" && n == 2 {
					f.base, f.raw = old, raw
				}
				return nil, nil
			}
		}},
	} {
		k := newTestKey(t, 1)
		f := newFakeNode(t, k)
		tt.lie(f)
		ap := newApplier(f, k)
		_, err := ap.apply(t.Context(), wanted(t, itemA))
		if err == nil {
			_, err = ap.apply(t.Context(), wanted(t, itemB))
		}
		if err == nil || judge(err).code != exitBad || judge(err).reason != "node_inconsistent" {
			t.Errorf("%s: err = %v", tt.doc, err)
		}
	}
}

// Wrong arguments are told in words that help, and change nothing.
func TestWrongArguments(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	key := keyFile(t, newTestKey(t, 1))
	hash := b3.Sum(nil).String()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"registry", "verify", "--db", dir, "--genesis", hash}, exitFailed, "is a directory"},
		{[]string{"registry", "verify", "--db", pipe, "--genesis", hash}, exitFailed, "is no regular file"},
		{[]string{"db", "verify", dir}, exitFailed, "is a directory"},
		{[]string{"db", "info", pipe}, exitFailed, "is no regular file"},
		{[]string{"db", "restore", filepath.Join(dir, "none")}, exitFailed, "check the path"},
		{[]string{"db", "restore", pipe}, exitFailed, "is no regular file"},
		{[]string{"registry", "apply", dir, "--key", key}, exitFailed, "name a file"},
		{[]string{"registry", "apply", file("bom", "\xef\xbb\xbf"+itemA), "--key", key}, exitFailed, "byte order mark"},
		{[]string{"registry", "apply", "-", "--key", key}, exitUsage, "add --yes"},
		{[]string{"registry", "apply", os.DevNull, "--key", key}, exitUsage, "add --yes"},
		{[]string{"registry", "apply", "-", "-", "--key", key}, exitUsage, "once"},
		{[]string{"registry", "apply", file("item", itemA), "--key", dir}, exitFailed, "name a file"},
		{[]string{"registry", "propose", file("garbage", "garbage")}, exitFailed, "garbage: malformed: invalid character"},
		{[]string{"registry", "keygen", "--signer-id", "org:a#b", "--out", filepath.Join(dir, "no", "k")}, exitFailed, "write " + filepath.Join(dir, "no", "k") + ": no such file"},
		{[]string{"--url", "http://127.0.0.1:1", "--token-file", file("token", "a\nb\n"), "status"}, exitFailed, "holds no token"},
		{[]string{"registry", "head", "--timeout", "-1s"}, exitUsage, "--timeout"},
		{[]string{"token", "mint", "--scope", "a.b", "--ip", ""}, exitUsage, "--ip is given nothing"},
		{[]string{"token", "mint", "--scope", ""}, exitUsage, "--scope is given nothing"},
		{[]string{"token", "mint", "--scope", "a.b", "--tenant="}, exitUsage, "--tenant is given nothing"},
		{[]string{"db", "verify", dir, "--genesis", ""}, exitUsage, "--genesis is given nothing"},
		{[]string{"--token-file", "", "status"}, exitUsage, "--token-file is given nothing"},
		{[]string{"drain", "--reason", ""}, exitUnreachable, "not reachable"},
		{[]string{"registry", "stream", "--count", "-1"}, exitUsage, "--count"},
		{[]string{"registry", "stream", "--tries", "-1"}, exitUsage, "--tries"},
	} {
		args := append([]string{"--data-dir", filepath.Join(dir, "none")}, tt.args...)
		r := cli(t, args...)
		if text := r.stderr; r.code != tt.code || !strings.Contains(text, tt.want) || strings.Contains(text, ".ronbox-") {
			t.Errorf("%v: exit %d, want %d and %q:\n%s", tt.args, r.code, tt.code, tt.want, text)
		}
		var p wire.Problem
		if decode(t, cli(t, append(args, "--json")...).stdout, &p); p.Reason == "" {
			t.Errorf("%v --json: no problem", tt.args)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 5 {
		t.Errorf("left over: %v", left)
	}
}

// A signature for what cannot be signed for is never made from a file either, and the secret never shows.
func TestKeysAreNeverPrinted(t *testing.T) {
	k := newTestKey(t, 1)
	path := keyFile(t, k)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, seed, _ := bytes.Cut(raw, []byte(`"seed":"`))
	seed = seed[:44]
	broken := filepath.Join(t.TempDir(), "k")
	for _, edit := range []func([]byte) []byte{
		func(b []byte) []byte { return b },
		func(b []byte) []byte { return bytes.Replace(b, seed, append([]byte("A"), seed[:43]...), 1) },
		func(b []byte) []byte { return bytes.Replace(b, []byte(`"signer_id"`), []byte(`"signer"`), 1) },
		func(b []byte) []byte { return b[:len(b)-2] },
		func(b []byte) []byte { return append(b, b...) },
	} {
		if err := os.WriteFile(broken, edit(bytes.Clone(raw)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"registry", "apply", "x", "--key", broken}, {"registry", "sign", "--payload", broken, "--key", broken}, {"--token-file", broken, "token", "inspect"}} {
			if r := cli(t, args...); r.code == exitDone || strings.Contains(r.stdout+r.stderr, string(seed[1:20])) {
				t.Errorf("%v: exit %d\n%s%s", args, r.code, r.stdout, r.stderr)
			}
		}
	}
}

// An answer that is too large is not asked for again and again.
func TestLargeAnswersEnd(t *testing.T) {
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		calls++
		_, _ = rw.Write(bytes.Repeat([]byte(" "), 5<<20))
	}))
	defer srv.Close()
	item := filepath.Join(t.TempDir(), "item")
	if err := os.WriteFile(item, []byte(itemA), 0o600); err != nil {
		t.Fatal(err)
	}
	r := cli(t, "--url", srv.URL, "--timeout", time.Minute.String(), "registry", "apply", item, "--key", keyFile(t, newTestKey(t, 1)))
	if r.code != exitFailed || calls != 1 || !strings.Contains(r.stderr, "too large") {
		t.Errorf("exit %d after %d calls: %s", r.code, calls, r.stderr)
	}
}
