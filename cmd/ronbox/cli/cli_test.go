package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{errors.New("anything"), 1},
		{Usage("x"), 2},
		{Fail(ExitBad, "chain", "", "x"), 3},
		{fmt.Errorf("head: %w", client.ErrNotReachable), 4},
		{&wire.Problem{Status: 401}, 5},
		{&wire.Problem{Status: 403}, 5},
		{&wire.Problem{Status: 408}, 6},
		{&wire.Problem{Status: 429}, 6},
		{&wire.Problem{Status: 503}, 6},
		{&wire.Problem{Status: 504}, 6},
		{&wire.Problem{Status: 400}, 1},
		{&wire.Problem{Status: 409}, 1},
		{&wire.Problem{Status: 507}, 1},
		{fmt.Errorf("x: %w", client.ErrUnknown), 6},
		{fmt.Errorf("x: %w: %w", client.ErrUnknown, context.DeadlineExceeded), 6},
		{store.ErrCorrupt, 65},
		{store.ErrPoisoned, 74},
		{store.ErrLocked, 75},
		{fs.ErrPermission, 77},
		{store.ErrSchema, 78},
		{store.ErrClustered, 78},
		{fmt.Errorf("%w: %w", client.ErrNotReachable, syscall.EACCES), 77},
		{ConfigFailure(&config.Fault{Where: "f", Reason: "permission denied", Cause: fs.ErrPermission}), 77},
		{ConfigFailure(&config.Fault{Where: "f", Reason: "is no file", Cause: fs.ErrNotExist}), 78},
		{context.Canceled, 130},
		{&Failure{Err: fmt.Errorf("x: %w", client.ErrNotReachable)}, 4},
	} {
		if got := Classify(tt.err).Code; got != tt.want {
			t.Errorf("judge(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

// With --json every error is printed as one problem object. A refusal of the node is printed
// unchanged.
func TestErrorsAsProblems(t *testing.T) {
	lost := &Failure{Err: fmt.Errorf("x: %w", client.ErrNotReachable), Details: map[string]any{"file": "f"}}
	p := asProblem(lost, Classify(lost))
	if p.Reason != "not_reachable" || p.Type != "urn:ronbox:problem:cli:not_reachable" || p.Details["file"] != "f" ||
		p.Details["exit"] != 4 ||
		!p.Retryable {
		t.Errorf("problem = %+v", p)
	}
	in := &wire.Problem{
		Type:    "urn:ronbox:problem:registry:busy",
		Status:  429,
		Reason:  "busy",
		CorrID:  "c",
		Details: map[string]any{"m": 1},
	}
	refused := fmt.Errorf("propose: %w", in)
	out := asProblem(refused, Classify(refused))
	if out.Reason != "busy" || out.CorrID != "c" || out.Details["m"] != 1 || out.Details["exit"] != 6 ||
		len(in.Details) != 1 {
		t.Errorf("problem = %+v, its source %+v", out, in)
	}
}

// The refusal of a user that may not use the socket says what to do, so that nothing about tokens is
// added.
func TestSocketOfAnother(t *testing.T) {
	refused := &wire.Problem{Status: 403, Reason: "forbidden", Detail: "uid 7; admit it in uds.allow_uids"}
	if v := Classify(refused); v.Code != ExitDenied || v.Next != "" {
		t.Errorf("outcome = %+v", v)
	}
}

func TestProgress(t *testing.T) {
	for _, tt := range []struct {
		doc  string
		tty  bool
		at   []time.Duration
		want string
	}{
		{"short work is silent", true, []time.Duration{0, 500 * time.Millisecond}, ""},
		{"a line each 10 s", false, []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 12 * time.Second},
			"copy   25 %  1.0 KiB of 4.0 KiB  102 B/s  30s left\n"},
		{"a terminal is redrawn and cleared", true, []time.Duration{2 * time.Second},
			"\r\x1b[Kcopy   25 %  1.0 KiB of 4.0 KiB  512 B/s  6s left\r\x1b[K"},
	} {
		var out bytes.Buffer
		clock := time.Unix(0, 0)
		p := &Progress{w: &out, tty: tt.tty, now: func() time.Time { return clock }, Unit: Bytes}
		p.Begin("copy")
		for _, d := range tt.at {
			clock = time.Unix(0, 0).Add(d)
			p.At(1024, 4096)
		}
		p.End()
		if out.String() != tt.want {
			t.Errorf("%s: %q, want %q", tt.doc, out.String(), tt.want)
		}
	}
}

// A message clears the line of a progress on a terminal first.
func TestMessagesClearTheProgress(t *testing.T) {
	for doc, say := range map[string]func(a *App){
		"a note":     func(a *App) { a.Say("note") },
		"a warning":  func(a *App) { a.Warn("warning") },
		"an error":   func(a *App) { a.complain(errors.New("failed")) },
		"a bad file": func(a *App) { _ = a.FoundBad("bad", "") },
	} {
		var out bytes.Buffer
		a := New(nil, io.Discard, &out, server.Build{})
		a.Progress(Bytes, "copy").drawn = true
		say(a)
		if got := out.String(); strings.Index(got, "\r\x1b[K") != 0 || strings.Count(got, "\x1b") != 1 {
			t.Errorf("%s: %q", doc, got)
		}
	}
}

func TestUnits(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB",
		8 << 30: "8.0 GiB", 1 << 50: "1024.0 TiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("byteUnit(%d) = %q, want %q", n, got, want)
		}
	}
}

