package main

import (
	"bytes"
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
	"ronbox/cmd/ronbox/cli"
	"ronbox/httpapi/wire"
	registryapi "ronbox/httpapi/wire/registry"
)

// oneItem is a desired state with one descriptor.
const oneItem = `{"id":"a","kind":"node","meta":{}}`

// signerKey creates the key file of a signer.
func signerKey(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "signer.key")
	must(t, nil, "registry", "keygen", "--signer-id", "org:test#k", "--out", path)
	return path
}

// Control characters in an answer of a server do not reach the terminal.
func TestTerminalsAreNotSteered(t *testing.T) {
	const evil = "\x1b]0;x\a\u009b2J\u202eabc\xff"
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "head") {
			raw, _ := json.Marshal(registryapi.Head{Version: 1, CommittedAt: "a\tb\nc\x1b[2J\u202e"})
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
		r := ronbox(t, append([]string{"--url", srv.URL}, verb...)...)
		if text := r.stdout + r.stderr; strings.ContainsAny(text, "\x1b\a\t\u009b\u202e") ||
			!strings.Contains(text, `\x1b`) {
			t.Errorf("%v printed %q", verb, text)
		}
	}
	if got := cli.Plain(evil + "é\n"); got != `\x1b]0;x\a\u009b2J\u202eabc\ufffdé`+"\n" {
		t.Errorf("plain gives %q", got)
	}
}

// Wrong arguments are refused with a helpful message and change nothing.
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
	key := signerKey(t)
	hash := b3.Sum(nil).String()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"registry", "verify", "--db", dir, "--genesis", hash}, cli.ExitFailed, "is a directory"},
		{[]string{"registry", "verify", "--db", pipe, "--genesis", hash}, cli.ExitFailed, "is no regular file"},
		{[]string{"db", "verify", dir}, cli.ExitFailed, "is a directory"},
		{[]string{"db", "info", pipe}, cli.ExitFailed, "is no regular file"},
		{[]string{"db", "restore", filepath.Join(dir, "none")}, cli.ExitFailed, "check the path"},
		{[]string{"db", "restore", pipe}, cli.ExitFailed, "is no regular file"},
		{[]string{"registry", "apply", dir, "--key", key}, cli.ExitFailed, "name a file"},
		{[]string{"registry", "apply", file("bom", "\xef\xbb\xbf"+oneItem), "--key", key}, cli.ExitFailed,
			"byte order mark"},
		{[]string{"registry", "apply", "-", "--key", key}, cli.ExitUsage, "add --yes"},
		{[]string{"registry", "apply", os.DevNull, "--key", key}, cli.ExitUsage, "add --yes"},
		{[]string{"registry", "apply", "-", "-", "--key", key}, cli.ExitUsage, "once"},
		{[]string{"registry", "apply", file("item", oneItem), "--key", dir}, cli.ExitFailed, "name a file"},
		{[]string{"registry", "propose", file("garbage", "garbage")}, cli.ExitFailed,
			"garbage: malformed: invalid character"},
		{[]string{"registry", "keygen", "--signer-id", "org:a#b", "--out", filepath.Join(dir, "no", "k")},
			cli.ExitFailed, "write " + filepath.Join(dir, "no", "k") + ": no such file"},
		{[]string{"--url", "http://127.0.0.1:1", "--token-file", file("token", "a\nb\n"), "status"}, cli.ExitFailed,
			"holds no token"},
		{[]string{"registry", "head", "--timeout", "-1s"}, cli.ExitUsage, "--timeout"},
		{[]string{"token", "mint", "--scope", "a.b", "--ip", ""}, cli.ExitUsage, "--ip has no value"},
		{[]string{"token", "mint", "--scope", ""}, cli.ExitUsage, "--scope has no value"},
		{[]string{"token", "mint", "--scope", "a.b", "--tenant="}, cli.ExitUsage, "--tenant has no value"},
		{[]string{"db", "verify", dir, "--genesis", ""}, cli.ExitUsage, "--genesis has no value"},
		{[]string{"--token-file", "", "status"}, cli.ExitUsage, "--token-file has no value"},
		{[]string{"drain", "--reason", ""}, cli.ExitUnreachable, "not reachable"},
		{[]string{"registry", "stream", "--count", "-1"}, cli.ExitUsage, "--count"},
		{[]string{"registry", "stream", "--tries", "-1"}, cli.ExitUsage, "--tries"},
	} {
		args := append([]string{"--data-dir", filepath.Join(dir, "none")}, tt.args...)
		r := ronbox(t, args...)
		if text := r.stderr; r.code != tt.code || !strings.Contains(text, tt.want) ||
			strings.Contains(text, ".ronbox-") {
			t.Errorf("%v: exit %d, want %d and %q:\n%s", tt.args, r.code, tt.code, tt.want, text)
		}
		var p wire.Problem
		if decode(t, ronbox(t, append(args, "--json")...).stdout, &p); p.Reason == "" {
			t.Errorf("%v --json: no problem", tt.args)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 5 {
		t.Errorf("left over: %v", left)
	}
}

// A statement that must not be signed is not signed when it comes from a file, and output never
// contains the secret key.
func TestKeysAreNeverPrinted(t *testing.T) {
	path := signerKey(t)
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
		for _, args := range [][]string{{"registry", "apply", "x", "--key", broken},
			{"registry", "sign", "--payload", broken, "--key", broken}, {"--token-file", broken, "token", "inspect"}} {
			if r := ronbox(
				t,
				args...); r.code == cli.ExitDone ||
				strings.Contains(r.stdout+r.stderr, string(seed[1:20])) {
				t.Errorf("%v: exit %d\n%s%s", args, r.code, r.stdout, r.stderr)
			}
		}
	}
}

// A client does not repeat a request after an answer that is too large.
func TestLargeAnswersEnd(t *testing.T) {
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		calls++
		_, _ = rw.Write(bytes.Repeat([]byte(" "), 5<<20))
	}))
	defer srv.Close()
	item := filepath.Join(t.TempDir(), "item")
	if err := os.WriteFile(item, []byte(oneItem), 0o600); err != nil {
		t.Fatal(err)
	}
	r := ronbox(t, "--url", srv.URL, "--timeout", time.Minute.String(), "registry", "apply", item, "--key",
		signerKey(t))
	if r.code != cli.ExitFailed || calls != 1 || !strings.Contains(r.stderr, "too large") {
		t.Errorf("exit %d after %d calls: %s", r.code, calls, r.stderr)
	}
}