// A file is written completely or not at all. Only ReplaceFile replaces an existing file.
func TestFilesAreWholeOrNotThere(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	broken := errors.New("broken")
	half := func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, broken)
	}
	if _, err := ProduceFile(path, 0o600, half); !errors.Is(err, broken) {
		t.Errorf("err = %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if err := WriteFile(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("second"), 0o600); Classify(err).Reason != "exists" {
		t.Errorf("a file is written over: %v", err)
	}
	if err := ReplaceFile(path, []byte("third"), 0o640); err != nil {
		t.Fatal(err)
	}
	asked := false
	if _, err := ProduceFile(dir+"/none/../g", 0o600,
		func(io.Writer) error { asked = true; return nil }); !errors.Is(err, fs.ErrNotExist) ||
		asked {
		t.Errorf("a file that cannot be there is asked for: %t, %v", asked, err)
	}
	// An error of the source names the source, not the file that is written.
	elsewhere := &fs.PathError{Op: "open", Path: "/elsewhere", Err: fs.ErrPermission}
	_, err := ProduceFile(filepath.Join(dir, "g"), 0o600, func(io.Writer) error { return elsewhere })
	if !errors.Is(err, elsewhere) || !strings.Contains(err.Error(), "/elsewhere") {
		t.Errorf("the wrong file is named: %v", err)
	}
	raw, err := os.ReadFile(path)
	if info, _ := os.Stat(path); err != nil || string(raw) != "third" || info.Mode().Perm() != 0o640 {
		t.Errorf("%q, %v, %v", raw, info.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
}

// The printed command line quotes each word for a shell, and names the file of the token instead of
// the token.
// RONBOX_URL replaces --url, unless another flag names the node.
func TestURLs(t *testing.T) {
	for _, tt := range []struct {
		doc   string
		flags Flags
		want  []string
	}{
		{"the environment", Flags{}, []string{"http://a:1", "http://b:2"}},
		{"--url", Flags{URL: "http://c:3"}, []string{"http://c:3"}},
		{"--socket", Flags{Socket: "/s"}, nil},
		{"--data-dir", Flags{DataDir: "data"}, nil},
		{"--config", Flags{Config: "f"}, nil},
	} {
		a := &App{Flags: tt.flags, Env: []string{URLVariable + "=http://a:1, http://b:2"}}
		if got := a.URLs(); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.doc, got, tt.want)
		}
	}
	for _, bad := range []string{",", "http://a:1,", "http://u@a:1", "a:1"} {
		a := &App{Flags: Flags{URL: bad}}
		if c, err := a.Client(); err == nil {
			t.Errorf("%s: a client of %s", bad, c.Where())
		}
	}
}

func TestCurlLine(t *testing.T) {
	a := New(nil, nil, nil, server.Build{})
	a.Flags.TokenFile, a.Flags.CAFile = "/etc/my tokens/t", "/ca.pem"
	for _, tt := range []struct{ method, url, body, socket, want string }{
		{"GET", "http://h:1/a", "", "", `curl -sS --cacert /ca.pem AUTH http://h:1/a`},
		{"GET", "http://h/a?b=c&d=$e", "", "/d/s", `curl -sS --unix-socket /d/s --cacert /ca.pem AUTH 'http://h/a?b=c&d=$e'`},
		{"POST", "http://h/a", "", "", `curl -sS --cacert /ca.pem -X POST AUTH http://h/a`},
		{"POST", "http://h/a", `{"a":"it's"}`, "", `curl -sS --cacert /ca.pem AUTH --data-raw '{"a":"it'\''s"}' http://h/a`},
		{"PUT", "http://h/a", "\xff", "", `curl -sS --cacert /ca.pem -X PUT AUTH --data-binary @BODY http://h/a`},
		{"DELETE", "http://h/a", "", "", `curl -sS --cacert /ca.pem -X DELETE AUTH http://h/a`},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("User-Agent", "ronbox/1")
		want := strings.Replace(tt.want, "AUTH", `-H "Authorization: Bearer $(cat '/etc/my tokens/t')"`, 1)
		if got := (&curl{a, tt.socket}).line(r, []byte(tt.body)); got != want {
			t.Errorf("%s %s:\n%s\nwant\n%s", tt.method, tt.url, got, want)
		}
	}
}
